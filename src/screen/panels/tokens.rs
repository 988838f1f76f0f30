//! The text, each token shaded by attention from the selected query or to the selected key, and the predictions.

use attnscope_checkpoint::counted::counted;
use attnscope_checks::loss_words;
use attnscope_run::{Ability, Predictions};
use attnscope_spec::Stack;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use super::tokens_shades::{Shades, axes, selected};
use super::{tokens_change, tokens_picture, tokens_shares};
use crate::figure::{cut, figure, fit, fitting, token_label};
use crate::state::app::App;
use crate::state::filter::List;
use crate::state::scene::Scene;
use crate::widgets::frame::{framed, selection_title, waiting};
use crate::widgets::legend::legend;

/// Layout of the panel.
struct Parts {
    text: Rect,
    predictions: Rect,
}

fn parts(app: Scene<'_>, area: Rect) -> Parts {
    // Without predictions, a list of the tokens takes their room, but for a picture.
    let has_predictions = shows_shares(app) || no_predictions(app).is_none();
    // The text takes the lines it needs, up to half of the panel; the rest is for predictions. A picture takes more.
    let picture = tokens_picture::picture(app);
    let n_lines = match picture {
        Some(picture) => tokens_picture::wanted_height(picture, words(area).width, area.height),
        None => wrapped(app, words(area).width as usize).len() as u16,
    };
    let n_least = if has_predictions && picture.is_some() {
        (area.height / 4).max(5).min(area.height / 2)
    } else if has_predictions {
        area.height / 2
    } else {
        area.height.min(3)
    };
    let n_text = (n_lines + 4).max(7).min(area.height - n_least);
    let n_text = if has_predictions {
        n_text
    } else {
        area.height - n_least
    };
    let [mut text, mut predictions] =
        Layout::vertical([Constraint::Length(n_text), Constraint::Min(0)]).areas(area);
    app.arrange(area, &mut [&mut text, &mut predictions]);
    Parts { text, predictions }
}

/// Why the subject predicts no tokens.
fn no_predictions(app: Scene<'_>) -> Option<&'static str> {
    app.subject()
        .and_then(|subject| subject.why_not(Ability::Predict))
}

/// Whether the tokens are listed below the text, by their share of the attention.
fn shows_shares(app: Scene<'_>) -> bool {
    no_predictions(app).is_some() && tokens_picture::picture(app).is_none() && app.run().is_some()
}

/// The boxes of the panel.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    let parts = parts(app, area);
    vec![parts.text, parts.predictions]
}

/// Area of the words: inside the border, above the legend.
fn words(area: Rect) -> Rect {
    Rect {
        x: area.x + 2,
        y: area.y + 1,
        width: area.width.saturating_sub(4),
        height: area.height.saturating_sub(3),
    }
}

/// Wraps tokens into lines; each token has its first column and its width.
fn wrapped(app: Scene<'_>, width: usize) -> Vec<Vec<(usize, usize, usize)>> {
    let mut lines = vec![Vec::new()];
    let mut column = 0;
    let (_, shaded) = axes(app);
    for idx in 0..app.n_along(shaded) {
        let token_width = app.token(shaded, idx).width().min(width);
        if column > 0 && column + token_width > width {
            lines.push(Vec::new());
            column = 0;
        }
        if let Some(line) = lines.last_mut() {
            line.push((idx, column, token_width));
        }
        column += token_width + 1;
    }
    lines
}

/// The first line shown, so that the selected token is visible.
fn first_line(app: Scene<'_>, lines: &[Vec<(usize, usize, usize)>], n_shown: usize) -> usize {
    let token = selected(app);
    let line = lines
        .iter()
        .position(|line| line.iter().any(|(idx, ..)| *idx == token))
        .unwrap_or(0);
    line.saturating_sub(n_shown / 2)
        .min(lines.len().saturating_sub(n_shown))
}

/// Number of tokens between the selected one and the one above or below it.
pub fn step_line(app: Scene<'_>, area: Rect, down: isize) -> isize {
    if let Some(picture) = app.picture_along(axes(app).0) {
        return tokens_picture::step(picture, selected(app), down);
    }
    let lines = wrapped(app, words(parts(app, area).text).width as usize);
    let token = selected(app);
    let here = lines.iter().enumerate().find_map(|(line_idx, line)| {
        line.iter()
            .find(|(idx, ..)| *idx == token)
            .map(|(_, column, _)| (line_idx, *column))
    });
    let Some((line_idx, column)) = here else {
        return 0;
    };
    let Some(line) = lines.get(line_idx.saturating_add_signed(down).min(lines.len() - 1)) else {
        return 0;
    };
    let nearest = line.iter().min_by_key(|(_, at, _)| at.abs_diff(column));
    nearest.map_or(0, |(idx, ..)| *idx as isize - token as isize)
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let parts = parts(app, area);
    let token = selected(app);
    let what = if app.tokens_view.shows_received {
        "attention to token"
    } else {
        "attention from token"
    };
    let title = selection_title(
        app,
        &format!(" · {what} {token} “{}”", app.token(axes(app).0, token)),
    );
    if !parts.text.is_empty() {
        framed(frame, parts.text, app, cut(&title, area.width as usize - 4));
        draw_text(frame, parts.text, app);
    }
    if parts.predictions.is_empty() {
        return;
    }
    if let Some(why) = no_predictions(app).filter(|_| shows_shares(app)) {
        return tokens_shares::draw(frame, parts.predictions, app, why);
    }
    match app.both_runs().filter(|_| app.shows_difference()) {
        Some(both) => tokens_change::draw(frame, parts.predictions, app, both),
        None => draw_predictions(frame, parts.predictions, app),
    }
}

fn draw_text(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let place = words(area);
    let shades = Shades::of(app);
    if shades.values.is_none() && app.run().is_none() {
        return waiting(frame, place, app);
    }
    match tokens_picture::picture(app) {
        Some(picture) => tokens_picture::draw(frame, place, app, picture, &shades),
        None => draw_words(frame, place, app, &shades),
    }
    draw_legend(frame, area, app, &shades);
}

fn draw_words(frame: &mut Frame<'_>, place: Rect, app: Scene<'_>, shades: &Shades) {
    let lines = wrapped(app, place.width as usize);
    let n_shown = place.height as usize;
    let first = first_line(app, &lines, n_shown);
    let token = selected(app);
    let mut shown = Vec::new();
    for line in lines.iter().skip(first).take(n_shown) {
        let mut spans = Vec::new();
        for (idx, _, width) in line {
            let mut style = shades.style(*idx);
            if *idx == token && app.selection.stack != Stack::Cross {
                style = style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
            }
            spans.push(Span::styled(
                cut(&app.token(axes(app).1, *idx), *width),
                style,
            ));
            spans.push(Span::raw(shades.gap(*idx)));
        }
        shown.push(Line::from(spans));
    }
    frame.render_widget(Paragraph::new(shown), place);
}

fn draw_legend(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, shades: &Shades) {
    let (theme, range, is_change) = (&shades.theme, shades.range, shades.is_change);
    let low = if is_change {
        format!(" {}", figure(range.0, 0))
    } else {
        " 0".to_owned()
    };
    let mut line = legend(theme, &low, &figure(range.1, 0), 12);
    let run = app.run();
    let state = if run.is_some_and(|run| run.failure_of(app.wanted_head()).is_some()) {
        "the head could not be computed"
    } else if shades.values.is_none() {
        "computing the head …"
    } else {
        match tokens_picture::picture(app) {
            Some(_) => "outlined: selected",
            None => "underlined: selected",
        }
    };
    let what = if is_change { "change of " } else { "" };
    let what = format!("{what}probability");
    let room = usize::from(area.width).saturating_sub(line.width() + 4);
    // What is missing matters more than the key.
    let parts = match shades.values {
        Some(_) => [&what, "r gives/receives", state],
        None => [&what, state, ""],
    };
    let text = fitting(&parts, room);
    line.push_span(Span::styled(format!("  {text}"), theme.dim()));
    frame.render_widget(
        line,
        Rect {
            x: area.x + 1,
            y: area.bottom() - 2,
            width: area.width - 2,
            height: 1,
        },
    );
}

/// exp of a loss, without digits that nobody reads.
fn perplexity(loss: f64) -> String {
    match loss.exp() {
        value if value < 1e6 => format!("{value:.2}"),
        value => format!("{value:.1e}"),
    }
}

fn draw_predictions(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let theme = &app.theme;
    let cannot = app
        .subject()
        .map(|subject| subject.why_not(Ability::Predict));
    let predictions = app
        .run()
        .and_then(|run| run.outcome())
        .and_then(|o| o.predictions.as_ref());
    let loss = predictions.and_then(|p| Some((p.loss?, p.n_in_loss)));
    let title = match loss {
        Some((loss, n)) => {
            let loss_words = loss_words(loss, &counted(n, "position"));
            let perplexity = format!("perplexity {}", perplexity(loss));
            let room = usize::from(area.width).saturating_sub(4);
            let whole = format!("predictions · {loss_words} · {perplexity}");
            if whole.width() <= room {
                whole
            } else {
                fitting(&[&loss_words, &perplexity], room)
            }
        }
        None => "predictions".to_owned(),
    };
    let title = format!(" {title} {}", app.filter_note(List::Tokens));
    let inside = framed(frame, area, app, title);
    match predictions {
        Some(predictions) => draw_top(frame, inside, app, predictions),
        None => {
            let text = match cannot {
                None => "opening the checkpoint …",
                Some(Some(reason)) => reason,
                Some(None) => "waiting for the last layer …",
            };
            frame.render_widget(Line::styled(format!(" {text}"), theme.dim()), inside);
        }
    }
}

fn draw_top(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, predictions: &Predictions) {
    let theme = &app.theme;
    let token = selected(app);
    let n_shown = (area.height as usize).saturating_sub(1);
    let n = predictions.top.len();
    // If only one position has predictions, keep it visible.
    let mut said = (0..n).filter(|idx| !predictions.top[*idx].is_empty());
    let around = match (said.next(), said.next()) {
        (Some(only), None) => only,
        _ => token,
    };
    let kept = app.visible(List::Tokens, n, around, n_shown);
    let name_width = ((area.width as usize).saturating_sub(24) / 4).clamp(6, 18);
    let column = name_width + 8;
    let next = if predictions.next_loss.is_some() {
        "  loss"
    } else {
        ""
    };
    let header = format!(
        " {:>4}  {} {} {} {}{next}",
        "at",
        fit("token", name_width),
        fit("likeliest", column),
        fit("second", column),
        fit("third", column)
    );
    let mut lines = vec![Line::styled(header, theme.dim())];
    if kept.is_empty() && n > 0 {
        lines.push(Line::styled(" no token matches", theme.dim()));
    }
    for position_idx in kept {
        let top = &predictions.top[position_idx];
        let style = if position_idx == token {
            theme.selected()
        } else {
            Style::new()
        };
        let mut spans = vec![Span::styled(
            format!(
                " {position_idx:>4}  {}",
                fit(&app.predicted_after(position_idx), name_width)
            ),
            style,
        )];
        let follows = app
            .run()
            .and_then(|run| run.prompt.tokens.get(position_idx + 1))
            .copied();
        for candidate in top {
            let label = fit(
                &token_label(&app.vocabulary_label(candidate.id)),
                name_width,
            );
            let is_right = predictions.next_loss.is_some() && follows == Some(candidate.id);
            let style = if is_right { theme.good() } else { Style::new() };
            let mark = if is_right { "✓" } else { " " };
            spans.push(Span::styled(
                format!(
                    " {label}{} {mark}",
                    figure(f64::from(candidate.probability), 6)
                ),
                style,
            ));
        }
        if let Some(loss) = predictions
            .next_loss
            .as_ref()
            .and_then(|losses| losses.get(position_idx))
        {
            spans.push(Span::styled(figure(f64::from(*loss), 6), theme.dim()));
        }
        lines.push(Line::from(spans));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// The token under the pointer.
pub fn token_at(app: Scene<'_>, area: Rect, (column, row): (u16, u16)) -> Option<usize> {
    let place = words(parts(app, area).text);
    let at = Position::new(column, row);
    if !place.contains(at) {
        return None;
    }
    if let Some(picture) = tokens_picture::picture(app) {
        return tokens_picture::token_at(app, picture, place, at);
    }
    let lines = wrapped(app, place.width as usize);
    let first = first_line(app, &lines, place.height as usize);
    let across = (column - place.x) as usize;
    let mut line = lines.get(first + (row - place.y) as usize)?.iter();
    let found = line.find(|(_, start, width)| (*start..start + width).contains(&across));
    found.map(|(idx, ..)| *idx)
}

/// Selects the token under the pointer.
pub fn click(app: &mut App, area: Rect, at: (u16, u16)) {
    let Some(idx) = token_at(app.scene(), area, at) else {
        return;
    };
    // Where keys are other tokens than queries, a click on the shaded ones selects there and swaps the direction of shading.
    if app.scene().attention().is_some_and(|of| of.is_cross) {
        app.tokens_view.shows_received = !app.tokens_view.shows_received;
    }
    if app.tokens_view.shows_received {
        app.selection.key_idx = idx;
    } else {
        app.selection.query_idx = idx;
    }
}
