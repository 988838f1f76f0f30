//! How the Overview panel divides its room: maps or numbers, what stands beside them and what below.

use attnscope_spec::Stack;
use ratatui::layout::{Constraint, Layout, Margin, Rect};

use super::overview::{figures, n_columns};
use super::{atlas_layout, head_grid};
use crate::state::scene::Scene;

/// Minimum rows of the ranking.
const RANKING: usize = 8;

/// How the heads of a grid are shown.
pub enum Heads {
    /// Maps, laid out once for drawing and for the mouse.
    Atlas(atlas_layout::Layout),
    /// Numbers; holds the rows from one layer to the next.
    Numbers(usize),
}

/// Rows of a ranking below an atlas.
const SHORT_RANKING: u16 = 6;

/// Layout of the panel.
pub struct Parts {
    /// One sentence on the run.
    pub summary: Rect,
    pub grids: Vec<(Rect, Stack, Heads)>,
    /// If the grids leave room.
    pub ranking: Option<Rect>,
    pub map: Option<Rect>,
    pub figures: Option<Rect>,
    /// If the figures leave room.
    pub text: Option<Rect>,
}

pub fn parts(app: Scene<'_>, area: Rect) -> Parts {
    let [summary, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let mut parts = if app.overview_view.shows_maps() {
        of_atlas(app, summary, body)
    } else {
        of_numbers(app, summary, body)
    };
    if app.shows_one_pane() {
        // Each of them gets all of the room in its turn, also those that find none beside the others.
        let others = [
            &mut parts.ranking,
            &mut parts.map,
            &mut parts.figures,
            &mut parts.text,
        ];
        for pane in others {
            pane.get_or_insert(body);
        }
    }
    let usual: Vec<Rect> = parts.grids.iter().map(|(area, _, _)| *area).collect();
    app.arrange(body, &mut parts.panes());
    for ((area, stack, heads), usual) in parts.grids.iter_mut().zip(usual) {
        if let Heads::Atlas(layout) = heads
            && *area != usual
        {
            *layout = atlas_layout::Layout::of(app, *area, *stack, layout.n_legend);
        }
    }
    parts
}

impl Parts {
    /// The boxes of the panel, in the order in which the focus goes through them.
    pub fn panes(&mut self) -> Vec<&mut Rect> {
        let mut panes: Vec<&mut Rect> = self.grids.iter_mut().map(|(area, _, _)| area).collect();
        let others = [
            &mut self.ranking,
            &mut self.map,
            &mut self.figures,
            &mut self.text,
        ];
        panes.extend(others.into_iter().flatten());
        panes
    }
}

/// Columns of the figures beside an atlas: on wide screens, and on others.
const SIDES: [(u16, u16); 2] = [(170, 50), (110, 40)];
/// A map of so many pixels a side is legible, so that room can go to the figures.
const LEGIBLE: usize = 6;
/// Rows of the legend of an atlas.
const LEGEND: u16 = 2;

fn of_atlas(app: Scene<'_>, summary: Rect, body: Rect) -> Parts {
    let layouts = |area: Rect| -> Vec<(Rect, atlas_layout::Layout)> {
        let all = app.grids();
        let of = |area: Rect, stack: Stack, is_last: bool| {
            let n_legend = if is_last { LEGEND } else { 0 };
            (area, atlas_layout::Layout::of(app, area, stack, n_legend))
        };
        let rows = Layout::vertical(vec![Constraint::Fill(1); all.len()]).split(area);
        let stacked: Vec<_> = all
            .iter()
            .zip(rows.iter())
            .enumerate()
            .map(|(nth, (stack, area))| of(*area, *stack, nth + 1 == all.len()))
            .collect();
        let is_legible = |layout: &atlas_layout::Layout| layout.is_whole(app);
        let are_legible = stacked.iter().all(|(_, layout)| is_legible(layout));
        // If not all grids fit, the selected one has all the room.
        if stacked.len() == 1 || (are_legible && !app.overview_view.is_of_layer) {
            stacked
        } else {
            vec![of(area, app.selection.stack, true)]
        }
    };
    let pixels = |layouts: &[(Rect, atlas_layout::Layout)]| {
        let sizes = layouts.iter().map(|(_, layout)| layout.cell.pixels);
        let all = sizes.map(|(width, height)| (width.min(height), width * height));
        all.min().unwrap_or((0, 0))
    };
    let whole = layouts(body);
    let side = SIDES.into_iter().find(|(width, _)| body.width >= *width);
    let beside = side.map(|(_, side)| {
        let [left, _] =
            Layout::horizontal([Constraint::Min(0), Constraint::Length(side)]).areas(body);
        (left, layouts(left))
    });
    let beside = beside.filter(|(_, beside)| {
        let (with, without) = (pixels(beside), pixels(&whole));
        with.0 >= LEGIBLE || 4 * with.1 >= 3 * without.1
    });
    let (left, layouts) = beside.unwrap_or((body, whole));
    // What the maps do not use goes to the parts beside and below them.
    let needed = layouts.iter().map(|(_, layout)| layout.needed());
    let (width, height) = needed.fold((0, 0), |(width, height), (of_width, of_height)| {
        (u16::max(width, of_width), height + of_height)
    });
    let spare = body.width.saturating_sub(width.max(MAP_TITLE));
    let narrow = if spare >= NARROWEST {
        Rect {
            width: body.width - spare.min(body.width / 2),
            ..body
        }
    } else {
        Rect {
            width: body.width,
            ..left
        }
    };
    let side = Rect {
        x: narrow.right(),
        width: body.width - narrow.width,
        ..body
    };
    let has_ranking = body.height >= height + SHORT_RANKING;
    let mut y = narrow.y;
    let n_grids = layouts.len();
    let grids: Vec<_> = layouts
        .into_iter()
        .enumerate()
        .map(|(nth, (area, layout))| {
            let is_last = nth + 1 == n_grids;
            let own = match (has_ranking, n_grids) {
                (true, _) => layout.needed().1,
                (false, 1) => body.height,
                (false, _) if is_last => body.bottom() - y,
                (false, _) => area.height,
            };
            let area = Rect {
                y,
                height: own,
                ..narrow
            };
            y += own;
            let n_legend = layout.n_legend;
            let layout = atlas_layout::Layout {
                inside: inside_of(area),
                n_legend,
                ..layout
            };
            (area, layout.stack, Heads::Atlas(layout))
        })
        .collect();
    let below = has_ranking.then(|| Rect {
        y,
        height: body.bottom() - y,
        ..narrow
    });
    let (ranking, below) = with_text(app, below);
    if side.width < NARROWEST {
        return Parts {
            summary,
            grids,
            ranking,
            map: None,
            figures: None,
            text: below,
        };
    }
    // The map beside is worth its room where it is larger than in the atlas.
    let n_figures = (figures(app).count() as u16).div_ceil(n_columns(side.width - 2)) + 2;
    let [map, figures, text] = Layout::vertical([
        Constraint::Max(side.width / 2 + 3),
        Constraint::Length(n_figures.min(side.height / 2)),
        Constraint::Fill(1),
    ])
    .areas(side);
    let has_text = text.height >= 4 && below.is_none();
    Parts {
        summary,
        grids,
        ranking,
        map: Some(map),
        figures: Some(Rect {
            height: side.bottom() - figures.y - if has_text { text.height } else { 0 },
            ..figures
        }),
        text: below.or(has_text.then_some(text)),
    }
}

/// Narrowest part beside an atlas, and the columns that the title of an atlas needs.
const NARROWEST: u16 = 34;
const MAP_TITLE: u16 = 44;

fn inside_of(area: Rect) -> Rect {
    area.inner(Margin {
        horizontal: 1,
        vertical: 1,
    })
}

fn of_numbers(app: Scene<'_>, summary: Rect, area: Rect) -> Parts {
    let left_share = if area.width < 100 { 55 } else { 52 };
    // Many heads get a column each, as long as the figures beside them stay legible.
    let n_heads = app
        .grids()
        .into_iter()
        .map(|grid| app.n_heads_of(grid))
        .max();
    let usual = area.width * left_share / 100;
    let needed = head_grid::least_width(n_heads.unwrap_or(0));
    let left = usual.max(needed.min(area.width.saturating_sub(NARROWEST)));
    let [left, side] =
        Layout::horizontal([Constraint::Length(left), Constraint::Min(0)]).areas(area);
    let n_figures = if area.height >= 42 { 12 } else { 9 };
    let [map, figures] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(n_figures)]).areas(side);
    let grids = app.grids();
    let heights = |pitch: usize| -> Vec<usize> {
        let n_layers = |grid: &Stack| app.n_layers_of(*grid).max(1);
        grids
            .iter()
            .map(|grid| head_grid::height(n_layers(grid), pitch))
            .collect()
    };
    // Use the tallest cells that leave room for the ranking, else the lowest.
    let room = left.height as usize;
    let fits = |pitch: usize| heights(pitch).iter().sum::<usize>() + RANKING <= room;
    let pitch = [4, 3, 2]
        .into_iter()
        .find(|pitch| fits(*pitch))
        .unwrap_or(1);
    let mut rows: Vec<Constraint> = if fits(pitch) || grids.len() == 1 {
        let lengths = heights(pitch).into_iter();
        lengths.map(|n| Constraint::Length(n as u16)).collect()
    } else {
        vec![Constraint::Fill(1); grids.len()]
    };
    if fits(pitch) {
        rows.push(Constraint::Min(0));
    } else if grids.len() == 1 {
        rows = vec![Constraint::Min(0)];
    }
    let areas = Layout::vertical(rows).split(left);
    let (ranking, text) = with_text(app, fits(pitch).then(|| areas[grids.len()]));
    let grids = grids.into_iter().zip(areas.iter().copied());
    Parts {
        summary,
        ranking,
        grids: grids
            .map(|(grid, area)| (area, grid, Heads::Numbers(pitch)))
            .collect(),
        map: Some(map),
        figures: Some(figures),
        text,
    }
}

/// Divides the room below the heads into a ranking and the text, which has what a ranking of few heads leaves.
fn with_text(app: Scene<'_>, room: Option<Rect>) -> (Option<Rect>, Option<Rect>) {
    let Some(room) = room else {
        return (None, None);
    };
    let layers = app.layers_of(app.selection.stack).iter();
    let n_heads: usize = layers.map(|layer| layer.heads.len()).sum();
    // Until a layer has arrived, it is not known how many rows the ranking has.
    let needed = (n_heads as u16).saturating_add(2).max(SHORT_RANKING);
    if n_heads == 0 || room.height < needed + SHORT_RANKING {
        return (Some(room), None);
    }
    let [ranking, text] =
        Layout::vertical([Constraint::Length(needed), Constraint::Min(0)]).areas(room);
    (Some(ranking), Some(text))
}
