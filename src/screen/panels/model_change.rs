//! Knobs and tensors that differ between A and B, the likeliest causes first.

use attnscope_compare::{Comparison, KnobKind, TensorDifference};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};
use unicode_width::UnicodeWidthStr;

use crate::figure::{figure, fit, short_name};
use crate::state::filter::List;
use crate::state::run::Run;
use crate::state::runs::Comparing;
use crate::state::scene::Scene;
use crate::widgets::frame::framed;

/// Columns of a number.
const FIGURE: usize = 10;

/// Draws both lists, starting at the panel's scroll position.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, both: [&Run; 2]) {
    let are_models = both.iter().all(|run| run.subject.model().is_some());
    let Some(comparison) = app.comparison().filter(|_| are_models) else {
        return draw_waiting(frame, area, app, both);
    };
    // Without a knob to list, tensors have the room.
    let share = if comparison.knobs.is_empty() { 32 } else { 44 };
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(share), Constraint::Min(0)]).areas(area);
    draw_knobs(frame, left, app, comparison);
    draw_tensors(frame, right, app, comparison);
}

/// The tensors of the list, by name, in its order.
pub fn names(comparison: &Comparison) -> Vec<String> {
    let weights = &comparison.weights;
    let differ = weights.differ.iter().map(|tensor| tensor.name.clone());
    let only_a = weights
        .only_a
        .iter()
        .map(|name| format!("{name} only in A"));
    let only_b = weights
        .only_b
        .iter()
        .map(|name| format!("{name} only in B"));
    differ.chain(only_a).chain(only_b).collect()
}

fn draw_waiting(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, both: [&Run; 2]) {
    let inside = framed(frame, area, app, " knobs and tensors that differ ");
    let are_models = both.iter().all(|run| run.subject.model().is_some());
    let ended = app.state().runs.b.as_ref().map(|second| &second.comparing);
    let text = match ended {
        _ if !are_models => {
            " A trace has no knobs and no weights: v shows A alone, or what the trace holds."
                .to_owned()
        }
        Some(Comparing::Ended(reason)) => format!(" Not compared: {reason}. Press e to run again."),
        _ => " comparing knobs and tensors … c stops".to_owned(),
    };
    let text = Paragraph::new(text)
        .style(app.theme.dim())
        .wrap(Wrap { trim: false });
    frame.render_widget(text, inside);
}

fn draw_knobs(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, comparison: &Comparison) {
    let theme = &app.theme;
    let title = format!(" knobs that differ · {} ", comparison.knobs.len());
    let inside = framed(frame, area, app, title);
    if comparison.knobs.is_empty() {
        let text = " every knob is the same";
        return frame.render_widget(Line::styled(text, theme.good()), inside);
    }
    let width = (inside.width as usize).saturating_sub(2);
    // Names take what they need, so that values are whole and apart.
    let names = comparison
        .knobs
        .iter()
        .map(|knob| knob.knob.chars().count());
    let name = names.max().unwrap_or(0).max(4) + 2;
    let name = name.clamp(width / 4, width * 2 / 5);
    let value = (width - name) / 2;
    let header = format!(
        " {}{}{}",
        fit("knob", name),
        fit("A", value),
        fit("B", value)
    );
    let mut lines = vec![Line::styled(header, theme.dim())];
    for knob in comparison.knobs.iter().skip(app.model_view.knob_scroll) {
        let style = if knob.kind == KnobKind::Label {
            theme.dim()
        } else {
            theme.notable()
        };
        lines.push(Line::from(vec![
            Span::raw(format!(" {}", fit(&knob.knob, name))),
            Span::raw(fit(&knob.a.to_string(), value.saturating_sub(1)) + " "),
            Span::styled(fit(&knob.b.to_string(), value), style),
        ]));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

fn draw_tensors(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, comparison: &Comparison) {
    let theme = &app.theme;
    let weights = &comparison.weights;
    let n = [&weights.only_a, &weights.only_b].map(Vec::len);
    let title = format!(
        " tensors · {} differ · {} only in A · {} only in B {}",
        weights.differ.len(),
        n[0],
        n[1],
        app.filter_note(List::Tensors)
    );
    let inside = framed(frame, area, app, title);
    if weights.differ.is_empty() && n == [0, 0] {
        let text = " every tensor is the same";
        return frame.render_widget(Line::styled(text, theme.good()), inside);
    }
    let width = inside.width as usize;
    let words = weights
        .differ
        .iter()
        .map(|tensor| relation_of(tensor).width());
    let relation = words.max().unwrap_or(0).clamp(10, (width / 4).max(10));
    let name = width.saturating_sub(2 * FIGURE + relation + 3);
    let header = format!(
        " {}{:>FIGURE$}{:>FIGURE$} {}",
        fit("tensor", name),
        "relative",
        "largest",
        fit("what it is", relation)
    );
    let row = |tensor: &TensorDifference| {
        let what = relation_of(tensor);
        let style = if tensor.counts {
            theme.notable()
        } else {
            theme.dim()
        };
        let numbers = figure(tensor.relative, FIGURE) + &figure(tensor.max_abs, FIGURE);
        Line::from(vec![
            Span::raw(format!(" {}", fit(&short_name(&tensor.name, name), name))),
            Span::styled(numbers, style),
            Span::styled(format!(" {}", fit(&what, relation)), theme.accent()),
        ])
    };
    let of_one = |(name, side): (&String, &str)| {
        Line::styled(format!(" {name} only in {side}"), theme.notable())
    };
    let only_a = weights.only_a.iter().map(|name| (name, "A"));
    let only_b = weights.only_b.iter().map(|name| (name, "B"));
    let rows = weights.differ.iter().map(row);
    let rows = rows.chain(only_a.chain(only_b).map(of_one));
    let rows = rows.enumerate().skip(app.model_view.tensor_idx);
    let shown = rows.filter(|(idx, _)| app.keeps(List::Tensors, *idx));
    let shown = shown.map(|(_, line)| line);
    let header = Line::styled(header, theme.dim());
    let lines: Vec<Line<'static>> = std::iter::once(header).chain(shown).collect();
    frame.render_widget(Paragraph::new(lines), inside);
}

/// How a tensor of B relates to A's, or in which heads it differs: `heads 0–3, 6`.
fn relation_of(tensor: &TensorDifference) -> String {
    if let Some(relation) = tensor.relation {
        return relation.label().to_owned();
    }
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for head_idx in &tensor.heads {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *head_idx => *last = *head_idx,
            _ => runs.push((*head_idx, *head_idx)),
        }
    }
    let text = |(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    };
    let heads: Vec<String> = runs.iter().map(text).collect();
    match heads.as_slice() {
        [] => String::new(),
        heads => format!("heads {}", heads.join(", ")),
    }
}
