//! The figures of the induction demo: what kind of place each head looks at, and the loss on the first and the second copy.

use anyhow::Result;
use attnscope_checks::stats::{HeadType, Stat};
use attnscope_report::{digits, text_table};

use super::ran::Ran;
use super::story::Telling;

const MASSES: [(&str, Stat); 4] = [
    ("previous", Stat::PreviousMass),
    ("induction", Stat::InductionMass),
    ("duplicate", Stat::DuplicateMass),
    ("entropy", Stat::EntropyRelative),
];

pub fn figures(telling: &Telling<'_>) -> Result<String> {
    let ran = Ran::of(telling, telling.story.bundle, &[])?;
    let mut rows = Vec::new();
    for layer in &ran.layers {
        for (head_idx, head) in layer.heads.iter().enumerate() {
            let mut row = vec![
                format!("L{}H{head_idx}", layer.layer_idx),
                head.kind.map_or("-", HeadType::title).to_owned(),
            ];
            row.extend(MASSES.map(|(_, stat)| digits(head.stats.of(stat))));
            rows.push(row);
        }
    }
    let mut titles = vec!["head", "type"];
    titles.extend(MASSES.map(|(title, _)| title));
    let mut text = text_table(&titles, &rows);
    let losses = ran.outcome.predictions.and_then(|found| found.next_loss);
    if let Some(losses) = losses {
        let mean = |losses: &[f32]| {
            let sum: f64 = losses.iter().map(|loss| f64::from(*loss)).sum();
            digits(sum / losses.len().max(1) as f64)
        };
        let (first, second) = losses.split_at(losses.len() / 2);
        text += &format!(
            "\nmean loss on the first copy of the text {} nats, on the second {}\n",
            mean(first),
            mean(second)
        );
    }
    Ok(text)
}
