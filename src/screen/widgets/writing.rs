//! The overlay for text generation: the text, the selected token with its alternatives, and one head's attention for it.

use attnscope_checkpoint::counted::counted;
use attnscope_spec::Stack;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use super::frame::{clear_box, framed};
use crate::figure::{bar, figure, fit, token_label};
use crate::panels::atlas_written;
use crate::state::scene::Scene;
use crate::state::writing_view::{WritingState, WritingView};

/// Rows from which all heads are shown below the boxes of one, and rows of these boxes then.
const WITH_HEADS: u16 = 18;
const FEWEST: u16 = 7;
const MOST: u16 = 13;

/// Columns of a token's name, before its bar.
const NAME: usize = 14;

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, view: &WritingView) {
    let n = view.tokens().len();
    let state = match &view.state {
        WritingState::Reading => "reading the text · c stops".to_owned(),
        WritingState::Going => format!("{n} of at most {} tokens · c stops", view.n_most),
        WritingState::Ended => format!("{} · G writes on", counted(n, "token")),
        WritingState::BrokeOff(why) => format!("{}, {why} · G writes on", counted(n, "token")),
    };
    let inside = clear_box(frame, area, app, format!(" the model writes · {state} "));
    // The text takes the lines it needs, up to half of the room; the rest is for the boxes below.
    let n_sides = view.sides.len().max(1);
    let width = inside.width / n_sides as u16;
    let n_lines = (0..n_sides).map(|side| lines_of(app, view, side, width).0.len());
    // Two texts get frames with their names.
    let n_lines = n_lines.max().unwrap_or(0) as u16 + if n_sides > 1 { 2 } else { 1 };
    let [text, below, hints] = Layout::vertical([
        Constraint::Length(n_lines.min(inside.height / 2).max(3)),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(inside);
    let parts = Layout::horizontal(vec![Constraint::Fill(1); n_sides]).split(text);
    for (side, part) in parts.iter().enumerate() {
        let part = match view.sides.get(side).filter(|_| n_sides > 1) {
            Some(written) => {
                let mark = if side == view.side { "▸ " } else { "" };
                framed(frame, *part, app, format!(" {mark}{} ", written.model))
            }
            None => *part,
        };
        draw_text(frame, part, app, view, side);
    }
    let has_room = below.height >= WITH_HEADS;
    let (boxes, heads) = match (has_room, view.shows_heads) {
        (true, _) => {
            let n_rows = (below.height * 2 / 5).clamp(FEWEST, MOST);
            let parts = [Constraint::Length(n_rows), Constraint::Min(0)];
            let [boxes, heads] = Layout::vertical(parts).areas(below);
            (Some(boxes), Some(heads))
        }
        (false, true) => (None, Some(below)),
        (false, false) => (Some(below), None),
    };
    if let Some(boxes) = boxes {
        let parts = [Constraint::Percentage(45), Constraint::Min(20)];
        let [left, right] = Layout::horizontal(parts).areas(boxes);
        draw_likeliest(frame, left, app, view);
        draw_row(frame, right, app, view);
    }
    if let Some(heads) = heads {
        atlas_written::draw(frame, heads, app, view);
    }
    let heads = match (has_room, view.shows_heads) {
        (true, _) => "",
        (false, true) => "   a one head",
        (false, false) => "   a all heads",
    };
    let of = |[steps, other, leaves]: [&str; 3]| {
        let other = if n_sides > 1 { other } else { "" };
        format!(" ←→ {steps}   [ ] head   {{ }} layer{heads}{other}   Enter {leaves}")
    };
    let whole = of([
        "step back and forward",
        "   v the other text",
        "to the panels",
    ]);
    let words = if whole.width() <= hints.width as usize {
        whole
    } else {
        of(["token", "   v other text", "panels"])
    };
    let line = Line::styled(fit(&words, hints.width as usize), app.theme.dim());
    frame.render_widget(line, hints);
}

/// The given and generated text in lines, and the line of the selected token.
fn lines_of<'a>(
    app: Scene<'a>,
    view: &'a WritingView,
    side: usize,
    width: u16,
) -> (Vec<Line<'a>>, usize) {
    let theme = &app.theme;
    let width = (width as usize).saturating_sub(2).max(1);
    let shown = view.shown().filter(|_| side == view.side);
    let shown = shown.map(|(idx, _)| idx);
    let tokens = view.sides.get(side).map_or(&[][..], |side| &side.tokens);
    let mut lines: Vec<Vec<Span<'_>>> = vec![vec![Span::raw(" ")]];
    let (mut column, mut line_of_shown) = (0, 0);
    let given = view.given.iter().map(|label| (label, theme.dim()));
    let written = tokens.iter().enumerate().map(|(idx, token)| {
        let style = if Some(idx) == shown {
            theme.selected()
        } else {
            let share = token.probability as f32;
            let on = Style::new().bg(theme.heat(share)).fg(theme.on_heat(share));
            if theme.has_colour() {
                on
            } else {
                theme.strong()
            }
        };
        (&token.label, style)
    });
    for (nth, (label, style)) in given.chain(written).enumerate() {
        let text = token_label(label);
        let n = text.width();
        if column > 0 && column + n > width {
            lines.push(vec![Span::raw(" ")]);
            column = 0;
        }
        if shown.is_some_and(|idx| view.given.len() + idx == nth) {
            line_of_shown = lines.len() - 1;
        }
        if let Some(line) = lines.last_mut() {
            line.extend([Span::styled(text, style), Span::raw(" ")]);
        }
        column += n + 1;
    }
    (lines.into_iter().map(Line::from).collect(), line_of_shown)
}

/// Draws the end of the text, or the lines around the selected token.
fn draw_text(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, view: &WritingView, side: usize) {
    let (lines, line_of_shown) = lines_of(app, view, side, area.width);
    let n_shown = area.height as usize;
    let last = lines.len().saturating_sub(n_shown);
    let first = match view.looked_at {
        Some(_) if side == view.side => line_of_shown.saturating_sub(n_shown / 2).min(last),
        _ => last,
    };
    let lines: Vec<Line<'_>> = lines.into_iter().skip(first).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

/// Draws the selected token, its probability, and the likeliest tokens.
fn draw_likeliest(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, view: &WritingView) {
    let Some((idx, token)) = view.shown() else {
        framed(frame, area, app, " predicted ");
        return;
    };
    let name = token_label(&token.label);
    let title = format!(" token {} “{name}” · {:.3} ", idx + 1, token.probability);
    let inside = framed(frame, area, app, title);
    let lines = token.likeliest.iter().map(|(label, p)| {
        let style = if *label == token.label {
            app.theme.strong()
        } else {
            Style::new()
        };
        barred(app, inside.width as usize, (&token_label(label), style), *p)
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
}

/// Draws the attention of the selected head when the token was predicted.
fn draw_row(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, view: &WritingView) {
    let at = &app.selection;
    let title = format!(" {} looked at ", at.head());
    let inside = framed(frame, area, app, title);
    let Some((_, token)) = view.shown() else {
        return;
    };
    let Some(row) = token.rows.get(&(at.stack, at.layer_idx, at.head_idx)) else {
        let words = if token.rows.is_empty() {
            " rows of earlier tokens fill the memory: the run that follows shows this one"
        } else {
            " this head has no row for what is written"
        };
        frame.render_widget(Line::styled(words, app.theme.dim()), inside);
        return;
    };
    let mut keys: Vec<usize> = (0..row.len()).filter(|key| row[*key] > 0.0).collect();
    keys.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
    let is_cross = at.stack == Stack::Cross;
    let lines = keys.into_iter().take(inside.height as usize).map(|key| {
        let label = token_label(view.label(is_cross, key));
        let name = format!("{key:>4} {label}");
        let share = f64::from(row[key]);
        barred(app, inside.width as usize, (&name, Style::new()), share)
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
}

/// A line with a name, a bar and a number.
fn barred(app: Scene<'_>, width: usize, (name, style): (&str, Style), share: f64) -> Line<'static> {
    let n_bar = width.saturating_sub(NAME + 10);
    let colour = Style::new().fg(app.theme.heat((share as f32).max(0.35)));
    Line::from(vec![
        Span::styled(format!(" {} ", fit(name, NAME)), style),
        Span::styled(fit(&bar(share as f32, n_bar), n_bar), colour),
        Span::raw(figure(share, 7)),
    ])
}
