//! What a divisor does to a training: one small model with scores divided by √d, one by the sum of key norms.

use anyhow::Result;
use attnscope_report::chart::{Axis, Chart, Series};
use attnscope_report::{Page, Picture, Table, digits};
use serde_json::Value;

use super::story::Telling;
use super::twins::{curve, number};

/// What `fixtures/rescale/make_curves.py` recorded.
const RECORDED: &str = include_str!("../../../fixtures/rescale/curves.json");

/// The rule in the record, and how it is written.
const RULES: [(&str, &str); 2] = [("inv_sqrt_d", "q·k/√d"), ("sum_key_norms", "q·k/Σ‖k‖")];

/// A step at which neither knows the task.
const EARLY: f64 = 100.0;
/// A loss that says that the second copy is foretold: half a nat.
const LEARNED: f64 = 0.5;

pub fn pages(_: &Telling<'_>) -> Result<Vec<Page>> {
    let recorded: Value = serde_json::from_str(RECORDED)?;
    let of_rule =
        |rule: &str| -> Value { serde_json::json!({ "curve": recorded["curves"][rule] }) };
    let records = RULES.map(|(rule, _)| of_rule(rule));
    Ok(vec![
        learning(&records),
        gradients(&records),
        costs(&records),
    ])
}

fn chart(records: &[Value; 2], title: &str, y: Axis, pointers: &[(&str, &str)]) -> Chart {
    let each = RULES.iter().zip(records).flat_map(|((_, name), record)| {
        pointers.iter().map(move |(pointer, of)| {
            let name = if of.is_empty() {
                (*name).to_owned()
            } else {
                format!("{name}, {of}")
            };
            Series::line(&name, curve(record, pointer))
        })
    });
    Chart {
        title: title.to_owned(),
        x: Axis::linear("step"),
        y,
        series: each.collect(),
        marks: Vec::new(),
    }
}

/// The first step at which the second copy is foretold.
fn learned(record: &Value) -> Option<f64> {
    let points = curve(record, "/loss_second");
    let mut points = points.into_iter();
    points
        .find(|(_, loss)| *loss < LEARNED)
        .map(|(step, _)| step)
}

fn learning(records: &[Value; 2]) -> Page {
    let when = RULES
        .iter()
        .zip(records)
        .map(|((_, name), record)| match learned(record) {
            Some(step) => format!("with {name} it does after {step} steps"),
            None => format!("with {name} it does not in all of the training"),
        });
    let when: Vec<String> = when.collect();
    Page {
        title: "the same training, another divisor",
        words: format!(
            "Two models of two layers begin with the same weights and see the same batches: 24 random tokens, and the same 24 again. \
             The second copy can be foretold by looking at what followed before, which needs sharp attention. A model knows it when \
             its loss falls below half a nat: {}.",
            when.join("; ")
        ),
        picture: Picture::Charts(vec![
            chart(
                records,
                "loss on the second copy",
                Axis::linear("nats per token").from(0.0),
                &[("/loss_second", "")],
            ),
            chart(
                records,
                "entropy of the weights",
                Axis::linear("share of even weights").from(0.0).to(1.0),
                &[("/relative_entropy", "")],
            ),
        ]),
    }
}

fn gradients(records: &[Value; 2]) -> Page {
    let at = |record: &Value, step: f64| {
        let points = curve(record, "/score_gradient");
        let mut points = points.into_iter();
        points
            .find(|(at, _)| *at == step)
            .map_or(f64::NAN, |(_, value)| value)
    };
    let early = [at(&records[0], EARLY), at(&records[1], EARLY)];
    Page {
        title: "what the softmax lets through",
        words: format!(
            "The length of the loss's gradient at the scores, alone and divided by that at the weights. Even weights let as much through \
             as a softmax can. But a score is q·k divided by √d or by Σ‖k‖, and so is every gradient on its way to q and k: with Σ‖k‖, q \
             and k must grow further before weights can differ. At step {EARLY} the scores get {} with √d and {} with Σ‖k‖; what is not \
             yet attended to teaches little.",
            digits(early[0]),
            digits(early[1])
        ),
        picture: Picture::Charts(vec![
            chart(
                records,
                "gradient at the scores / at the weights",
                Axis::linear("share").from(0.0),
                &[("/let_through", "")],
            ),
            chart(
                records,
                "gradient at the scores",
                Axis::logarithmic("length"),
                &[("/score_gradient", "")],
            ),
        ]),
    }
}

fn costs(records: &[Value; 2]) -> Page {
    let figures = [
        ("loss on the second copy, nats", "/loss_second"),
        ("loss on the first copy, nats", "/loss_first"),
        ("entropy / that of even weights", "/relative_entropy"),
        ("largest weight", "/max_probability"),
        ("gradient at scores / at weights", "/let_through"),
        ("gradient at scores", "/score_gradient"),
    ];
    let ends = |record: &Value, pointer: &str| {
        let points = record["curve"].as_array().into_iter().flatten();
        let last = points.last().and_then(|point| point.pointer(pointer));
        last.map_or(f64::NAN, number)
    };
    let rows = figures.iter().map(|(name, pointer)| {
        let values = records.iter().map(|record| digits(ends(record, pointer)));
        std::iter::once((*name).to_owned()).chain(values).collect()
    });
    let steps = records[0]["curve"].as_array().and_then(|all| all.last());
    let step = steps.map_or(f64::NAN, |point| number(&point["step"]));
    Page {
        title: "what it buys and what it costs",
        words: format!(
            "At the end, after {step} steps, both know the task. Dividing by the sum of key norms costs time: q and k have to grow until \
             their products make up for a divisor that is about n times as large, and grows with k itself. It buys softer weights: the \
             same loss with more keys in sight."
        ),
        picture: Picture::Table(Table {
            titles: vec!["figure", RULES[0].1, RULES[1].1],
            rows: rows.collect(),
        }),
    }
}
