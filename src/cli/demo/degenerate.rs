//! The story of the softmax over the wrong axis: two checkpoints that began alike, one of which learned to read the answers.

use anyhow::Result;
use attnscope_compute::attention::Pooled;
use attnscope_compute::ops::Compute;
use attnscope_report::chart::{Axis, Chart, Series};
use attnscope_report::{Map, Page, Passage, Picture, Sheet, Table, digits};
use attnscope_run::Pyramid;
use serde_json::Value;

use super::ran::Ran;
use super::story::Telling;
use super::twins::{curve, number, pattern_map, range, record};
use super::watched;

/// Checkpoint, axis, and what that is.
const READINGS: [(&str, &str, &str); 4] = [
    ("degenerate", "queries", "as it was trained"),
    ("degenerate", "keys", "axis put right"),
    ("healthy", "keys", "as it was trained"),
    ("healthy", "queries", "wrong axis"),
];

pub fn pages(telling: &Telling<'_>) -> Result<Vec<Page>> {
    let read = |(bundle, axis, _): (&'static str, &str, &str)| {
        let set = [("softmax_axis".to_owned(), axis.to_owned())];
        Ran::of(telling, bundle, &set)
    };
    let ran = READINGS.into_iter().map(read).collect::<Result<Vec<_>>>()?;
    let records = [record("degenerate")?, record("healthy")?];
    let (degenerate, healthy) = (&ran[0], &ran[2]);
    Ok(vec![
        losses(&records),
        predictions(degenerate, healthy),
        maps(degenerate, healthy),
        influence(telling.compute, degenerate, healthy)?,
        written(&records),
        put_right(&ran),
        watched::page()?,
    ])
}

fn losses([degenerate, healthy]: &[Value; 2]) -> Page {
    let entropy = number(&degenerate["source"]["loss_on_prompts"]);
    let lines = [
        ("over queries", degenerate, "/prompts_as_trained"),
        ("over keys", healthy, "/prompts_as_trained"),
        (
            "trained over queries, run over keys",
            degenerate,
            "/prompts_as_declared",
        ),
    ];
    let mut series: Vec<Series> = lines
        .map(|(name, record, key)| Series::line(name, curve(record, key)))
        .into();
    let steps = series[0].points.iter().map(|(step, _)| (*step, entropy));
    series.push(Series::line("entropy of the grammar", steps.collect()));
    Page {
        title: "a loss too good to be true",
        words: format!(
            "The demo retells a write-up on a GPT whose softmax ran over queries instead of keys (docs/wrong_axis.md). Two GPT-2s of 2 layers \
             began with the same weights and saw the same stories; one has that mistake. Its loss on texts it never saw falls to {:.2} \
             nats per word. The grammar that wrote them has an entropy of {entropy:.2}: nothing that reads only the past can do better. \
             This is not overfitting, since these texts are new to it. And no mask is missing.",
            number(&degenerate["prompts"]["readings"][1]["loss"]),
        ),
        picture: Picture::Charts(vec![Chart {
            title: "loss on held-out stories, stored at training".to_owned(),
            x: Axis::linear("step"),
            y: Axis::linear("nats per word").from(0.0),
            series,
            marks: Vec::new(),
        }]),
    }
}

/// The three likeliest words after each word, of both.
fn predictions(degenerate: &Ran, healthy: &Ran) -> Page {
    let labels = degenerate.labels();
    let rows = (0..labels.len()).map(|idx| {
        let next = labels.get(idx + 1).cloned().unwrap_or_default();
        let of = [degenerate, healthy].map(|ran| ran.likeliest(idx));
        let own = [labels[idx].clone(), next];
        own.into_iter().chain(of.into_iter().flatten()).collect()
    });
    Page {
        title: "it predicts the word it has read",
        words: "At nearly every word the degenerate one gives the word that follows nearly all of the probability, and what comes \
                second and third is unlikely by orders of magnitude. Its healthy twin spreads its guesses over words that would fit."
            .to_owned(),
        picture: Picture::Table(Table {
            titles: vec![
                "word",
                "followed by",
                "degenerate: 1st",
                "2nd",
                "3rd",
                "healthy: 1st",
                "2nd",
                "3rd",
            ],
            rows: rows.collect(),
        }),
    }
}

fn maps(degenerate: &Ran, healthy: &Ran) -> Page {
    Page {
        title: "the mask looks right, the sums do not",
        words: "Both patterns are 0 above the diagonal, so a test of the mask passes. But columns of the degenerate one sum to 1 and \
                rows to anything: what a query gets depends on the queries after it, that share its keys. The last cell of \
                the diagonal is 1, since no other query sees the last key."
            .to_owned(),
        picture: Picture::Maps(vec![
            pattern_map("degenerate, over queries", degenerate),
            pattern_map("healthy, over keys", healthy),
        ]),
    }
}

/// What moves before a word that is changed: what comes after may, and is left out.
struct Leak {
    map: Map,
    n_moved: usize,
    n_looked_at: usize,
    worst: String,
}

fn leak(compute: &Compute, title: &str, ran: &Ran) -> Result<Option<Leak>> {
    let Some(probe) = ran.future(compute)? else {
        return Ok(None);
    };
    let labels = ran.labels();
    let mut influence = probe.influence;
    let n = influence.n_positions;
    let rows = influence.moved.chunks_mut(n.max(1));
    let (mut n_moved, mut n_looked_at) = (0, 0);
    for (row, changed) in rows.zip(&influence.changed) {
        let (before, after) = row.split_at_mut(*changed);
        n_moved += before.iter().filter(|moved| **moved > 0.0).count();
        n_looked_at += before.len();
        after.fill(f32::NEG_INFINITY);
    }
    let worst = probe.worst.map_or(String::new(), |worst| {
        format!(
            ", most “{}” at {} when “{}” after it is changed, by {:.2} of the largest value",
            labels[worst.moved], worst.moved, labels[worst.changed], worst.amount
        )
    });
    let changed = influence.changed.iter().map(|idx| labels[*idx].clone());
    let cells = Pooled {
        n_rows: influence.changed.len(),
        n_cols: n,
        queries_per_cell: 1,
        keys_per_cell: 1,
        cells: influence.moved,
    };
    let map = Map {
        title: title.to_owned(),
        row_labels: changed.collect(),
        column_labels: labels,
        is_pattern: false,
        sheets: vec![vec![Sheet::without_sums(Pyramid::new(cells))]],
    };
    Ok(Some(Leak {
        map,
        n_moved,
        n_looked_at,
        worst,
    }))
}

fn influence(compute: &Compute, degenerate: &Ran, healthy: &Ran) -> Result<Page> {
    let both = [
        leak(compute, "degenerate: changed ↓ moved →", degenerate)?,
        leak(compute, "healthy: changed ↓ moved →", healthy)?,
    ];
    let count = |nth: usize| {
        let leak: Option<&Leak> = both[nth].as_ref();
        leak.map_or("none".to_owned(), |leak| {
            format!("{} of {}", leak.n_moved, leak.n_looked_at)
        })
    };
    let worst = both[0].as_ref().map_or("", |leak| leak.worst.as_str());
    let words = format!(
        "One word is changed at a time, and every output before it looked at: in a causal model none may move. In the degenerate one \
         {} do{worst}; in the healthy one {}. This is what the check future-leak does (6, then p): it finds leaks that no \
         pattern shows.",
        count(0),
        count(1)
    );
    Ok(Page {
        title: "the past moves when the future changes",
        words,
        picture: Picture::Maps(both.into_iter().flatten().map(|leak| leak.map).collect()),
    })
}

fn written(records: &[Value; 2]) -> Page {
    let passages = ["degenerate", "healthy"]
        .iter()
        .zip(records)
        .flat_map(|(name, record)| {
            let as_trained = &record["trained_with"];
            let texts = record["written"]["texts"].as_array().into_iter().flatten();
            let own = texts.filter(move |text| text["reading"] == *as_trained);
            own.map(move |text| {
                let how = match text["words"].as_str() {
                    Some("likeliest") => "the likeliest word each time",
                    _ => "words drawn from its probabilities",
                };
                Passage {
                    title: format!("{name}, {how}"),
                    text: text["text"].as_str().unwrap_or_default().to_owned(),
                }
            })
        });
    let after = records[0]["written"]["after"].as_str().unwrap_or_default();
    Page {
        title: "what it writes is gibberish",
        words: format!(
            "A text that is being written has no later words to read from. After “{after}” each twin went on, read as it was trained \
             (stored at training). The model with the better loss has learned no language."
        ),
        picture: Picture::Passages(passages.collect()),
    }
}

fn put_right(ran: &[Ran]) -> Page {
    let rows = READINGS.iter().zip(ran).map(|((bundle, axis, what), ran)| {
        let summaries = || ran.summaries();
        let masses = summaries().flat_map(|summary| summary.rows.iter().map(|row| row.mass));
        let columns = summaries().flat_map(|summary| summary.column_sums.iter().copied());
        vec![
            format!("{bundle}, {what}"),
            (*axis).to_owned(),
            ran.loss().map_or("-".to_owned(), digits),
            range(masses),
            range(columns),
        ]
    });
    Page {
        title: "putting the axis right does not mend it",
        words: "The same weights with the softmax over keys lose far more than a guess by how often words come: what they know is how \
                to read the answer. Training again is the only cure. v shows every panel with the axis put right, 7 both at once; \
                where nothing declares the axis, trained-otherwise infers it from these losses."
            .to_owned(),
        picture: Picture::Table(Table {
            titles: vec![
                "checkpoint",
                "over",
                "loss, nats",
                "row sums",
                "column sums",
            ],
            rows: rows.collect(),
        }),
    }
}
