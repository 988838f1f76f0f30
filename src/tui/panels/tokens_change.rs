//! What is predicted after each token with what is supposed and without, and what that does to the loss.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::tokens::{predicted_after, selected};
use crate::tui::figure::{change, cut, figure, fit, token_label};
use crate::tui::run::Run;
use crate::tui::scene::Scene;
use crate::tui::widgets::frame::framed;
use attnscope_engine::analysis::Predictions;

/// Columns of a number.
const FIGURE: usize = 8;

/// The frame of what both sides predict, with what that does to the loss; says why where one predicts nothing.
pub fn both_predictions<'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    app: Scene<'_>,
    both: [&'a Run; 2],
) -> Option<(Rect, [&'a Predictions; 2])> {
    let predictions = both.map(|run| {
        let outcome = run.outcome();
        outcome.and_then(|outcome| outcome.predictions.as_ref())
    });
    let losses = predictions.map(|found| found.and_then(|predictions| predictions.loss));
    let titles = match losses {
        [Some(before), Some(after)] => {
            let loss = format!("loss {} → {} nats", figure(before, 0), figure(after, 0));
            let moved = format!("{loss} ({})", change(before, after, 0));
            vec![
                format!(" predictions · {moved} "),
                format!(" {moved} "),
                format!(" {loss} "),
            ]
        }
        _ => vec![" predictions ".to_owned()],
    };
    let room = area.width as usize - 2;
    let fits = |title: &&String| title.chars().count() <= room;
    let title = titles.iter().find(fits).or(titles.last());
    let title = title.map_or(String::new(), |title| cut(title, room));
    let inside = framed(frame, area, app, title);
    let [Some(before), Some(after)] = predictions else {
        let why = if both[1].is_running() {
            " the run is not over yet …"
        } else {
            " this model predicts no tokens"
        };
        frame.render_widget(Line::styled(why, app.theme.dim()), inside);
        return None;
    };
    Some((inside, [before, after]))
}

/// Draws the likeliest token of both sides, one position a line.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, both: [&Run; 2]) {
    let theme = &app.theme;
    let Some((inside, [before, after])) = both_predictions(frame, area, app, both) else {
        return;
    };
    let n_shown = (inside.height as usize).saturating_sub(1);
    let at = selected(app);
    let n = before.top.len();
    let first = at
        .saturating_sub(n_shown / 2)
        .min(n.saturating_sub(n_shown));
    let name_width = ((inside.width as usize).saturating_sub(11 + 5 * FIGURE) / 3).clamp(6, 18);
    let column = name_width + FIGURE;
    let header = format!(
        " {:>4}  {} {} {}{:>FIGURE$}{:>FIGURE$}{:>FIGURE$}",
        "at",
        fit("token", name_width),
        fit("before", column),
        fit("after", column),
        "loss",
        "after",
        "change"
    );
    let mut lines = vec![Line::styled(header, theme.dim())];
    for position_idx in (first..n).take(n_shown) {
        lines.push(line(app, [before, after], position_idx, name_width));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

fn line(
    app: Scene<'_>,
    both: [&Predictions; 2],
    position_idx: usize,
    name_width: usize,
) -> Line<'static> {
    let theme = &app.theme;
    let style = if position_idx == selected(app) {
        theme.selected()
    } else {
        Style::new()
    };
    let token = fit(&predicted_after(app, position_idx), name_width);
    let mut spans = vec![Span::styled(format!(" {position_idx:>4}  {token}"), style)];
    let likeliest = both.map(|predictions| predictions.top.get(position_idx)?.first().copied());
    let is_same = likeliest.map(|token| token.map(|token| token.id));
    let is_same = is_same[0] == is_same[1];
    for (nth, token) in likeliest.into_iter().enumerate() {
        let text = token.map_or_else(String::new, |token| {
            let label = fit(&token_label(&app.predicted_label(token.id)), name_width);
            label + &figure(f64::from(token.probability), FIGURE)
        });
        let style = if nth == 1 && !is_same {
            theme.accent()
        } else {
            Style::new()
        };
        spans.push(Span::styled(
            format!(" {}", fit(&text, name_width + FIGURE)),
            style,
        ));
    }
    let loss = |predictions: &Predictions| {
        let losses = predictions.next_loss.as_ref()?;
        losses.get(position_idx).copied().map(f64::from)
    };
    if let [Some(before), Some(after)] = both.map(loss) {
        let numbers = [figure(before, FIGURE), figure(after, FIGURE)].concat();
        spans.push(Span::styled(numbers, theme.dim()));
        spans.push(Span::styled(change(before, after, FIGURE), theme.accent()));
    }
    Line::from(spans)
}
