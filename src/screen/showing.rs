//! Ways to change the display: head types, zoom, colours.

use attnscope_terminal::theme::{Colours, Depth, Diverging, Ground, Inks, Look, Sequential, Theme};

use super::panels;
use super::state::app::App;
use super::state::find::{Item, Target};
use super::state::views::Axis;

impl App {
    /// Applies the background colour that the terminal reported.
    pub(super) fn take_ground(&mut self, ground: Ground) {
        if self.follows_ground {
            self.theme = Theme::with(ground, self.theme.depth, self.theme.look);
        }
    }

    pub(super) fn choose_colours(&mut self, colours: Colours) {
        let Theme {
            ground,
            depth,
            look,
            ..
        } = self.theme;
        self.theme = match colours {
            Colours::Theme(ground, is_high_contrast) => {
                self.follows_ground = false;
                let look = Look {
                    is_high_contrast,
                    inks: Inks::default(),
                    ..look
                };
                Theme::with(ground, depth, look)
            }
            Colours::Own(own, look) => {
                self.follows_ground &= own.is_none();
                Theme::with(own.unwrap_or(ground), depth, look)
            }
            Colours::Depth(depth) => Theme::with(ground, depth, look),
            Colours::Map(map) => Theme::with(ground, depth, Look { map, ..look }),
            Colours::Differences(differences) => {
                let look = Look {
                    differences,
                    ..look
                };
                Theme::with(ground, depth, look)
            }
        };
    }

    /// Colour themes and maps for the palette.
    pub(super) fn colour_items(&self) -> Vec<Item> {
        let item = |label: String, about: &str, colours: Colours| Item {
            also: "colour color".to_owned(),
            about: about.to_owned(),
            ..Item::new(label, "theme", Target::Colours(colours))
        };
        let ground = self.theme.ground;
        let themes = [
            ("dark theme", "for a dark background", Ground::Dark, false),
            (
                "light theme",
                "for a light background",
                Ground::Light,
                false,
            ),
            (
                "high contrast theme",
                "for the background as it is",
                ground,
                true,
            ),
        ];
        let themes = themes.map(|(label, about, ground, is_high)| {
            item(label.to_owned(), about, Colours::Theme(ground, is_high))
        });
        let maps = Sequential::NAMES.map(|(name, map)| {
            item(
                format!("colour map {name}"),
                "of maps and grids",
                Colours::Map(map),
            )
        });
        let differences = Diverging::NAMES.map(|(name, map)| {
            item(
                format!("colour map {name}"),
                "of differences",
                Colours::Differences(map),
            )
        });
        let depths = Depth::NAMES.map(|(name, depth)| {
            item(
                format!("colours: {name}"),
                "of the terminal",
                Colours::Depth(depth),
            )
        });
        let own = self.themes.iter().map(|own| {
            let colours = Colours::Own(own.ground, own.look);
            item(format!("{} theme", own.name), &own.about, colours)
        });
        let all = themes.into_iter().chain(own).chain(maps).chain(differences);
        all.chain(depths).collect()
    }

    /// Shows only heads of the next type present, or all after the last type; moves the selection to a shown head.
    pub(super) fn next_type(&mut self) {
        let types = self.scene().head_types();
        if types.is_empty() {
            self.shown_type = None;
            self.notice = Some(
                "no head of this run has a type: the text has nothing that shows one".to_owned(),
            );
            return;
        }
        let here = types
            .iter()
            .position(|(kind, _)| Some(*kind) == self.shown_type);
        self.shown_type = types
            .get(here.map_or(0, |idx| idx + 1))
            .map(|(kind, _)| *kind);
        self.select_shown_type();
    }

    /// Selects the first head of the shown type, unless the selected head has it.
    fn select_shown_type(&mut self) {
        let scene = self.scene();
        let at = scene.selection;
        let selected = scene.layer().and_then(|layer| layer.heads.get(at.head_idx));
        if selected.is_some_and(|head| scene.is_of_shown_type(head)) {
            return;
        }
        // Search the selected grid first.
        let mut grids = scene.grids();
        grids.sort_by_key(|grid| *grid != at.stack);
        let found = grids.into_iter().find_map(|grid| {
            scene.layers_of(grid).iter().find_map(|layer| {
                let mut heads = layer.heads.iter();
                let head_idx = heads.position(|head| scene.is_of_shown_type(head))?;
                Some((grid, layer.layer_idx, head_idx))
            })
        });
        if let Some((grid, layer_idx, head_idx)) = found {
            self.select_grid(grid);
            (self.selection.layer_idx, self.selection.head_idx) = (layer_idx, head_idx);
        }
    }

    /// Zooms around the crosshair.
    pub(super) fn zoom(&mut self, by: i32) {
        let body = self.areas().body;
        let now = panels::head_layout::zoom(self.scene(), body);
        let most_out = -(self.scene().n_along(Axis::Query).max(1).ilog2() as i32);
        // Zoom levels 0 and 1 are the same scale, one cell per pixel: skip one of them.
        let next = match (now, by) {
            (1, -1) => -1,
            (-1, 1) => 1,
            (now, by) => now + by,
        };
        let detail = self.scene().shown_detail();
        let has_full = detail.is_some_and(|detail| detail.pooling() > 1 && detail.rows.is_some());
        // Zooming in beyond one pooled cell per pixel switches to single cells; zooming out switches back.
        let (is_full, next) = match self.head_view.is_full && has_full {
            false if has_full && now >= 1 && by > 0 => (true, 1),
            true if next < 1 => (false, 1),
            is_full => (is_full, next),
        };
        self.head_view.is_full = is_full;
        self.head_view.zoom = Some(next.clamp(most_out.min(1), 8));
        self.keep_crosshair_in_sight();
    }
}
