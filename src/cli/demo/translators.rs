//! Pages on all the translators: where their weights lie early in training, and what a translator without attention cannot do.

use anyhow::Result;
use attnscope_report::chart::{Axis, Chart, Series};
use attnscope_report::{Page, Picture, digits};
use serde_json::Value;

use super::twins::{curve, number};

/// What is called how, and what its trainer recorded.
const RECORDED: [(&str, &str); 4] = [
    (
        "h·k",
        include_str!("../../../fixtures/seq2seq/unscaled/readings.json"),
    ),
    (
        "h·k/√d",
        include_str!("../../../fixtures/seq2seq/scaled/readings.json"),
    ),
    (
        "h·(W k)",
        include_str!("../../../fixtures/seq2seq/general/readings.json"),
    ),
    (
        "v·tanh(W h + U k)",
        include_str!("../../../fixtures/seq2seq/additive/readings.json"),
    ),
];

/// Scores of `attnscope quality`, by length.
const QUALITY: &str = include_str!("../../../fixtures/seq2seq/quality.json");

/// The last step that is looked at.
const UNTIL: f64 = 600.0;

/// The weight on the last two words, early and late.
///
/// # Errors
/// Never for a program that was built from a complete source tree.
pub fn early() -> Result<Page> {
    let mut series = Vec::new();
    let (mut even, mut most) = (Vec::new(), (f64::NEG_INFINITY, "", 0.0));
    let mut ends = Vec::new();
    let (mut unscaled, mut n_pairs) = (f64::NAN, f64::NAN);
    for (name, text) in RECORDED {
        let record: Value = serde_json::from_str(text)?;
        let all = curve(&record, "/held_out/steps/last_two");
        let after = record
            .pointer("/held_out/steps/last_two")
            .unwrap_or(&Value::Null);
        ends.push(format!("{} for {name}", share(number(after))));
        if name == RECORDED[0].0 {
            unscaled = all.iter().map(|(_, weight)| *weight).fold(0.0, f64::max);
        }
        n_pairs = number(&record["held_out"]["n_pairs"]);
        let points: Vec<_> = all.into_iter().filter(|(step, _)| *step <= UNTIL).collect();
        for (step, weight) in &points {
            if *weight > most.0 {
                most = (*weight, name, *step);
            }
        }
        let if_even = curve(&record, "/held_out/last_two_if_even");
        even = if_even
            .into_iter()
            .filter(|(step, _)| *step <= UNTIL)
            .collect();
        series.push(Series::line(name, points));
    }
    let of_even = even.first().map_or(f64::NAN, |(_, weight)| *weight);
    series.push(Series::line("if all weights were even", even));
    Ok(Page {
        title: "early on, weight piles up on the last words",
        words: format!(
            "In the write-up, weight piles up on the last two source words. Here that happens only early on: at step {}, they have {} \
             of the weight for scores {}, where even weights would give {}. For h·k of this width they never have more than {}. This \
             passes within 150 steps, as the decoder learns that its sentence does not end yet. After training, over {n_pairs} held-out \
             pairs, the last two words have {}.",
            most.2,
            share(most.0),
            most.1,
            share(of_even),
            share(unscaled),
            ends.join(", ")
        ),
        picture: Picture::Charts(vec![Chart {
            title: "weight on the last two source words, 24 held-out pairs".to_owned(),
            x: Axis::linear("step"),
            y: Axis::linear("share of a row").from(0.0),
            series,
            marks: Vec::new(),
        }]),
    })
}

fn share(value: f64) -> String {
    format!("{:.0} %", 100.0 * value)
}

/// BLEU against the length of the sentence, with attention and without.
///
/// # Errors
/// Never for a program that was built from a complete source tree.
pub fn bottleneck() -> Result<Page> {
    let scored: Value = serde_json::from_str(QUALITY)?;
    let models = scored["models"].as_array().into_iter().flatten();
    let mut series = Vec::new();
    let mut said = Vec::new();
    for model in models {
        let name = match model["checkpoint"].as_str().unwrap_or_default() {
            "without" => "without attention",
            name => name,
        };
        let spans = model["by_length"].as_array().into_iter().flatten();
        let points: Vec<(f64, f64)> = spans
            .map(|span| {
                let middle = (number(&span["from"]) + number(&span["to"])) / 2.0;
                (middle, number(&span["bleu"]))
            })
            .collect();
        if let (Some((_, first)), Some((_, last))) = (points.first(), points.last()) {
            said.push(format!("{name}: {} → {}", digits(*first), digits(*last)));
        }
        series.push(Series::line(name, points));
    }
    Ok(Page {
        title: "a sentence through one vector",
        words: format!(
            "What attention is for. A twin without it gets the encoder's last states and nothing else: every sentence has to pass \
             through vectors of one length. It was trained on the same pairs by another program, so that more than attention differs. \
             BLEU from the shortest to the longest sentences: {}. attnscope quality computes it for any encoder–decoder.",
            said.join(", ")
        ),
        picture: Picture::Charts(vec![Chart {
            title: "BLEU of held-out pairs by length".to_owned(),
            x: Axis::linear("words of the source"),
            y: Axis::linear("BLEU").from(0.0).to(100.0),
            series,
            marks: Vec::new(),
        }]),
    })
}
