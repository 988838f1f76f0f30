//! The figures of the translators: every decoder step of both twins, and the questions that lead to the cause.

use anyhow::Result;

use super::ran::Ran;
use super::stories::Story;
use crate::analysis::questions;
use crate::attention::HeadSummary;
use crate::ops::Compute;
use crate::report::{digits, text_table, wrapped};

const TWINS: [(&str, &str); 2] = [
    ("unscaled-translator", "scores h·k"),
    ("scaled-translator", "scores h·k/√d"),
];

const WIDTH: usize = 100;

pub fn figures(compute: &Compute, story: &Story) -> Result<String> {
    let mut text = format!("{}\n{}\n\n", story.text, story.target.unwrap_or_default());
    for (bundle, rule) in TWINS {
        let ran = Ran::of(compute, story, bundle, &[])?;
        let Some(head) = ran.layers.first().and_then(|layer| layer.heads.first()) else {
            continue;
        };
        let d_head = ran.layers.first().map_or(0, |layer| layer.spec.d_head);
        text += &format!("{bundle}: {rule}, d = {d_head}\n\n");
        text += &steps(&ran, &head.summary);
        text.push('\n');
        for question in questions(&head.summary) {
            let line = format!(
                "{} {}: {}",
                question.asks,
                question.bearing.label(),
                question.answer
            );
            text += &wrapped(&line, WIDTH, "    ");
        }
        if let Some(loss) = ran.loss() {
            text += &format!("loss on the target: {} nats a word\n", digits(loss));
        }
        text.push('\n');
    }
    Ok(text.trim_end().to_owned() + "\n")
}

/// One line per decoder step.
fn steps(ran: &Ran, head: &HeadSummary) -> String {
    let source = ran.prompt.given();
    let n = head.k_norms.len().max(1);
    let k_norm = head
        .k_norms
        .iter()
        .map(|norm| f64::from(*norm))
        .sum::<f64>()
        / n as f64;
    let rows: Vec<Vec<String>> = head
        .rows
        .iter()
        .zip(&ran.prompt.labels)
        .map(|(row, label)| {
            let number = |value: f32| digits(f64::from(value));
            let looked_at = source.labels.get(row.argmax as usize).cloned();
            vec![
                label.trim().to_owned(),
                number(row.q_norm),
                digits(k_norm),
                number(row.cosine),
                number(row.score_norm),
                number(row.score_mean),
                number(row.score_var.sqrt()),
                number(row.entropy),
                number(row.top1),
                looked_at.unwrap_or_default().trim().to_owned(),
            ]
        })
        .collect();
    let titles = [
        "after",
        "‖h‖",
        "‖k‖",
        "cosine",
        "‖scores‖",
        "mean",
        "std",
        "entropy",
        "largest",
        "at",
    ];
    text_table(&titles, &rows)
}
