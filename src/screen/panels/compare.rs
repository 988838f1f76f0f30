//! A, B and the difference side by side: every head by one statistic or by the distance of its patterns; the selected head's
//! maps, figures, loss and predictions; and the differences in execution order.

use attnscope_checks::stats::{HeadReport, Stat};
use attnscope_run::{Ability, HeadMap, Pyramid, Subject, TopToken};
use attnscope_spec::{Place, Stack};
use attnscope_terminal::theme::Theme;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::statistic_figure::{UNDEFINED, change_of};
use super::tokens_change::both_predictions;
use super::{compare_differs, head_grid, hidden_cells, marked, overview};
use crate::figure::{cut, figure, fit, wrapped};
use crate::state::app::App;
use crate::state::keys::{Action, Need};
use crate::state::panel::Panel;
use crate::state::run::Run;
use crate::state::runs::Shows;
use crate::state::scene::Scene;
use crate::widgets::frame::{framed, selection_title, waiting};
use crate::widgets::heatmap::Scale;
use crate::widgets::hidden::Hidden;
use crate::widgets::whole_map::{WholeMap, draw_whole};

/// Number of predictions shown of each side.
const N_PREDICTED: usize = 3;

/// Rows of a grid that shows at least one layer: its border, the numbers of heads, the layer.
const LEAST_GRID: u16 = 4;

/// Layout of the panel.
struct Parts {
    grids: Vec<Rect>,
    /// Only if it fits.
    predictions: Option<Rect>,
    maps: [Rect; 3],
    figures: Rect,
    differs: Rect,
}

fn parts(app: Scene<'_>, area: Rect) -> Parts {
    let n_grids = app.grids().len();
    let is_wide = area.width >= 110;
    let n_differs = match area.height {
        44.. => 12,
        34.. => 9,
        28.. => 7,
        _ => 6,
    };
    let [above, differs] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(n_differs)]).areas(area);
    let n_below = match area.height {
        44.. => 14,
        30.. => 10,
        _ => 7,
    };
    let [above, below] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(n_below)]).areas(above);
    let columns = |area: Rect, shares: [u16; 2]| {
        Layout::horizontal(shares.map(Constraint::Percentage)).areas::<2>(area)
    };
    // Put heads left of the maps if both fit, else below them, next to the figures.
    let (grids, maps, figures, predictions) = if is_wide {
        let [grids, maps] = columns(above, [36, 64]);
        let [figures, predictions] = columns(below, [62, 38]);
        (grids, maps, figures, Some(predictions))
    } else {
        let [grids, figures] = columns(below, [44, 56]);
        (grids, above, figures, None)
    };
    // If not all grids fit, the selected one has all the room.
    let has_room = n_grids <= 1 || usize::from(grids.height) / n_grids >= usize::from(LEAST_GRID);
    let share = |stack: &Stack| {
        let is_shown = has_room || *stack == app.selection.stack;
        Constraint::Fill(u16::from(is_shown))
    };
    let mut parts = Parts {
        grids: Layout::vertical(app.grids().iter().map(share))
            .split(grids)
            .to_vec(),
        predictions,
        maps: Layout::horizontal([Constraint::Fill(1); 3]).areas(maps),
        figures,
        differs,
    };
    let mut panes: Vec<&mut Rect> = parts.grids.iter_mut().collect();
    panes.extend(&mut parts.maps);
    panes.push(&mut parts.figures);
    panes.extend(&mut parts.predictions);
    panes.push(&mut parts.differs);
    app.arrange(area, &mut panes);
    parts
}

/// The boxes of the panel; none while nothing is compared.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    if app.both_runs().is_none() || app.shows_marked() {
        return Vec::new();
    }
    let parts = parts(app, area);
    let mut panes = parts.grids;
    panes.extend(parts.maps);
    panes.push(parts.figures);
    panes.extend(parts.predictions);
    panes.push(parts.differs);
    panes
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    if app.shows_marked() {
        return marked::draw(frame, area, app);
    }
    let Some(second) = &app.runs.b else {
        return draw_nothing(frame, area, app);
    };
    let Some(both) = app.both_runs() else {
        let what = second.way.banner(Shows::B)[0].to_lowercase();
        let title = format!(" {what} {} ", second.way.words());
        let inside = framed(frame, area, app, cut(&title, area.width as usize - 2));
        let text = " it starts when the current run ends …";
        frame.render_widget(Line::styled(text, app.theme.dim()), inside);
        return;
    };
    let parts = parts(app, area);
    let grids = app.grids().into_iter().zip(&parts.grids);
    for (grid, area) in grids.filter(|(_, area)| !area.is_empty()) {
        head_grid::draw(frame, *area, app, pitch(app, *area, grid), grid);
    }
    draw_maps(frame, parts.maps, app);
    if !parts.figures.is_empty() {
        draw_figures(frame, parts.figures, app);
    }
    if let Some(area) = parts.predictions.filter(|area| !area.is_empty()) {
        draw_predictions(frame, area, app, both);
    }
    if !parts.differs.is_empty() {
        compare_differs::draw(frame, parts.differs, app);
    }
}

/// Lines per layer of a grid: cells of few layers are higher.
fn pitch(app: Scene<'_>, area: Rect, grid: Stack) -> usize {
    let n_layers = app.n_layers_of(grid);
    let fits = |pitch: &usize| head_grid::height(n_layers, *pitch) <= usize::from(area.height);
    [3, 2].into_iter().find(fits).unwrap_or(1)
}

fn draw_nothing(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let inside = framed(frame, area, app, " compare ");
    if app.subject().is_none() {
        return waiting(frame, inside, app);
    }
    let key = |action: Action| app.keys.key(action);
    let lacks = app
        .subject()
        .and_then(|subject| subject.why_not(Ability::WhatIf));
    let note = match lacks {
        Some(reason) => format!("No what-ifs here: {reason}."),
        None => format!(
            "Press {} for a what-if: another scale, softmax axis, mask, temperature or cap, QK-norm, or a dropped head; in one \
             head, one layer or everywhere. Only the layers from the change on run again.",
            key(Action::WhatIf)
        ),
    };
    let another = match app.state().lacks(Need::AnotherPrompt) {
        Some(reason) => format!("No other text either: {reason}."),
        None => format!(
            "Press {} to keep this text as A and run another one as B.",
            key(Action::EditSecond)
        ),
    };
    let what = match app.subject() {
        Some(Subject::Alignment(_)) => "alignment",
        Some(subject) if subject.model().is_none() => "recording",
        _ => "checkpoint",
    };
    let lines = [
        format!("There is no second run: this is the {what} as it is."),
        String::new(),
        note,
        String::new(),
        another,
        String::new(),
        "Start with --against to compare with another checkpoint or a trace.".to_owned(),
        String::new(),
        format!(
            "Every panel then shows A, B or the difference: {} changes between them, and {} goes back to A.",
            key(Action::NextSide),
            key(Action::ClearSecond)
        ),
    ];
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::raw).collect();
    let text = Paragraph::new(lines).wrap(Wrap { trim: false });
    let indented = inside.inner(Margin {
        horizontal: 1,
        vertical: 0,
    });
    frame.render_widget(text, indented);
}

/// The selected head in both runs.
fn both_heads(app: Scene<'_>) -> Option<[&HeadReport; 2]> {
    let both = app.both_layers(app.selection.stack, app.selection.layer_idx)?;
    let [before, after] = both.map(|layer| layer.heads.get(app.selection.head_idx));
    Some([before?, after?])
}

fn draw_maps(frame: &mut Frame<'_>, areas: [Rect; 3], app: Scene<'_>) {
    let which = app.head_map();
    let what = which.name();
    let [a, b] = app.labels();
    let titles = [
        format!(" {a} · {what} "),
        format!(" {b} · {what} "),
        format!(" {b} − {a} "),
    ];
    let mut insides: Vec<Rect> = areas
        .iter()
        .zip(titles)
        .map(|(area, title)| framed(frame, *area, app, title))
        .collect();
    // Give all maps that are shown the same width, even if their frames differ by a column.
    let shown = insides.iter().filter(|inside| !inside.is_empty());
    let width = shown.map(|inside| inside.width).min();
    for inside in insides.iter_mut().filter(|inside| !inside.is_empty()) {
        inside.width = width.unwrap_or(inside.width);
    }
    if width.is_none() {
        return;
    }
    let Some(details) = app.both_details() else {
        let text = format!(" computing{}…", selection_title(app, ""));
        frame.render_widget(Line::styled(text, app.theme.dim()), insides[0]);
        return;
    };
    let maps = details.map(|detail| detail.map(which).unwrap_or(&detail.pattern));
    let finite = |map: &Pyramid| {
        let cells = map.level(usize::MAX).cells[0];
        if cells.is_finite() { cells } else { 0.0 }
    };
    // Use one scale for both, so that they can be compared.
    let scale = if which == HeadMap::Scores {
        let ends = details.map(|detail| (detail.histogram.min, detail.histogram.max));
        Scale {
            low: ends[0].0.min(ends[1].0),
            high: ends[0].1.max(ends[1].1),
            is_log: false,
        }
    } else {
        let high = finite(maps[0]).max(finite(maps[1]));
        Scale {
            low: 0.0,
            high: if high > 0.0 { high } else { 1.0 },
            is_log: app.head_view.is_log,
        }
    };
    for (((map, detail), area), side) in (maps.into_iter().zip(details))
        .zip(&insides)
        .zip([Shows::A, Shows::B])
    {
        let at = app.crosshair_in(side);
        let hidden = hidden_cells::of_map(Scene::of(app.state(), side), detail, map);
        draw_map(frame, *area, &app.theme, (map, hidden, at), scale);
    }
    let sizes = maps.map(|map| (map.finest().n_rows, map.finest().n_cols));
    if sizes[0] != sizes[1] {
        let text = "the texts differ in length, so the maps cannot be subtracted";
        let text = Paragraph::new(text)
            .style(app.theme.dim())
            .wrap(Wrap { trim: true });
        frame.render_widget(text, insides[2]);
    }
    if let Some(map) = app.difference() {
        let most = finite(map).abs();
        let most = if most > 0.0 { most } else { 1.0 };
        let scale = Scale {
            low: -most,
            high: most,
            is_log: false,
        };
        let at = app.crosshair_in(Shows::B);
        let hidden = hidden_cells::of_change(app, map);
        draw_map(
            frame,
            insides[2],
            &app.theme.diverging(),
            (map, hidden, at),
            scale,
        );
    }
}

fn draw_map(
    frame: &mut Frame<'_>,
    area: Rect,
    theme: &Theme,
    (map, hidden, (query_idx, key_idx)): (&Pyramid, Hidden<'_>, (usize, usize)),
    scale: Scale,
) {
    let finest = map.finest();
    let at = (
        query_idx / finest.queries_per_cell,
        key_idx / finest.keys_per_cell,
    );
    let whole = WholeMap {
        theme,
        values: map,
        hidden,
        scale,
        crosshair: Some(at),
        margins: None,
    };
    draw_whole(frame, area, &whole);
}

/// Columns of a figure in A, in B and of its change, and of what stands around them.
const FIGURES: usize = 27;

/// Draws the figures of the selected head in both runs.
fn draw_figures(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let theme = &app.theme;
    let inside = ratatui::widgets::Block::bordered().inner(area);
    let layers = app.both_layers(app.selection.stack, app.selection.layer_idx);
    let (Some([before, after]), Some(layers)) = (both_heads(app), layers) else {
        framed(frame, area, app, selection_title(app, " · figures"));
        return;
    };
    let n_columns = if inside.width >= 90 { 2 } else { 1 };
    let width = inside.width as usize / n_columns;
    let name_width = width.saturating_sub(FIGURES).clamp(8, 24);
    let title = Line::from(Span::styled(
        format!(
            " {:<name_width$}{:>8}{:>8}{:>9} ",
            "",
            app.labels()[0],
            app.labels()[1],
            "change"
        )
        .repeat(n_columns),
        theme.dim(),
    ));
    let one = |stat: &Stat| -> Vec<Span<'static>> {
        let values = [before, after].map(|head| head.stats.of(*stat));
        let at = (stat.idx(), app.selection.head_idx);
        let (figures, change) = change_of(layers, at, values, (8, 9));
        let style = if matches!(change.trim(), "0" | UNDEFINED) {
            theme.dim()
        } else {
            theme.accent()
        };
        vec![
            Span::styled(
                format!(" {}", fit(stat.statistic().title, name_width)),
                theme.dim(),
            ),
            Span::raw(figures.concat()),
            Span::styled(format!("{change} "), style),
        ]
    };
    let figures: Vec<Stat> = overview::figures(app).collect();
    let rows = figures.chunks(n_columns);
    let mut lines: Vec<Line<'static>> = std::iter::once(title)
        .chain(rows.map(|ids| Line::from(ids.iter().flat_map(one).collect::<Vec<_>>())))
        .take(usize::from(inside.height).max(2))
        .collect();
    // Say once why values are missing, in place of the last lines if necessary.
    let why = |stat: &Stat| {
        let head_idx = Some(app.selection.head_idx);
        let mut layers = layers.iter();
        layers.find_map(|layer| layer.why_undefined(stat.idx(), head_idx))
    };
    let why = figures.iter().find_map(why);
    let room = (inside.width as usize).saturating_sub(2).max(1);
    let why = why.map_or_else(Vec::new, |why| wrapped(&format!("{UNDEFINED} {why}"), room));
    lines.truncate((inside.height as usize).saturating_sub(why.len()).max(2));
    let (n_shown, n) = (
        ((lines.len() - 1) * n_columns).min(figures.len()),
        figures.len(),
    );
    let title = if n_shown < n {
        let (key, scores) = (app.key_name_of(Panel::Scores), Panel::Scores.title());
        format!(" · {n_shown} of {n} figures · all: {key} {scores}")
    } else {
        " · figures".to_owned()
    };
    let mut title = selection_title(app, &title);
    if title.chars().count() + 2 > usize::from(area.width) {
        title = selection_title(app, &format!(" · {n_shown} of {n}"));
    }
    framed(frame, area, app, title);
    let why = why.into_iter();
    lines.extend(why.map(|line| Line::styled(format!(" {line}"), theme.dim())));
    frame.render_widget(Paragraph::new(lines), inside);
}

/// Draws the loss and the likeliest tokens after the selected query.
fn draw_predictions(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, both: [&Run; 2]) {
    let theme = &app.theme;
    let Some((inside, [before, after])) = both_predictions(frame, area, app, both) else {
        return;
    };
    let at = app.selection.query_idx;
    let of = |predictions: &attnscope_run::Predictions, side: Shows| {
        let top = predictions.top.get(app.crosshair_in(side).0);
        let top = top.into_iter().flatten().take(N_PREDICTED);
        top.copied().collect::<Vec<TopToken>>()
    };
    let (before, after) = (of(before, Shows::A), of(after, Shows::B));
    // Side by side if they fit, else one below the other.
    let is_wide = inside.width >= 44;
    let width = if is_wide {
        (inside.width as usize).saturating_sub(1) / 2
    } else {
        inside.width as usize
    };
    let one = |token: Option<&TopToken>| -> String {
        let text = token.map(|token| {
            let label = crate::figure::token_label(&app.predicted_label(token.id));
            let probability = figure(f64::from(token.probability), 6);
            format!(" {} {probability}", fit(&label, width.saturating_sub(9)))
        });
        fit(&text.unwrap_or_default(), width)
    };
    let [a, b] = app.labels();
    let titles = [format!(" after query {at}: {a}"), format!(" {b}")]
        .map(|title| Span::styled(fit(&title, width), theme.dim()));
    let pairs = (0..N_PREDICTED).map(|nth| [before.get(nth), after.get(nth)]);
    let style = |pair: [Option<&TopToken>; 2]| {
        let is_same = pair[0].map(|token| token.id) == pair[1].map(|token| token.id);
        if is_same { theme.dim() } else { theme.accent() }
    };
    let lines: Vec<Line<'static>> = if is_wide {
        let title = Line::from(titles.to_vec());
        let rows = pairs.map(|pair| {
            let after = Span::styled(one(pair[1]), style(pair));
            Line::from(vec![Span::raw(one(pair[0])), after])
        });
        std::iter::once(title).chain(rows).collect()
    } else {
        let [first, second] = titles.map(Line::from);
        let befores = pairs.clone().map(|pair| Line::raw(one(pair[0])));
        let afters = pairs.map(|pair| Line::styled(one(pair[1]), style(pair)));
        let below = std::iter::once(second).chain(afters);
        std::iter::once(first).chain(befores).chain(below).collect()
    };
    frame.render_widget(Paragraph::new(lines), inside);
}

/// The layer or head under the pointer.
pub fn head_at(app: Scene<'_>, area: Rect, at: (u16, u16)) -> Option<Place> {
    app.both_runs().filter(|_| !app.shows_marked())?;
    let mut grids = app.grids().into_iter().zip(parts(app, area).grids);
    grids.find_map(|(grid, area)| head_grid::place_at(app, area, pitch(app, area, grid), grid, at))
}

/// Selects the head under the pointer.
pub fn click(app: &mut App, area: Rect, at: (u16, u16)) {
    if app.scene().both_runs().is_none() || app.shows_marked() {
        return;
    }
    let parts = parts(app.scene(), area);
    for (grid, area) in app.scene().grids().into_iter().zip(parts.grids) {
        let pitch = pitch(app.scene(), area, grid);
        head_grid::click(app, area, pitch, grid, at);
    }
}
