//! Every head as a map or as a number; next to them the selected head's pooled map and key figures.

use attnscope_checkpoint::counted::counted;
use attnscope_checks::stats::{HeadReport, LayerReport, Stat};
use attnscope_compute::attention::Pooled;
use attnscope_run::Pyramid;
use attnscope_spec::{Place, Stack};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::overview_layout::{Heads, parts};
use super::statistic_figure::statistic_figure;
use super::summary_line::summary_line;
use super::{atlas, atlas_layout, head, head_grid, hidden_cells, ranking};
use crate::figure::{cut, figure, fit, fitting, wrapped};
use crate::state::app::App;
use crate::state::runs::Shows;
use crate::state::scene::Scene;
use crate::state::views::Axis;
use crate::widgets::frame::{framed, selection_title, waiting};
use crate::widgets::heatmap::{HeatMap, Scale};
use crate::widgets::hidden::{Hidden, Unseen};
use crate::widgets::legend::legend;
use crate::widgets::whole_map::{WholeMap, draw_whole};
use crate::widgets::window::Window;

/// The boxes of the panel.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    let mut parts = parts(app, area);
    parts.panes().into_iter().map(|pane| *pane).collect()
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let parts = parts(app, area);
    frame.render_widget(summary_line(app, parts.summary.width), parts.summary);
    // A pane that fills the panel leaves the others nothing.
    let shown = |area: Option<Rect>| area.filter(|area| !area.is_empty());
    for (area, grid, heads) in parts.grids.iter().filter(|(area, _, _)| !area.is_empty()) {
        match heads {
            Heads::Atlas(layout) => atlas::draw(frame, *area, app, layout),
            Heads::Numbers(pitch) => head_grid::draw(frame, *area, app, *pitch, *grid),
        }
    }
    if let Some(area) = shown(parts.ranking) {
        ranking::draw(frame, area, app);
    }
    if let Some(area) = shown(parts.text) {
        draw_text(frame, area, app);
    }
    // Until both heads are there, the map shows one side, which the title names.
    let change = app.shown_difference().filter(|_| app.shows_difference());
    let side = app.runs.b.as_ref().filter(|_| app.shows_difference());
    let side = side.map_or(String::new(), |second| {
        format!(" · {}", second.way.label(Shows::B))
    });
    let what = app.head_map().name();
    let title = match change {
        Some(_) => selection_title(app, &format!(" · change of {what}")),
        None => selection_title(app, &format!(" · pattern{side}")),
    };
    let head = app
        .layer()
        .and_then(|layer| Some((layer, layer.heads.get(app.selection.head_idx)?)));
    match (head, shown(parts.map)) {
        (_, None) => {}
        (Some((layer, head)), Some(area)) => match change {
            Some(change) => draw_change(frame, area, app, change, &title),
            None => {
                let unseen = Unseen::of(&head.summary, layer.spec.mask);
                let map = unseen.marked(&head.summary.pooled);
                draw_map(frame, area, app, &map, &title);
            }
        },
        (None, Some(area)) => {
            let inside = framed(frame, area, app, title);
            waiting(frame, inside, app);
        }
    }
    match (head, shown(parts.figures)) {
        (_, None) => {}
        (Some(head), Some(area)) => draw_figures(frame, area, app, head),
        (None, Some(area)) => {
            framed(frame, area, app, " key figures ");
        }
    }
}

/// Draws the beginning of the text that ran.
fn draw_text(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let n = app.n_along(Axis::Query);
    let inside = framed(
        frame,
        area,
        app,
        format!(" text · {} ", counted(n, "token")),
    );
    let mut words = String::new();
    let room = usize::from(inside.width) * usize::from(inside.height);
    for idx in 0..n {
        if words.chars().count() > room {
            break;
        }
        words.push_str(&app.token(Axis::Query, idx));
        words.push(' ');
    }
    let width = usize::from(inside.width).saturating_sub(2).max(1);
    let lines = wrapped(&words, width).into_iter();
    let lines = lines.map(|line| Line::raw(format!(" {}", cut(&line, width))));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
}

fn draw_map(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, pooled: &Pooled, title: &str) {
    let inside = framed(frame, area, app, title.to_owned());
    let [map, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(inside);
    let pixels = (2 * map.height as usize, map.width as usize);
    let window = Window::to_fit((pooled.n_rows, pooled.n_cols), pixels);
    // At most 64 × 64 cells: building the pyramid for each frame costs nothing.
    let pyramid = Pyramid::new(pooled.clone());
    let width = window.keys.ratio.pixels_for(pooled.n_cols) as u16;
    let map = Rect {
        x: map.x + map.width.saturating_sub(width) / 2,
        ..map
    };
    let largest = pooled
        .cells
        .iter()
        .copied()
        .filter(|v| v.is_finite())
        .fold(0.0f32, f32::max);
    let scale = Scale {
        low: 0.0,
        high: if largest > 0.0 { largest } else { 1.0 },
        is_log: false,
    };
    let map = map.intersection(inside);
    let per_cell = [pooled.queries_per_cell, pooled.keys_per_cell];
    frame.render_widget(
        HeatMap {
            theme: &app.theme,
            values: &pyramid,
            hidden: Hidden::Nothing,
            window,
            scale,
            crosshair: None,
        },
        map,
    );
    let high = figure(f64::from(scale.high), 0);
    let per_cell = match head::per_cell(window, per_cell) {
        None => "query ↓ key →".to_owned(),
        Some(cells) => {
            let cells = format!("cell = max of {cells}");
            // The scale takes 18 columns at least.
            let room = usize::from(below.width).saturating_sub(18);
            fitting(&["query ↓ key →", &cells], room)
        }
    };
    // Use fewer colours if the text would not fit next to them.
    let free = (below.width as usize).saturating_sub(6 + high.len() + per_cell.chars().count());
    let mut line = legend(&app.theme, " 0", &high, free.clamp(6, 12));
    let room = (below.width as usize).saturating_sub(line.width());
    let per_cell = cut(&format!("  {per_cell}"), room);
    line.push_span(Span::styled(per_cell, app.theme.dim()));
    frame.render_widget(line, below);
}

/// Draws the selected head's map in B minus the one in A, as the Compare panel does.
fn draw_change(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, change: &Pyramid, title: &str) {
    let inside = framed(frame, area, app, title.to_owned());
    let theme = app.theme.diverging();
    let cells = change.finest().cells.iter().copied();
    let most = cells
        .filter(|v| v.is_finite())
        .fold(0.0f32, |most, v| most.max(v.abs()));
    let high = if most > 0.0 { most } else { 1.0 };
    let whole = WholeMap {
        theme: &theme,
        values: change,
        hidden: hidden_cells::of_change(app, change),
        scale: Scale {
            low: -high,
            high,
            is_log: false,
        },
        crosshair: None,
        margins: None,
    };
    draw_whole(frame, inside, &whole);
}

/// Key figures of a head, the most useful first.
const FIGURES: [Stat; 20] = [
    Stat::Entropy,
    Stat::EntropyRelative,
    Stat::EffectiveKeys,
    Stat::MaxProbability,
    Stat::SaturatedRows,
    Stat::FirstKeyMass,
    Stat::PreviousMass,
    Stat::DiagonalMass,
    Stat::MaxAbsScore,
    Stat::ScoreVarRatio,
    Stat::ScoreMean,
    Stat::ScoreStd,
    Stat::ScoreMax,
    Stat::QkCosine,
    Stat::HeadOutputNorm,
    Stat::HeadOutputShare,
    Stat::QNorm,
    Stat::KNorm,
    Stat::ScoreRowNorm,
    Stat::MeanDistance,
];

/// Figures that compare a query's position with a key's.
const BY_POSITION: [Stat; 3] = [Stat::PreviousMass, Stat::DiagonalMass, Stat::MeanDistance];

/// The figures that are defined for the selected head.
pub fn figures(app: Scene<'_>) -> impl Iterator<Item = Stat> + use<> {
    // In cross-attention, positions of the two texts do not compare.
    let compares = app.selection.stack != Stack::Cross;
    let is_known = |stat: &Stat| app.knows(stat.idx());
    let figures = FIGURES.into_iter().filter(is_known);
    let figures = figures.filter(move |stat| compares || !BY_POSITION.contains(stat));
    figures.collect::<Vec<_>>().into_iter()
}

/// Columns of figures: two if both labels fit.
pub fn n_columns(width: u16) -> u16 {
    if width >= 48 { 2 } else { 1 }
}

fn draw_figures(
    frame: &mut Frame<'_>,
    area: Rect,
    app: Scene<'_>,
    (layer, head): (&LayerReport, &HeadReport),
) {
    let kind = head.kind;
    let kind = kind.map_or(String::new(), |kind| format!("· {} head ", kind.title()));
    let side = app.runs.b.as_ref().filter(|_| app.shows_difference());
    let side = side.map_or(String::new(), |second| {
        format!("· {} ", second.way.label(Shows::B))
    });
    let inside = framed(frame, area, app, format!(" key figures {kind}{side}"));
    let n_columns = usize::from(n_columns(inside.width));
    let width = inside.width as usize / n_columns;
    let one = |stat: &Stat| -> Vec<Span<'static>> {
        let name_width = width.saturating_sub(9);
        let name = fit(stat.statistic().title, name_width);
        let at = (stat.idx(), app.selection.head_idx);
        let value = statistic_figure(layer, at, head.stats.of(*stat), 7);
        vec![
            Span::styled(format!(" {name}"), app.theme.dim()),
            Span::raw(format!("{value} ")),
        ]
    };
    let figures: Vec<Stat> = figures(app).collect();
    let lines: Vec<Line<'static>> = figures
        .chunks(n_columns)
        .map(|stats| Line::from(stats.iter().flat_map(one).collect::<Vec<_>>()))
        .collect();
    frame.render_widget(Paragraph::new(lines), inside);
}

/// The layer or head under the pointer.
pub fn head_at(app: Scene<'_>, area: Rect, at: (u16, u16)) -> Option<Place> {
    let parts = parts(app, area);
    let mut grids = parts.grids.iter();
    grids.find_map(|(area, grid, heads)| match heads {
        Heads::Atlas(layout) => layout.place_at(at),
        Heads::Numbers(pitch) => head_grid::place_at(app, *area, *pitch, *grid, at),
    })
}

/// Whether the pointer is over the map of the selected head.
pub fn is_selected(app: Scene<'_>, area: Rect, at: (u16, u16)) -> bool {
    let place = head_at(app, area, at).filter(|_| app.overview_view.shows_maps());
    place == Some(app.selection.head())
}

/// Number of heads side by side in the atlas of the selected grid, if the heads of a layer stand in several rows.
pub fn heads_across(app: Scene<'_>, area: Rect) -> Option<usize> {
    let parts = parts(app, area);
    parts.grids.iter().find_map(|(_, grid, heads)| match heads {
        Heads::Atlas(layout) if *grid == app.selection.stack && layout.is_wrapped => {
            layout.rows.first().map(|row| row.heads.len())
        }
        _ => None,
    })
}

/// The atlases on the screen; none if heads are shown as numbers.
pub fn layouts(app: Scene<'_>) -> Vec<atlas_layout::Layout> {
    let parts = parts(app, app.areas().body);
    let layouts = parts
        .grids
        .into_iter()
        .filter_map(|(_, _, heads)| match heads {
            Heads::Atlas(layout) => Some(layout),
            Heads::Numbers(_) => None,
        });
    layouts.collect()
}

/// The pixels of every map on the screen; none if heads are shown as numbers.
pub fn pixels(app: Scene<'_>) -> Vec<atlas::Pixel> {
    let layouts = layouts(app).into_iter();
    layouts
        .flat_map(|layout| atlas::pixels(app, &layout))
        .collect()
}

/// Selects the head under the pointer.
pub fn click(app: &mut App, area: Rect, at: (u16, u16)) {
    if let Some(place) = head_at(app.scene(), area, at) {
        app.select_grid(place.grid());
        app.selection.layer_idx = place.layer_idx.unwrap_or(0);
        app.selection.head_idx = place.head_idx.unwrap_or(app.selection.head_idx);
    }
    if let Some(area) = parts(app.scene(), area).ranking {
        ranking::click(app, area, at);
    }
}
