//! The story of what heads do: two heads of the induction demo, found by three measures that know nothing of each other.

use std::ops::ControlFlow;

use anyhow::Result;
use attnscope_checks::stats::HeadType;
use attnscope_compute::error::Error;
use attnscope_compute::on_device;
use attnscope_report::chart::{Axis, Chart, Series};
use attnscope_report::{Page, Picture, Table, digits};
use attnscope_run::input_of;
use attnscope_spec::Place;
use attnscope_studies::effect::{
    Ablation, Asked, Attribution, Circuits, Estimate, Into, Part, Replaced, ShareOf, attribute,
    circuits,
};

use super::ran::Ran;
use super::story::Telling;
use super::twins::head_map;

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
    let effects = effects(&ablation);
    Ok(vec![
        looks(&ran, &effects, &next),
        ablated(&ran, &effects),
        shares(&found, &next),
        path(&found, &next),
        weights(&circuits),
    ])
}

/// What the loss gains without a head, with its interval, and how far the predictions move.
struct Removed {
    place: Place,
    loss: Estimate,
    kl: f64,
}

/// Every head, the one that is missed most first.
fn effects(ablation: &Ablation) -> Vec<Removed> {
    let mut parts: Vec<Removed> = ablation
        .parts
        .iter()
        .filter_map(|effect| {
            Some(Removed {
                place: effect.place,
                loss: effect.loss()?,
                kl: effect.kl()?.mean,
            })
        })
        .collect();
    parts.sort_by(|a, b| b.loss.mean.total_cmp(&a.loss.mean));
    parts
}

/// The places of the head that is missed most in each layer.
fn pair(effects: &[Removed]) -> [Place; 2] {
    let of_layer = |layer_idx: usize| {
        let mut of = effects.iter().map(|of| of.place);
        let found = of.find(|place| place.layer_idx == Some(layer_idx));
        found.unwrap_or(Place::MODEL)
    };
    [of_layer(0), of_layer(1)]
}

/// Where both heads look.
fn looks(ran: &Ran, effects: &[Removed], next: &str) -> Page {
    let [first, second] = pair(effects);
    let map = |place: Place, what: &str| {
        let at = (place.layer_idx.unwrap_or(0), place.head_idx.unwrap_or(0));
        head_map(&format!("{place}, {what}"), ran, at)
    };
    Page {
        title: "two heads that work together",
        words: format!(
            "The text says a sentence twice. Whoever has read it once can repeat it: find the last place with the present word and say what came \
             next there, here “{next}”. Two heads seem to do that: {first} looks one word back, {second} at the word after the earlier copy. \
             But where a head looks does not say what it does. The next pages measure that in three ways."
        ),
        picture: Picture::Maps(vec![
            map(first, "the word before"),
            map(second, "the word after the copy"),
        ]),
    }
}

/// What is worse without each head.
fn ablated(ran: &Ran, effects: &[Removed]) -> Page {
    let [first, second] = pair(effects);
    let kind = |place: Place| {
        let layer = ran.layers.get(place.layer_idx?)?;
        layer.heads.get(place.head_idx?)?.kind
    };
    let rows = effects.iter().map(|of| {
        let (low, high) = of.loss.interval.unwrap_or((f64::NAN, f64::NAN));
        vec![
            of.place.to_string(),
            kind(of.place).map_or("-", HeadType::title).to_owned(),
            digits(of.loss.mean),
            format!("{} … {}", digits(low), digits(high)),
            digits(of.kl),
        ]
    });
    Page {
        title: "take a head away",
        words: format!(
            "Each head in turn writes zeros, and everything after it runs again. The loss grows most without {first}, and in the last layer \
             without {second}: the first writes down which word came before, the second reads that and copies what followed. Where the interval \
             contains 0, the head may not matter here. KL is how far the predictions move."
        ),
        picture: Picture::Table(Table {
            titles: vec![
                "head",
                "looks at",
                "loss, nats",
                "99 % interval",
                "KL, nats",
            ],
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
            "The residual stream is a sum, and the logit of “{next}” is read from it, so that the logit is a sum of what every part wrote. With the \
             last norm held at its scale, the shares add up to {}; the logit is {}. The heads of the last layer write it. The \
             previous-token head has almost no share of its own: it works through them, as the page before shows.",
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
            "The logit of “{next}” as the layers run. After the embedding and the first layer nothing speaks for this word yet. The second \
             layer finds its first copy and adds nearly all of it."
        ),
        picture: Picture::Charts(vec![Chart {
            title: format!("sum of the shares of “{next}”"),
            x: Axis::linear("layers that have run").whole(),
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
        words: "The weights say the same without any text. Copying is 1 if a head raises the logit of every word that it looks at (from the \
                eigenvalues of its map from word to word), −1 if it lowers it: the heads of the last layer copy. The other columns name the \
                earlier head whose output the keys of a head read most (K-composition, above chance): the previous-token head, for the \
                heads that are missed most. 9 measures all this on your own text."
            .to_owned(),
        picture: Picture::Table(Table {
            titles: vec!["head", "copying", "its keys read", "by"],
            rows: rows.collect(),
        }),
    }
}
