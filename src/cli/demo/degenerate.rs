//! The figures of the softmax over the wrong axis: losses, sums of rows and columns, and what is predicted at each word.

use anyhow::Result;

use super::ran::Ran;
use super::stories::Story;
use crate::ops::Compute;
use crate::report::{digits, text_table};

/// Checkpoint, axis, and what that is.
const READINGS: [(&str, &str, &str); 4] = [
    ("degenerate", "queries", "as it was trained"),
    ("degenerate", "keys", "with the axis put right"),
    ("healthy", "keys", "its twin, as it was trained"),
    ("healthy", "queries", "its twin, over the wrong axis"),
];

pub fn figures(compute: &Compute, story: &Story) -> Result<String> {
    let mut rows = Vec::new();
    let mut ran_all = Vec::new();
    for (bundle, axis, what) in READINGS {
        let set = [("softmax_axis".to_owned(), axis.to_owned())];
        let ran = Ran::of(compute, story, bundle, &set)?;
        let summaries = || {
            ran.layers
                .iter()
                .flat_map(|layer| &layer.heads)
                .map(|head| &head.summary)
        };
        let masses = || summaries().flat_map(|summary| summary.rows.iter().map(|row| row.mass));
        let columns = || summaries().flat_map(|summary| summary.column_sums.iter().copied());
        let ends = |values: &mut dyn Iterator<Item = f32>| {
            let (low, high) = values.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), v| {
                (low.min(v), high.max(v))
            });
            format!("{low:.2}…{high:.2}")
        };
        rows.push(vec![
            format!("{bundle}, {what}"),
            axis.to_owned(),
            ran.loss().map_or("-".to_owned(), digits),
            ends(&mut masses()),
            ends(&mut columns()),
        ]);
        ran_all.push(ran);
    }
    let mut text = format!("{}\n\n", story.text);
    let titles = [
        "checkpoint",
        "softmax over",
        "loss, nats",
        "row sums",
        "column sums",
    ];
    text += &text_table(&titles, &rows);
    for (nth, (bundle, axis, what)) in READINGS.into_iter().enumerate().take(3) {
        text += &format!("\n{bundle}, {what} (softmax over {axis}): the likeliest next words\n\n");
        text += &predictions(&ran_all[nth]);
    }
    Ok(text)
}

/// The three likeliest words after each word.
fn predictions(ran: &Ran) -> String {
    let labels: Vec<&str> = ran.prompt.labels.iter().map(|label| label.trim()).collect();
    let top = ran.outcome.predictions.iter().flat_map(|found| &found.top);
    let rows: Vec<Vec<String>> = top
        .enumerate()
        .map(|(idx, top)| {
            let next = labels.get(idx + 1).copied().unwrap_or("");
            let mut row = vec![labels[idx].to_owned(), next.to_owned()];
            let likely = top
                .iter()
                .map(|token| format!("{} {:.3}", ran.label(token.id), token.probability));
            row.extend(likely);
            row
        })
        .collect();
    text_table(&["word", "followed by", "top 1", "top 2", "top 3"], &rows)
}
