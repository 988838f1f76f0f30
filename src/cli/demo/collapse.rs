//! The story of the translators: dot products as they are saturate the softmax, divided by √d they do not.

use anyhow::Result;
use attnscope_compute::attention::{HeadSummary, RowSummary};
use attnscope_report::chart::{Axis, Chart, Series};
use attnscope_report::{Map, Page, Passage, Picture, Table, digits};
use attnscope_run::{questions, separates};
use serde_json::Value;

use super::ran::Ran;
use super::story::Telling;
use super::translators::{bottleneck, early};
use super::twins::{curve, number, pattern_map, record};

/// Checkpoint, what it is called, and how its scores are made.
const TWINS: [(&str, &str, &str); 2] = [
    ("unscaled-translator", "unscaled", "h·k"),
    ("scaled-translator", "scaled", "h·k/√d"),
];

/// A figure of the held-out pairs: where it stands in the record, and what the write-up has.
const FIGURES: [(&str, &str, &str); 13] = [
    ("whole phrases right", "/translation/exact_match", ""),
    ("BLEU / 100", "/translation/bleu", "better when scaled"),
    (
        "words right, those before given",
        "/held_out/token_accuracy",
        "",
    ),
    ("loss, nats per word", "/held_out/loss", ""),
    ("alignment error rate", "/held_out/alignment_error_rate", ""),
    (
        "‖h‖ of the decoder",
        "/held_out/steps/query_norm",
        "about 14",
    ),
    ("‖k‖ of the encoder", "/held_out/steps/key_norm", "about 14"),
    ("cosine of both", "/held_out/steps/cosine", ""),
    (
        "norm of a row of scores",
        "/held_out/steps/score_norm",
        "20 … 160",
    ),
    ("its mean", "/held_out/steps/score_mean", "−5 … 40"),
    (
        "its standard deviation",
        "/held_out/steps/score_std",
        "6 … 14; scaled about 1",
    ),
    (
        "entropy / ln n of its weights",
        "/held_out/steps/relative_entropy",
        "",
    ),
    ("largest weight", "/held_out/steps/max_probability", ""),
];

pub fn pages(telling: &Telling<'_>) -> Result<Vec<Page>> {
    let run = |(bundle, _, _)| Ran::of(telling, bundle, &[]);
    let ran = [run(TWINS[0])?, run(TWINS[1])?];
    let records = [record(TWINS[0].0)?, record(TWINS[1].0)?];
    Ok(vec![
        training(&records),
        early()?,
        figures(&records),
        maps(&ran),
        causes(&ran),
        steps(0, &ran[0]),
        steps(1, &ran[1]),
        otherwise(&records),
        bottleneck()?,
    ])
}

fn training(records: &[Value; 2]) -> Page {
    let chart = |title: &str, y: Axis, pointer: &str| Chart {
        title: title.to_owned(),
        x: Axis::linear("step"),
        y,
        series: TWINS
            .iter()
            .zip(records)
            .map(|((_, name, rule), record)| {
                Series::line(format!("{name}, {rule}"), curve(record, pointer))
            })
            .collect(),
        marks: Vec::new(),
    };
    Page {
        title: "two translators, one difference",
        words: "The demo retells a write-up on a translator with Luong attention and no scale (docs/collapse.md). Both translators here \
                learned to turn German number phrases into English ones, from the same first weights and the same pairs in the same \
                order. One scores with h·k, one with h·k/√d. Without the division, entropy falls at once and stays low: that \
                translator learns faster for a while, and is overtaken in the end."
            .to_owned(),
        picture: Picture::Charts(vec![
            chart(
                "loss on 24 held-out pairs",
                Axis::logarithmic("nats per word"),
                "/held_out/loss",
            ),
            chart(
                "entropy of their steps' weights",
                Axis::linear("fraction of ln n").from(0.0).to(1.0),
                "/held_out/steps/relative_entropy",
            ),
        ]),
    }
}

fn figures(records: &[Value; 2]) -> Page {
    let figure = |record: &Value, pointer: &str| {
        let value = record.pointer(pointer).unwrap_or(&Value::Null);
        digits(number(value))
    };
    let rows = FIGURES.iter().map(|(name, pointer, write_up)| {
        let of = records.iter().map(|record| figure(record, pointer));
        let name = std::iter::once((*name).to_owned());
        let write_up = std::iter::once((*write_up).to_owned());
        name.chain(of).chain(write_up).collect()
    });
    let n_pairs = number(&records[0]["held_out"]["n_pairs"]);
    Page {
        title: "norms alike, scores not",
        words: format!(
            "Means over {n_pairs} held-out pairs, stored at training. States are as long in both, and at the same angle; only the \
             scores are spread wider where nothing divides them, and the softmax of such a spread is all but a choice of one word."
        ),
        picture: Picture::Table(Table {
            titles: vec!["figure", "unscaled", "scaled", "in the write-up"],
            rows: rows.collect(),
        }),
    }
}

fn maps(ran: &[Ran; 2]) -> Page {
    let map = |nth: usize| Map {
        row_labels: written(&ran[nth]),
        ..pattern_map(&format!("{}, {}", TWINS[nth].1, TWINS[nth].2), &ran[nth])
    };
    Page {
        title: "where each decoder step looks",
        words: "Each row is the step that writes an English word, German across. Units and tens change places, so the right map is \
                no diagonal. The unscaled one puts nearly all of a row on one word; the scaled one keeps others in sight."
            .to_owned(),
        picture: Picture::Maps(vec![map(0), map(1)]),
    }
}

/// The word that each decoder step writes: the one after the word that it is given.
fn written(ran: &Ran) -> Vec<String> {
    let given = ran.labels();
    let after_the_end = std::iter::once("·".to_owned());
    given.into_iter().skip(1).chain(after_the_end).collect()
}

fn head(ran: &Ran) -> Option<&HeadSummary> {
    ran.summaries().next()
}

/// The guided questions, answered for both.
fn causes(ran: &[Ran; 2]) -> Page {
    let answers = ran.iter().map(|ran| {
        let given = ran.given_labels();
        let is_delimiter =
            |key_idx: usize| given.get(key_idx).is_some_and(|label| separates(label));
        let layer = ran.layers.iter().find(|layer| !layer.heads.is_empty());
        layer.map_or_else(Vec::new, |layer| {
            questions(layer, &layer.heads[0], &is_delimiter)
        })
    });
    let answers: Vec<_> = answers.collect();
    let first = answers[0].iter().enumerate();
    let passages = first.map(|(nth, question)| {
        let of = TWINS
            .iter()
            .zip(&answers)
            .filter_map(|((_, name, _), answers)| {
                let answer = answers.get(nth)?;
                let bearing = answer.bearing.label();
                Some(format!("{name}: {bearing}. {}", answer.answer))
            });
        Passage {
            title: question.asks.to_owned(),
            text: of.collect::<Vec<_>>().join("\n"),
        }
    });
    Page {
        title: "is it the norms, the angles, the scores?",
        words: "The order in which one asks. Each answer is computed from this phrase; panel 8 has it for any head of any model."
            .to_owned(),
        picture: Picture::Passages(passages.collect()),
    }
}

/// One line per decoder step.
fn steps(nth: usize, ran: &Ran) -> Page {
    let source = ran.given_labels();
    let rows = head(ran).map_or(Vec::new(), |head| {
        let n = head.k_norms.len().max(1);
        let k_norm = head.k_norms.iter().sum::<f32>() / n as f32;
        // The last step is given the end mark, and writes nothing.
        let n_steps = head.rows.len().saturating_sub(1);
        let rows = head.rows.iter().zip(written(ran)).take(n_steps);
        rows.map(|(row, label)| step(row, label, k_norm, &source))
            .collect()
    });
    let loss = ran.loss().map_or(String::new(), |loss| {
        format!(" Loss on this target: {} nats per word.", digits(loss))
    });
    Page {
        title: ["each step, unscaled", "each step, scaled"][nth],
        words: format!(
            "The measurements of the write-up, decoder step by step, of the {} translator: norms and angle of the states, the row of scores, \
             and what the softmax makes of it.{loss}",
            TWINS[nth].1
        ),
        picture: Picture::Table(Table {
            titles: vec![
                "writes",
                "‖h‖",
                "‖k‖",
                "cosine",
                "‖scores‖",
                "mean",
                "std",
                "entropy",
                "largest",
                "at",
            ],
            rows,
        }),
    }
}

fn step(row: &RowSummary, label: String, k_norm: f32, source: &[String]) -> Vec<String> {
    let numbers = [
        row.q_norm,
        k_norm,
        row.cosine,
        row.score_norm,
        row.score_mean,
        row.score_var.sqrt(),
        row.entropy,
        row.top1,
    ];
    let looked_at = source.get(row.argmax as usize).cloned();
    let numbers = numbers.map(|number| match number.abs() {
        size if size < 10.0 => format!("{number:.3}"),
        _ => format!("{number:.2}"),
    });
    let ends = [label, looked_at.unwrap_or_default()];
    let [first, last] = ends.map(std::iter::once);
    first.chain(numbers).chain(last).collect()
}

/// The page of both translators with their scores scaled as they never were in training.
fn otherwise(records: &[Value; 2]) -> Page {
    let figures = ["loss", "token_accuracy", "alignment_error_rate"];
    let row = |(_, name, rule): (&str, &str, &str), of: &Value, what: &str| {
        let name = format!("{name}, {what} {rule}");
        let numbers = figures.map(|key| digits(number(&of[key])));
        let entropy = digits(number(&of["steps"]["relative_entropy"]));
        std::iter::once(name)
            .chain(numbers)
            .chain([entropy])
            .collect()
    };
    let rows = TWINS
        .into_iter()
        .zip(records)
        .enumerate()
        .flat_map(|(nth, (twin, record))| {
            let other = (twin.0, twin.1, TWINS[1 - nth].2);
            [
                row(twin, &record["held_out"], "trained with"),
                row(other, &record["scaled_the_other_way"], "read with"),
            ]
        });
    Page {
        title: "a division afterwards softens the map and breaks the model",
        words: "The same weights, their scores scaled as they never were in training. Divided, the unscaled one's rows become almost \
                even at once, and its decoder never learned to read such mixtures. Try it here: w scale=inv_sqrt_d, then v and 7."
            .to_owned(),
        picture: Picture::Table(Table {
            titles: vec![
                "translator",
                "loss, nats",
                "words right",
                "alignment error",
                "entropy / ln n",
            ],
            rows: rows.collect(),
        }),
    }
}
