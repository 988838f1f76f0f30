//! Heads ordered by the chosen statistic: where to look first in a model with hundreds of heads.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use attnscope_spec::Place;

use super::head_value::{value, why_undefined};
use super::statistic_figure::UNDEFINED;
use crate::figure::{bar, colour_range, figure, fit, share};
use crate::state::app::App;
use crate::state::filter::List;
use crate::state::scene::Scene;
use crate::widgets::frame::{framed, waiting};

/// A head and its value.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ranked {
    layer_idx: usize,
    head_idx: usize,
    value: f64,
    /// Whether the value is not defined here, which is no fault.
    is_undefined: bool,
}

impl Ranked {
    fn place(self, app: Scene<'_>) -> Place {
        Place::layer(app.selection.stack, self.layer_idx).head(self.head_idx)
    }
}

/// The heads in order, whether or not a filter leaves them out.
pub fn places(app: Scene<'_>) -> Vec<Place> {
    let heads = ordered(app).into_iter();
    heads.map(|head| head.place(app)).collect()
}

/// The heads in order that the filter shows.
fn ranked(app: Scene<'_>) -> Vec<Ranked> {
    let mut heads = ordered(app);
    heads.retain(|head| !app.leaves_out(head.place(app)));
    heads
}

/// All heads of the shown type that have run: NaN first, then by decreasing value, then those without a defined value.
fn ordered(app: Scene<'_>) -> Vec<Ranked> {
    let layers = app.layers_of(app.selection.stack);
    let heads = layers.iter().flat_map(|layer| {
        layer
            .heads
            .iter()
            .enumerate()
            .filter(|(_, head)| app.is_of_shown_type(head))
            .map(|(head_idx, _)| {
                let (grid, layer_idx) = (app.selection.stack, layer.layer_idx);
                let value = value(app, grid, layer_idx, Some(head_idx));
                let why = || why_undefined(app, grid, layer_idx, Some(head_idx));
                Ranked {
                    layer_idx,
                    head_idx,
                    value,
                    is_undefined: value.is_nan() && why().is_some(),
                }
            })
    });
    let mut heads: Vec<Ranked> = heads.collect();
    // Order changes by magnitude.
    let order = |head: &Ranked| {
        let value = nan_first(head.value);
        if app.grid_differs() {
            value.abs()
        } else {
            value
        }
    };
    heads.sort_by(|a, b| {
        let last = a.is_undefined.cmp(&b.is_undefined);
        last.then(order(b).total_cmp(&order(a)))
    });
    heads
}

/// Gives every NaN the same sign, so that `total_cmp` puts all of them above numbers.
fn nan_first(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

/// Entries of the two columns: all in order, or the top and the bottom ones.
fn columns(mut all: Vec<Ranked>, n_rows: usize) -> [Vec<Ranked>; 2] {
    if all.len() <= n_rows {
        return [all, Vec::new()];
    }
    if all.len() <= 2 * n_rows {
        let right = all.split_off(all.len().div_ceil(2));
        return [all, right];
    }
    let defined = all.iter().filter(|head| !head.is_undefined);
    let lowest = defined.rev().take(n_rows).copied().collect();
    all.truncate(n_rows);
    [all, lowest]
}

fn inside(area: Rect) -> Rect {
    ratatui::widgets::Block::bordered().inner(area)
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let theme = &app.theme;
    let statistic = app.statistic();
    if !statistic.is_per_head() {
        let inside = framed(frame, area, app, " heads in order ");
        let text = " this statistic is the layer's: it has no value per head";
        frame.render_widget(Line::styled(text, theme.dim()), inside);
        return;
    }
    let place = inside(area);
    let all = ranked(app);
    let columns = columns(all.clone(), place.height as usize);
    let shows_all = columns[0].len() + columns[1].len() == all.len();
    let what = statistic.title;
    let title = match (app.grid_differs(), shows_all) {
        (true, true) => format!(" heads by change of {what}, largest first "),
        (true, false) => format!(" change of {what} · largest left, smallest right "),
        (false, true) => format!(" heads by {what}, highest first "),
        (false, false) => format!(" {what} · highest left, lowest right "),
    };
    framed(frame, area, app, title + &app.filter_note(List::Heads));
    if columns[0].is_empty() && app.filter_of(List::Heads).is_some() {
        let text = " no head matches";
        frame.render_widget(Line::styled(text, theme.dim()), place);
        return;
    }
    if columns[0].is_empty() && app.shown_type.is_some() && app.layer().is_some() {
        let text = " no head of this type in this stack";
        frame.render_widget(Line::styled(text, theme.dim()), place);
        return;
    }
    if columns[0].is_empty() {
        return waiting(frame, place, app);
    }
    let values = all.into_iter().map(|head| head.value);
    let range = if app.grid_differs() {
        let finite = values.filter(|value| value.is_finite());
        let most = finite.fold(0.0, |most: f64, value| most.max(value.abs()));
        (0.0, if most > 0.0 { most } else { 1.0 })
    } else {
        colour_range(statistic, values)
    };
    let size = |value: f64| {
        if app.grid_differs() {
            value.abs()
        } else {
            value
        }
    };
    let n_columns = if columns[1].is_empty() { 1 } else { 2 };
    let width = place.width as usize / n_columns;
    let bar_width = width.saturating_sub(9 + 9);
    let entry = |head: Option<&Ranked>| -> Vec<Span<'static>> {
        let Some(head) = head else {
            return vec![Span::raw(" ".repeat(width))];
        };
        let is_selected =
            (head.layer_idx, head.head_idx) == (app.selection.layer_idx, app.selection.head_idx);
        let style = if is_selected {
            theme.selected()
        } else {
            Style::new()
        };
        let name = format!("L{}H{}", head.layer_idx, head.head_idx);
        let mark = if app.marks.has(head.place(app)) {
            '•'
        } else {
            ' '
        };
        vec![
            Span::styled(format!("{mark}{} ", fit(&name, 7)), style),
            Span::styled(
                fit(&bar(share(size(head.value), range), bar_width), bar_width),
                theme.accent(),
            ),
            if head.is_undefined {
                Span::styled(format!("{UNDEFINED:>8} "), theme.dim())
            } else {
                Span::raw(format!("{} ", figure(head.value, 8)))
            },
        ]
    };
    let n_lines = columns[0].len().max(columns[1].len());
    let lines: Vec<Line<'static>> = (0..n_lines)
        .map(|i| {
            let mut spans = entry(columns[0].get(i));
            if n_columns == 2 {
                spans.extend(entry(columns[1].get(i)));
            }
            Line::from(spans)
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), place);
}

/// Selects the head under the pointer.
pub fn click(app: &mut App, area: Rect, (column, row): (u16, u16)) {
    let place = inside(area);
    if !place.contains(Position::new(column, row)) || !app.scene().statistic().is_per_head() {
        return;
    }
    let columns = columns(ranked(app.scene()), place.height as usize);
    let is_right = !columns[1].is_empty() && (column - place.x) >= place.width / 2;
    let Some(head) = columns[usize::from(is_right)].get((row - place.y) as usize) else {
        return;
    };
    (app.selection.layer_idx, app.selection.head_idx) = (head.layer_idx, head.head_idx);
}
