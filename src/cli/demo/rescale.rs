//! The story of other divisors than √d: what dividing by the sum of key norms does to random weights, to a trained head, and to a
//! training.

use anyhow::Result;
use attnscope_report::chart::{Axis, Chart, Series};
use attnscope_report::lab::rescale_figure;
use attnscope_report::{Page, Picture, Table, digits};
use attnscope_studies::lab::{Distribution, Divisor, RescaleSetup, Rescaled, Rescaling, rescale};
use serde_json::Value;

use super::ran::Ran;
use super::story::Telling;
use super::twins::{curve, head_map, number};

/// What `fixtures/rescale/make_curves.py` recorded.
const RECORDED: &str = include_str!("../../../fixtures/rescale/curves.json");

/// The rule in the record, and how it is written.
const RULES: [(&str, &str); 2] = [("inv_sqrt_d", "q·k/√d"), ("sum_key_norms", "q·k/Σ‖k‖")];

/// A step at which neither knows the task.
const EARLY: f64 = 100.0;
/// A loss that shows that the second copy is predicted: half a nat.
const LEARNED: f64 = 0.5;

/// The widths of both figures of the write-up.
const WIDTHS: [usize; 2] = [16, 256];
const N_KEYS: usize = 32;
/// The divisors whose densities are drawn.
const DRAWN: [Divisor; 3] = [Divisor::None, Divisor::SqrtD, Divisor::SumKeyNorms];

pub fn pages(telling: &Telling<'_>) -> Result<Vec<Page>> {
    let cases = WIDTHS.map(|d| {
        let setup = setup(d);
        rescale(&setup).map(|case| (setup, case))
    });
    let [narrow, wide] = cases;
    let (narrow, wide) = (narrow?, wide?);
    let recorded: Value = serde_json::from_str(RECORDED)?;
    let of_rule =
        |rule: &str| -> Value { serde_json::json!({ "curve": recorded["curves"][rule] }) };
    let records = RULES.map(|(rule, _)| of_rule(rule));
    Ok(vec![
        proposal(&narrow),
        wider(&wide),
        evenness([&narrow.1, &wide.1]),
        arriving([&narrow.1, &wide.1]),
        trained_head(telling)?,
        learning(&records),
        gradients(&records),
        costs(&records),
    ])
}

fn setup(d: usize) -> RescaleSetup {
    RescaleSetup {
        d,
        n_keys: N_KEYS,
        n_queries: 500,
        components: Distribution::STANDARD_NORMAL,
        divisors: Divisor::ALL.to_vec(),
        seed: 0,
    }
}

fn densities((setup, case): &(RescaleSetup, Rescaled)) -> Picture {
    Picture::Charts(rescale_figure(setup, case, &DRAWN).charts)
}

/// A figure under one divisor; NaN if it was not simulated.
fn by(case: &Rescaled, divisor: Divisor, figure: fn(&Rescaling) -> f64) -> f64 {
    case.by(divisor).map_or(f64::NAN, figure)
}

fn proposal(narrow: &(RescaleSetup, Rescaled)) -> Page {
    Page {
        title: "the proposal: divide by the sum of key norms",
        words: format!(
            "Attention divides q·k by √d. The write-up that this demo retells (docs/scalings.md) divides by Σ‖k‖, the sum of all key \
             lengths, so that weights keep the shape of the scores. Here 500 random queries look at {N_KEYS} random keys of width {}: the \
             distribution of the first key's score, then of its weight undivided, with √d and with Σ‖k‖ = {} (1a … are the write-up's panels).",
            narrow.0.d,
            digits(by(&narrow.1, Divisor::SumKeyNorms, |of| of.value)),
        ),
        picture: densities(narrow),
    }
}

fn wider(wide: &(RescaleSetup, Rescaled)) -> Page {
    let case = &wide.1;
    Page {
        title: "wider queries and keys need a division",
        words: format!(
            "With {} components the products have a standard deviation of {}. Undivided, a row is all but a choice of one key: its largest weight \
             is {} on average. √d brings the deviation back to {}; weights are skewed, most of them small. Σ‖k‖ gives them the shape of the \
             scores. Now read its axis: no weight is far from 1/{N_KEYS} = {}.",
            case.d,
            digits(by(case, Divisor::None, |of| of.score_std)),
            digits(by(case, Divisor::None, |of| of.max_probability)),
            digits(by(case, Divisor::SqrtD, |of| of.score_std)),
            digits(1.0 / N_KEYS as f64),
        ),
        picture: densities(wide),
    }
}

/// One row per width and divisor.
fn table(
    cases: [&Rescaled; 2],
    titles: [&'static str; 5],
    figures: fn(&Rescaling) -> [f64; 3],
) -> Picture {
    let rows = cases.into_iter().flat_map(|case| {
        case.of.iter().map(move |of| {
            let names = [case.d.to_string(), of.divisor.formula().into_owned()];
            names.into_iter().chain(figures(of).map(digits)).collect()
        })
    });
    Picture::Table(Table {
        titles: titles.to_vec(),
        rows: rows.collect(),
    })
}

fn evenness(cases: [&Rescaled; 2]) -> Page {
    let wide = cases[1];
    Page {
        title: "the shape is kept because nothing is selected",
        words: format!(
            "The write-up is right about the shape: the skewness of a key's weight falls from {} with √d to {} with Σ‖k‖ (d = {}). But the \
             entropy of a row is {:.2} % of that of even weights, and its largest weight {} where even weights are {}. Scores this small \
             reach only the straight part of the softmax, which keeps any shape and selects nothing.",
            digits(by(wide, Divisor::SqrtD, |of| of.skewness)),
            digits(by(wide, Divisor::SumKeyNorms, |of| of.skewness)),
            wide.d,
            100.0 * by(wide, Divisor::SumKeyNorms, |of| of.relative_entropy),
            digits(by(wide, Divisor::SumKeyNorms, |of| of.max_probability)),
            digits(1.0 / N_KEYS as f64),
        ),
        picture: table(
            cases,
            [
                "d",
                "divided by",
                "skewness",
                "entropy / ln n",
                "largest weight",
            ],
            |of| [of.skewness, of.relative_entropy, of.max_probability],
        ),
    }
}

fn arriving(cases: [&Rescaled; 2]) -> Page {
    let wide = cases[1];
    let arrives = |divisor| by(wide, divisor, |of| of.product_gradient);
    Page {
        title: "the division divides gradients too",
        words: format!(
            "The write-up expects that gradients vanish less. The softmax does pass more: the trace of its Jacobian is {} with Σ‖k‖, {} \
             with √d, at most {}. But the gradient of a score is divided on its way to q·k, as the score was: with Σ‖k‖ {:.0} times less \
             arrives there than with √d (d = {}).",
            digits(by(wide, Divisor::SumKeyNorms, |of| of.jacobian_trace)),
            digits(by(wide, Divisor::SqrtD, |of| of.jacobian_trace)),
            digits(1.0 - 1.0 / N_KEYS as f64),
            arrives(Divisor::SqrtD) / arrives(Divisor::SumKeyNorms),
            wide.d,
        ),
        picture: table(
            cases,
            [
                "d",
                "divided by",
                "the divisor",
                "softmax passes",
                "arrives at q·k",
            ],
            |of| [of.value, of.jacobian_trace, of.product_gradient],
        ),
    }
}

fn trained_head(telling: &Telling<'_>) -> Result<Page> {
    let (layer_idx, head_idx) = telling.story.at;
    let bundle = telling.story.bundle;
    let ran = [
        Ran::of(telling, bundle, &[])?,
        Ran::with(telling, bundle, &[], telling.story.what_if)?,
    ];
    let [loss, other] = [0, 1].map(|nth| ran[nth].loss().map_or_else(|| "–".to_owned(), digits));
    let map = |nth: usize| {
        head_map(
            &format!("L{layer_idx}H{head_idx}, {}", RULES[nth].1),
            &ran[nth],
            telling.story.at,
        )
    };
    Ok(Page {
        title: "a trained head, divided otherwise",
        words: format!(
            "L{layer_idx}H{head_idx} of a small transformer finds what followed the last time. It was trained with √d (left). Divided by \
             Σ‖k‖ its rows are nearly even and it finds nothing (right): the loss of this text goes from {loss} to {other} nats per token. \
             7 shows every figure of both, w tries another divisor.",
        ),
        picture: Picture::Maps(vec![map(0), map(1)]),
    })
}

fn chart(records: &[Value; 2], title: &str, y: Axis, pointer: &str) -> Chart {
    let each = RULES.iter().zip(records);
    let each = each.map(|((_, name), record)| Series::line(*name, curve(record, pointer)));
    Chart {
        title: title.to_owned(),
        x: Axis::linear("step"),
        y,
        series: each.collect(),
        marks: Vec::new(),
    }
}

/// The first step at which the second copy is predicted.
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
            Some(step) => format!("with {name} after {step} steps"),
            None => format!("with {name} never"),
        });
    let when: Vec<String> = when.collect();
    Page {
        title: "the same training, another divisor",
        words: format!(
            "Two models of two layers begin with the same weights and see the same batches: 24 random tokens, and the same 24 again. The \
             second copy can be predicted from what followed in the first, which needs sharp attention. A model knows this when its loss \
             on the second copy falls below half a nat: {}.",
            when.join(", ")
        ),
        picture: Picture::Charts(vec![
            chart(
                records,
                "loss on the second copy",
                Axis::linear("nats per token").from(0.0),
                "/loss_second",
            ),
            chart(
                records,
                "entropy of the weights",
                Axis::linear("share of even weights").from(0.0).to(1.0),
                "/relative_entropy",
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
        title: "what arrives in training",
        words: format!(
            "The length of the loss's gradient at the scores, alone and as a share of that at the weights. Even weights pass as much as a \
             softmax can. But a key that gets no attention yet has no part in the loss, and teaches little: at step {EARLY} the scores get \
             {} with √d and {} with Σ‖k‖. The gradients of q and k are divided once more, so q and k take longer to grow apart.",
            digits(early[0]),
            digits(early[1])
        ),
        picture: Picture::Charts(vec![
            chart(
                records,
                "gradient at the scores / at the weights",
                Axis::linear("share").from(0.0),
                "/let_through",
            ),
            chart(
                records,
                "gradient at the scores",
                Axis::logarithmic("length"),
                "/score_gradient",
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
            "After {step} steps both know the task. Dividing by the sum of key norms costs time: q and k have to grow until their products \
             make up for a divisor that is about n times as large and that grows with k itself. It buys softer weights: the same loss, \
             with more keys in sight."
        ),
        picture: Picture::Table(Table {
            titles: vec!["figure", RULES[0].1, RULES[1].1],
            rows: rows.collect(),
        }),
    }
}
