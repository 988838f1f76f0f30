//! Layers × heads by one statistic; next to them the selected head's pooled map and key figures.

use attnscope_checks::stats::{HeadReport, LayerReport, Stat};
use attnscope_compute::attention::Pooled;
use attnscope_run::Pyramid;
use attnscope_spec::{Place, Stack};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::head::covered;
use super::statistic_figure::statistic_figure;
use super::{head_grid, ranking};
use crate::figure::{cut, figure, fit};
use crate::state::app::App;
use crate::state::runs::Shows;
use crate::state::scene::Scene;
use crate::widgets::frame::{framed, selection_title, waiting};
use crate::widgets::heatmap::{HeatMap, Ratio, Scale, Window};
use crate::widgets::legend::legend;
use crate::widgets::whole_map::{WholeMap, draw_whole};

/// Minimum rows of the ranking.
const RANKING: usize = 8;

/// Layout of the panel.
struct Parts {
    grids: Vec<(Stack, Rect)>,
    /// Rows from one layer of a grid to the next.
    pitch: usize,
    /// If the grids leave room.
    ranking: Option<Rect>,
    map: Rect,
    figures: Rect,
}

fn parts(app: Scene<'_>, area: Rect) -> Parts {
    let left_share = if area.width < 100 { 55 } else { 52 };
    let [left, side] =
        Layout::horizontal([Constraint::Percentage(left_share), Constraint::Min(0)]).areas(area);
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
    let mut parts = Parts {
        ranking: fits(pitch).then(|| areas[grids.len()]),
        grids: grids.into_iter().zip(areas.iter().copied()).collect(),
        pitch,
        map,
        figures,
    };
    let mut panes: Vec<&mut Rect> = parts.grids.iter_mut().map(|(_, area)| area).collect();
    panes.extend(&mut parts.ranking);
    panes.extend([&mut parts.map, &mut parts.figures]);
    app.arrange(area, &mut panes);
    parts
}

/// The boxes of the panel.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    let parts = parts(app, area);
    let mut panes: Vec<Rect> = parts.grids.iter().map(|(_, area)| *area).collect();
    panes.extend(parts.ranking);
    panes.extend([parts.map, parts.figures]);
    panes
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let parts = parts(app, area);
    for (grid, area) in parts.grids.iter().filter(|(_, area)| !area.is_empty()) {
        head_grid::draw(frame, *area, app, parts.pitch, *grid);
    }
    if let Some(area) = parts.ranking.filter(|area| !area.is_empty()) {
        ranking::draw(frame, area, app);
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
    match app
        .layer()
        .and_then(|layer| Some((layer, layer.heads.get(app.selection.head_idx)?)))
    {
        Some((layer, head)) => {
            match change {
                _ if parts.map.is_empty() => {}
                Some(change) => draw_change(frame, parts.map, app, change, &title),
                None => draw_map(frame, parts.map, app, &head.summary.pooled, &title),
            }
            if !parts.figures.is_empty() {
                draw_figures(frame, parts.figures, app, (layer, head));
            }
        }
        None => {
            let inside = framed(frame, parts.map, app, title);
            waiting(frame, inside, app);
            framed(frame, parts.figures, app, " key figures ");
        }
    }
}

fn draw_map(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, pooled: &Pooled, title: &str) {
    let inside = framed(frame, area, app, title.to_owned());
    let [map, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(inside);
    let ratio = Ratio::to_fit(
        pooled.n_rows,
        pooled.n_cols,
        2 * map.height as usize,
        map.width as usize,
    );
    let window = Window::whole(ratio);
    // At most 64 × 64 cells: building the pyramid for each frame costs nothing.
    let pyramid = Pyramid::new(pooled.clone());
    let width = ratio.pixels_for(pooled.n_cols) as u16;
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
    frame.render_widget(
        HeatMap {
            theme: &app.theme,
            values: &pyramid,
            window,
            scale,
            crosshair: None,
        },
        map,
    );
    let high = figure(f64::from(scale.high), 0);
    let per_cell = [pooled.queries_per_cell, pooled.keys_per_cell];
    let [queries, keys] = per_cell.map(|pooling| covered(ratio, pooling));
    let per_cell = match (queries.as_str(), keys.as_str()) {
        ("1", "1") => "query ↓ key →".to_owned(),
        (queries, keys) => format!("query ↓ key → · cell = max of {queries} × {keys}"),
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
    // Use two columns if both labels fit.
    let n_columns = if inside.width >= 48 { 2 } else { 1 };
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
    grids.find_map(|(grid, area)| head_grid::place_at(app, *area, parts.pitch, *grid, at))
}

/// Selects the head under the pointer.
pub fn click(app: &mut App, area: Rect, at: (u16, u16)) {
    let parts = parts(app.scene(), area);
    for (grid, area) in &parts.grids {
        head_grid::click(app, *area, parts.pitch, *grid, at);
    }
    if let Some(area) = parts.ranking {
        ranking::click(app, area, at);
    }
}
