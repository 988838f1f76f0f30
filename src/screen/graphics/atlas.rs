//! The maps of an atlas as one picture: transparent where letters and strips stand.

use std::sync::Arc;

use attnscope_checks::stats::HeadType;
use attnscope_terminal::theme::{Depth, Ground, Look};
use attnscope_worker::RunId;
use ratatui::layout::Rect;

use super::image::{Image, Palette};
use crate::panels::atlas::{maps_shown, thumbnails};
use crate::panels::atlas_layout::Layout;
use crate::panels::overview;
use crate::state::runs::Shows;
use crate::state::scene::Scene;

/// All that the maps depend on: while it stays, the picture on the screen does.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    layouts: Vec<Layout>,
    runs: Vec<(RunId, usize)>,
    shows: Shows,
    kind: Option<HeadType>,
    theme: (Depth, Ground, Look),
    cell: (u16, u16),
}

impl Seen {
    pub fn of(app: Scene<'_>, cell: (u16, u16)) -> Self {
        let runs = [app.runs.a.as_ref(), app.runs.second()];
        let n_layers = |run: &crate::state::run::Run| run.layers.values().map(Vec::len).sum();
        Self {
            layouts: overview::layouts(app),
            runs: runs
                .into_iter()
                .flatten()
                .map(|run| (run.id, n_layers(run)))
                .collect(),
            shows: app.side(),
            kind: app.shown_type,
            theme: (app.theme.depth, app.theme.ground, app.theme.look),
            cell,
        }
    }

    /// The areas of all maps; none if heads are shown as numbers, or none has arrived.
    pub fn maps(&self, app: Scene<'_>) -> Vec<Rect> {
        let layouts = self.layouts.iter();
        let maps = layouts.flat_map(|layout| maps_shown(app, layout));
        maps.map(|map| map.area).collect()
    }

    /// The picture over the area of all maps.
    pub fn image(&self, app: Scene<'_>, area: Rect) -> Arc<Image> {
        let (wide, high) = (usize::from(self.cell.0), usize::from(self.cell.1));
        let (width, height) = (
            usize::from(area.width) * wide,
            usize::from(area.height) * high,
        );
        let theme = if app.grid_differs() {
            app.theme.diverging()
        } else {
            app.theme.clone()
        };
        let palette = Palette::of(&theme);
        let mut pixels = vec![0u8; width * height];
        let mut pictures = Vec::new();
        for layout in &self.layouts {
            for map in maps_shown(app, layout) {
                let heads = (map.layer_idx, map.head_idx..map.head_idx + 1);
                // As many pixels as the terminal has in the room of the half-blocks.
                let (n_columns, n_half_rows) = map.pixels;
                let most = (n_columns * wide, n_half_rows * high / 2);
                let of_head = thumbnails(app, layout.stack, heads, most).pop().flatten();
                pictures.extend(of_head.map(|picture| (picture, most, map.area)));
            }
        }
        let all = pictures.iter().map(|(picture, ..)| picture.largest());
        let most_change = all.fold(0.0, f32::max);
        for (picture, (n_columns, n_rows), map) in &pictures {
            let (by_row, by_change) = (picture.by_row(), picture.by_change(most_change));
            let left = usize::from(map.x - area.x) * wide;
            let top = usize::from(map.y - area.y) * high;
            for y in 0..*n_rows {
                let line = (top + y) * width + left;
                for x in 0..*n_columns {
                    let (column, row) =
                        (x * picture.width / n_columns, y * picture.height / n_rows);
                    let share = if app.grid_differs() {
                        by_change(column, row)
                    } else {
                        by_row(column, row)
                    };
                    pixels[line + x] = Palette::index(share);
                }
            }
        }
        Arc::new(Image {
            width,
            height,
            palette: palette.colours,
            pixels,
        })
    }
}
