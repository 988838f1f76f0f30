//! Predictions after each token with and without the what-ifs, and the change of the loss.

use attnscope_run::{Ability, Predictions};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::tokens_shades::selected;
use crate::figure::{change, cut, figure, fit, token_label, wrapped};
use crate::state::run::Run;
use crate::state::runs::Shows;
use crate::state::scene::Scene;
use crate::widgets::frame::framed;

/// Columns of a number.
const FIGURE: usize = 8;

/// Draws the frame for both sides' predictions, with the change of the loss; says why if one side predicts nothing.
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
            let loss = format!(
                "loss {} → {} nats per token",
                figure(before, 0),
                figure(after, 0)
            );
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
            let of = |side: usize| both[side].subject.why_not(Ability::Predict);
            let second = app.state().runs.b.as_ref();
            let labels = second.map_or(["A", "B"], |second| second.way.labels());
            let missing = (0..2)
                .find(|side| predictions[*side].is_none())
                .unwrap_or(0);
            let reason = of(missing).unwrap_or("nothing was predicted");
            &match app.compared_predictions() {
                // A trace may hold logits, although it cannot be run for predictions.
                Some(found) => format!(
                    "{} has recorded logits: KL {} nats, the same likeliest token at {:.0} % of positions",
                    labels[missing],
                    figure(found.kl, 0),
                    100.0 * found.same_top1
                ),
                None => format!("{}: {reason}", labels[missing]),
            }
        };
        let width = (inside.width as usize).saturating_sub(2).max(1);
        let lines = wrapped(why, width).into_iter();
        let lines = lines.map(|line| Line::styled(format!(" {line}"), app.theme.dim()));
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
        return None;
    };
    Some((inside, [before, after]))
}

/// Draws the likeliest token of both sides, one position per line; aligned tokens of two texts share a line.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, both: [&Run; 2]) {
    let theme = &app.theme;
    let Some((inside, predictions)) = both_predictions(frame, area, app, both) else {
        return;
    };
    let Some(second) = &app.state().runs.b else {
        return;
    };
    let pairs = &second.aligned[0].pairs;
    let n_shown = (inside.height as usize).saturating_sub(1);
    let here = Some(selected(app));
    let at = pairs.iter().position(|[_, b]| *b == here).unwrap_or(0);
    let first = at
        .saturating_sub(n_shown / 2)
        .min(pairs.len().saturating_sub(n_shown));
    let divergences = app
        .compared_predictions()
        .map(|found| found.kl_at.as_slice());
    let n_figures = if divergences.is_some() { 6 } else { 5 };
    let name_width = (inside.width as usize).saturating_sub(11 + n_figures * FIGURE) / 3;
    let name_width = name_width.clamp(6, 18);
    let column = name_width + FIGURE;
    let labels = second.way.labels();
    let kl = if divergences.is_some() {
        format!("{:>FIGURE$}", "KL")
    } else {
        String::new()
    };
    let [a, b] = labels;
    let loss = if a == "A" { "loss A" } else { "loss" };
    let header = format!(
        " {:>4}  {} {} {}{kl}{loss:>FIGURE$}{b:>FIGURE$}{:>FIGURE$}",
        "at",
        fit("token", name_width),
        fit(a, column),
        fit(b, column),
        "change"
    );
    let header = cut(&header, inside.width as usize);
    let mut lines = vec![Line::styled(header, theme.dim())];
    for pair in pairs.iter().skip(first).take(n_shown) {
        let kl = divergences.map(|found| pair[1].and_then(|at| found.get(at).copied()));
        lines.push(line(app, predictions, *pair, (name_width, kl)));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

fn line(
    app: Scene<'_>,
    both: [&Predictions; 2],
    pair: [Option<usize>; 2],
    (name_width, kl): (usize, Option<Option<f64>>),
) -> Line<'static> {
    let theme = &app.theme;
    let style = match pair[1] {
        Some(at) if at == selected(app) => theme.selected(),
        None => theme.dim(),
        _ => Style::new(),
    };
    // For a token on one side only, show which side.
    let (sign, label) = match pair {
        [Some(at), None] => ("−", Scene::of(app.state(), Shows::A).predicted_after(at)),
        [None, Some(at)] => ("+", app.predicted_after(at)),
        [_, at] => (" ", app.predicted_after(at.unwrap_or(0))),
    };
    let position_idx = pair[1].or(pair[0]).unwrap_or(0);
    let token = fit(&label, name_width);
    let mut spans = vec![Span::styled(
        format!(" {position_idx:>4} {sign}{token}"),
        style,
    )];
    let mut sides = both.into_iter().zip(pair);
    let likeliest = [sides.next(), sides.next()].map(|side| {
        let (predictions, at) = side?;
        predictions.top.get(at?)?.first().copied()
    });
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
    if let Some(kl) = kl {
        let text = match kl {
            None => " ".repeat(FIGURE),
            // Rounding of f32 logits alone can cause this much.
            Some(kl) if kl.abs() < 1e-5 => format!("{:>FIGURE$}", "<1e-5"),
            Some(kl) => figure(kl, FIGURE),
        };
        spans.push(Span::raw(text));
    }
    let loss = |(predictions, at): (&Predictions, Option<usize>)| {
        let losses = predictions.next_loss.as_ref()?;
        losses.get(at?).copied().map(f64::from)
    };
    let losses = [(both[0], pair[0]), (both[1], pair[1])].map(loss);
    if losses.iter().any(Option::is_some) {
        let number = |loss: Option<f64>| {
            loss.map_or_else(|| " ".repeat(FIGURE), |loss| figure(loss, FIGURE))
        };
        spans.push(Span::styled(losses.map(number).concat(), theme.dim()));
    }
    if let [Some(before), Some(after)] = losses {
        spans.push(Span::styled(change(before, after, FIGURE), theme.accent()));
    }
    Line::from(spans)
}
