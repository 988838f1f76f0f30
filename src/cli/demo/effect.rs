//! The story of what heads do: two heads of the induction demo, found by three measures that know nothing of each other.

use std::ops::ControlFlow;

use anyhow::Result;
use attnscope_compute::error::Error;
use attnscope_compute::on_device;
use attnscope_report::chart::{Axis, Chart, Series};
use attnscope_report::{Page, Picture, Table, digits};
use attnscope_run::input_of;
use attnscope_spec::Place;
use attnscope_studies::effect::{
    Ablation, Asked, Attribution, Circuits, Into, Part, Replaced, ShareOf, attribute, circuits,
};

use super::ran::Ran;
use super::story::Telling;

pub fn pages(telling: &Telling<'_>) -> Result<Vec<Page>> {
    let ran = Ran::of(telling, telling.story.bundle, &[])?;
    let input = input_of(&ran.prompt);
    let n = input.sequence.len();
    // In the middle of the second copy: what follows was read before.
    let position_idx = 3 * n / 4;
    let missing = || Error::Prompt("the text of the story has no next token".to_owned());
    let token = *input
        .sequence
        .tokens
        .get(position_idx + 1)
        .ok_or_else(missing)?;
    let asked = Asked {
        position_idx,
        token,
        against: None,
    };
    let model = &ran.model;
    let wants = |part: Part, _: Place| part == Part::Head;
    let mut ablation = Ablation::plan(model, Replaced::Zero, wants)?;
    let inputs = std::slice::from_ref(&input);
    let mut go_on = |_: &Ablation, _| ControlFlow::Continue(());
    let found = on_device!(telling.compute, ops => {
        ablation.run(ops, model, (inputs, Some(asked)), &mut go_on, &|| false)?;
        attribute(ops, model, &input, asked, &|_, _| false, &|| false)
    })?;
    let circuits = circuits(model, &|_| true, &mut |_, _| {}, &|| false)?;
    let labels = ran.labels();
    let next = labels.get(position_idx + 1).cloned().unwrap_or_default();
    Ok(vec![
        ablated(&ablation),
        shares(&found, &next),
        path(&found, &next),
        weights(&circuits),
    ])
}

/// What is worse without each head.
fn ablated(ablation: &Ablation) -> Page {
    let mut parts: Vec<_> = ablation
        .parts
        .iter()
        .filter_map(|effect| Some((effect.place, effect.loss()?, effect.kl()?.mean)))
        .collect();
    parts.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
    let first = parts
        .first()
        .map_or(String::new(), |(place, ..)| place.to_string());
    let second = parts
        .get(1)
        .map_or(String::new(), |(place, ..)| place.to_string());
    let rows = parts.iter().map(|(place, loss, kl)| {
        let ends = loss.interval.unwrap_or((f64::NAN, f64::NAN));
        vec![
            place.to_string(),
            digits(loss.mean),
            digits(ends.0),
            digits(ends.1),
            digits(*kl),
        ]
    });
    Page {
        title: "take a head away",
        words: format!(
            "Where a head looks does not say what it does. So each head in turn is replaced by zeros, and everything after it runs \
             again. The loss grows most without {first} and {second}: one writes down which word came before, the other reads \
             that and copies what followed."
        ),
        picture: Picture::Table(Table {
            titles: vec!["head", "loss change", "99 % from", "to", "KL"],
            rows: rows.collect(),
        }),
    }
}

/// What adds up to the logit of the next word.
fn shares(found: &Attribution, next: &str) -> Page {
    let mut shares: Vec<_> = found.shares.iter().collect();
    shares.sort_by(|a, b| b.value.abs().total_cmp(&a.value.abs()));
    let name = |of: ShareOf, place: Place| match of {
        ShareOf::Head => place.to_string(),
        ShareOf::FeedForward => format!("{place} feed-forward"),
        of => of.label().replace('_', " "),
    };
    let rows = shares
        .iter()
        .map(|share| vec![name(share.of, share.place), digits(share.value)]);
    let mut rows: Vec<Vec<String>> = rows.collect();
    rows.push(vec!["sum".to_owned(), digits(found.sum())]);
    Page {
        title: "add the logit up",
        words: format!(
            "The residual is a sum, and the logit of “{next}” is read off it: so the logit is a sum of what every part wrote. With \
             the last norm frozen at its scale the shares give {} of a logit of {}. The heads of the last layer write it; the \
             previous-token head has next to no share of its own, since it works through them.",
            digits(found.sum()),
            digits(found.logit)
        ),
        picture: Picture::Table(Table {
            titles: vec!["part", "share"],
            rows,
        }),
    }
}

/// The logit as it grows.
fn path(found: &Attribution, next: &str) -> Page {
    let points = found.path.iter().enumerate();
    let points = points.map(|(depth, logit)| (depth as f64, *logit));
    Page {
        title: "watch it grow",
        words: format!(
            "After the embedding and the first layer nothing speaks for “{next}” yet. The second layer finds the word's first \
             copy and adds nearly all of it."
        ),
        picture: Picture::Charts(vec![Chart {
            title: format!("sum of the shares of “{next}”"),
            x: Axis::linear("layers that have run"),
            y: Axis::linear("logit"),
            series: vec![Series::line("logit", points.collect())],
            marks: Vec::new(),
        }]),
    }
}

/// What the weights say without any text.
fn weights(found: &Circuits) -> Page {
    let mut heads: Vec<_> = found.heads.iter().collect();
    heads.sort_by(|a, b| {
        b.copying
            .unwrap_or(-2.0)
            .total_cmp(&a.copying.unwrap_or(-2.0))
    });
    let rows = heads.into_iter().map(|head| {
        let mut into_keys = found.compositions.iter();
        let best = into_keys.find(|one| one.to == head.place && one.into == Into::Keys);
        vec![
            head.place.to_string(),
            head.copying.map_or_else(|| "-".to_owned(), digits),
            best.map_or_else(|| "-".to_owned(), |one| one.from.to_string()),
            best.map_or_else(|| "-".to_owned(), |one| digits(one.score)),
        ]
    });
    Page {
        title: "read the weights",
        words: "No text is needed to see it. The eigenvalues of what a head does from word to word are nearly all positive in the \
                last layer: whatever these heads look at, they raise. And where most is lost without a head of this layer, its keys read the \
                output of the previous-token head most, of all heads before it (K-composition, less what chance gives)."
            .to_owned(),
        picture: Picture::Table(Table {
            titles: vec!["head", "copying", "keys read", "by"],
            rows: rows.collect(),
        }),
    }
}
