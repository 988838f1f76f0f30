//! Marked heads side by side: the pooled map of each on one scale, and their figures in columns.

use attnscope_checks::stats::{HeadReport, LayerReport, Stat};
use attnscope_run::Pyramid;
use attnscope_spec::Place;
use attnscope_terminal::theme::Theme;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::overview;
use super::statistic_figure::statistic_figure;
use crate::figure::{cut, fit};
use crate::state::scene::Scene;
use crate::widgets::frame::{framed, waiting};
use crate::widgets::heatmap::Scale;
use crate::widgets::hidden::{Hidden, Unseen};
use crate::widgets::whole_map::{WholeMap, draw_whole};

/// Columns of a head at least, and of the names of figures.
const HEAD: u16 = 20;
const NAME: u16 = 24;

/// A marked head that has run.
type Marked<'a> = (Place, &'a LayerReport, &'a HeadReport);

/// The marked heads that have run, in the order of layers and heads.
pub fn heads(app: Scene<'_>) -> Vec<Marked<'_>> {
    let places = app.marks.places().into_iter();
    places
        .filter_map(|place| {
            let layer = app.layers_of(place.grid()).get(place.layer_idx?)?;
            Some((place, layer.as_ref(), layer.heads.get(place.head_idx?)?))
        })
        .collect()
}

/// Puts the sign of a marked head behind its cell.
pub fn marked(theme: &Theme, mut cell: Vec<Span<'static>>, is_marked: bool) -> Vec<Span<'static>> {
    if let Some(last) = cell.last_mut().filter(|_| is_marked) {
        *last = Span::styled("•", theme.strong());
    }
    cell
}

/// The scale that all maps share.
pub fn scale(heads: &[Marked<'_>]) -> Scale {
    let cells = heads
        .iter()
        .flat_map(|(_, _, head)| &head.summary.pooled.cells);
    let largest = cells
        .copied()
        .filter(|v| v.is_finite())
        .fold(0.0f32, f32::max);
    Scale {
        low: 0.0,
        high: if largest > 0.0 { largest } else { 1.0 },
        is_log: false,
    }
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let heads = heads(app);
    let n_all = app.marks.len();
    if heads.is_empty() {
        let inside = framed(frame, area, app, " marked heads ");
        return waiting(frame, inside, app);
    }
    let n_fit = (area.width.saturating_sub(NAME) / HEAD).max(1) as usize;
    let here = app.selected_place();
    let at = heads
        .iter()
        .position(|(place, ..)| place.is_same_head(&here));
    let first = at
        .unwrap_or(0)
        .saturating_sub(n_fit / 2)
        .min(heads.len().saturating_sub(n_fit));
    let shown = &heads[first..(first + n_fit).min(heads.len())];
    let figures: Vec<Stat> = overview::figures(app).collect();
    let n_figures = (figures.len() as u16 + 2).min(area.height / 2).max(4);
    let [maps, table] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(n_figures)]).areas(area);
    let columns = columns(maps, shown.len());
    let scale = scale(&heads);
    let part = if shown.len() < n_all {
        format!(" {}–{} of {n_all}, ←→", first + 1, first + shown.len())
    } else {
        String::new()
    };
    let note = Rect {
        width: NAME.min(maps.width),
        ..maps
    };
    draw_note(frame, note, app, &part);
    for ((place, layer, head), area) in shown.iter().zip(&columns) {
        let kind = head
            .kind
            .map_or(String::new(), |kind| format!(" · {}", kind.title()));
        let mark = if place.is_same_head(&here) { "▸" } else { "" };
        let title = format!(" {mark}{place}{kind} ");
        let inside = framed(
            frame,
            *area,
            app,
            cut(&title, area.width.saturating_sub(2) as usize),
        );
        let whole = WholeMap {
            theme: &app.theme,
            values: &Pyramid::new(
                Unseen::of(&head.summary, layer.spec.mask).marked(&head.summary.pooled),
            ),
            hidden: Hidden::Nothing,
            scale,
            crosshair: None,
            margins: None,
        };
        draw_whole(frame, inside, &whole);
    }
    draw_figures(frame, table, app, shown, &figures);
}

/// The columns of the heads, right of the names.
fn columns(area: Rect, n: usize) -> Vec<Rect> {
    let [_, right] = Layout::horizontal([Constraint::Length(NAME), Constraint::Min(0)]).areas(area);
    Layout::horizontal(vec![Constraint::Fill(1); n])
        .split(right)
        .to_vec()
}

/// Says what is shown, left of the maps.
fn draw_note(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, part: &str) {
    let theme = &app.theme;
    let what = [
        " marked heads",
        part,
        "",
        " attention weights,",
        " one scale for all",
    ];
    let lines = what
        .into_iter()
        .map(|line| Line::styled(line.to_owned(), theme.dim()));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
}

/// Draws the figures of the heads, one line each.
fn draw_figures(
    frame: &mut Frame<'_>,
    area: Rect,
    app: Scene<'_>,
    shown: &[Marked<'_>],
    figures: &[Stat],
) {
    let theme = &app.theme;
    let inside = framed(frame, area, app, " figures ");
    let name_width = (NAME as usize).saturating_sub(2);
    let columns = columns(area, shown.len());
    let width_of = |nth: usize| columns.get(nth).map_or(0, |column| column.width as usize);
    let lines = figures.iter().map(|stat| {
        let name = fit(stat.statistic().title, name_width);
        let mut spans = vec![Span::styled(format!(" {name}"), theme.dim())];
        for (nth, (place, layer, head)) in shown.iter().enumerate() {
            let at = (stat.idx(), place.head_idx.unwrap_or(0));
            let value = statistic_figure(layer, at, head.stats.of(*stat), 9);
            spans.push(Span::raw(fit(
                &format!("  {}", value.trim()),
                width_of(nth),
            )));
        }
        Line::from(spans)
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
}
