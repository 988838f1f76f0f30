//! Readings as explanations of another program: ways in which an engine that serves a model, or a trainer, may run it otherwise than its
//! files say.
//!
//! Beside the catalogue of readings these are: windows of twice and half the width, no sinks, no softcap on logits, no scaling of rotary
//! embeddings or another of its variants, no factor of embeddings or logits, positions that are counted on from a later token as behind another prefix or over padding,
//! another temperature, and what serving does to keys, values and weights.

use std::sync::Arc;

use attnscope_compute::attention::{AttentionOverride, MaskOverride, RopeScaling, Scale, Window};
use attnscope_compute::kernels::BlockFormat;
use attnscope_spec::{BlockSpec, Model, ModelSpec};

use super::as_it_stands::can_run;
use super::candidate_readings::{pairs_of, together_with};
use super::texts::Text;
use super::{IsLocal, Known, PositionsAs, Reading, everywhere, labels, local, silence};
use crate::what_if::{WhatIf, with_what_ifs};

/// Family of readings that only another program is read by.
const FAMILY: &str = "engine";

/// What serving does, as what-ifs.
const WHAT_IFS: &[&str] = &[
    "kv=fp8",
    "kv=fp8_e5m2",
    "kv=int8",
    "kv=int4",
    "kv=bf16",
    "kv=f16",
    "weights=bf16",
    "weights=f16",
    "weights=fp8",
    "weights=fp8_channel",
];

/// Numbers of keys that sparse attention or a streaming cache may keep.
const KEPT: [usize; 9] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048];

/// Tokens before the first that departs at which its cause may lie.
const FIRST_REACH: usize = 4;

/// All readings of whole models that may explain another program. `first` is the token from which on it departs.
pub fn engine_readings(model: &Model, texts: &[Text], first: Option<usize>) -> Vec<Reading> {
    let known = Known::of(model, texts);
    let foreign = [labels::FAMILY.id, silence::FAMILY.id];
    let mut all = everywhere(&known);
    all.retain(|reading| !foreign.contains(&reading.hypothesis.family));
    all.extend(settings(&known));
    all.extend(moved(&known, first));
    all.extend(served(&known));
    let declared = Reading::declared();
    let mut distinct: Vec<Reading> = Vec::with_capacity(all.len());
    for reading in all {
        let is_new = !distinct.iter().any(|other| other.does_the_same(&reading));
        if is_new && !reading.does_the_same(&declared) && can_run(model, &reading) {
            distinct.push(reading);
        }
    }
    let pairs = pairs_of(&distinct);
    distinct.extend(pairs.into_iter().filter(|pair| can_run(model, pair)));
    distinct
}

/// The same readings in one layer each.
pub fn layers_of(model: &Model, readings: &[Reading]) -> Vec<Reading> {
    let alone = local(model, readings, IsLocal::InLayers).into_iter();
    alone.filter(|reading| can_run(model, reading)).collect()
}

/// A reading together with each other one that it leaves open.
pub fn with_second(model: &Model, texts: &[Text], first: &Reading) -> Vec<Reading> {
    let mut both = together_with(model, texts, first);
    both.retain(|pair| pair.offset == first.offset);
    both
}

/// A number of the model that may have any other value.
#[derive(Debug, Clone, Copy)]
pub struct Dial {
    /// Factors of the declared value, rising, between which the best is looked for.
    pub factors: &'static [f64],
    /// The reading with the declared value times a factor; `None` where the model has no such number.
    pub reading: fn(&Model, f64) -> Option<Reading>,
}

/// All of them: temperature, scale of scores, rotary base.
pub const DIALS: [Dial; 3] = [
    Dial {
        factors: &[
            0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0,
        ],
        reading: tempered,
    },
    Dial {
        factors: &[
            0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0,
        ],
        reading: scaled,
    },
    Dial {
        factors: &[
            0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 1.5, 2.0, 3.0, 5.0, 8.0, 20.0, 100.0,
        ],
        reading: based,
    },
];

/// A number in three digits.
fn in_three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// The declared model with logits divided by a temperature.
fn tempered(model: &Model, temperature: f64) -> Option<Reading> {
    let temperature = in_three_digits(temperature);
    let mut spec = model.spec.clone();
    let head = spec.head.as_mut()?;
    // A factor stands before a softcap and a bias, a temperature behind them.
    if head.softcap.is_some() || head.extra_bias.is_some() {
        return None;
    }
    head.scale = (f64::from(head.scale) / temperature) as f32;
    let name = format!("a temperature of {temperature}");
    Some(Reading::new(FAMILY, name, "").with_weights(Arc::new(spec)))
}

/// The declared model with scores multiplied by a factor.
fn scaled(_: &Model, factor: f64) -> Option<Reading> {
    let factor = in_three_digits(factor);
    let odd = AttentionOverride {
        scale: factor as f32,
        ..AttentionOverride::NONE
    };
    let name = format!("scores multiplied by {factor}");
    Some(
        Reading::new(
            FAMILY,
            name,
            format!("--what-if temperature={}", in_three_digits(1.0 / factor)),
        )
        .odd(odd),
    )
}

/// The declared model with another rotary base.
fn based(model: &Model, factor: f64) -> Option<Reading> {
    let known = Known::of(model, &[]);
    let mut base = None;
    let spec = known.with_blocks(|block| {
        if let Some(own) = block.own_mut()
            && let Some(rope) = &mut own.attention.rope
        {
            rope.theta = in_three_digits(factor * rope.theta);
            base = base.or(Some(rope.theta));
        }
    })?;
    let base = base?;
    let advice = format!("--set rope_theta={base}");
    Some(Reading::new(FAMILY, format!("a rotary base of {base}"), advice).with_attention(spec))
}

/// Settings of the architecture that an engine may not know.
fn settings(known: &Known<'_>) -> Vec<Reading> {
    let blocks = |name: &str, change: &dyn Fn(&mut BlockSpec)| {
        let spec = known.with_blocks(change)?;
        let reading = Reading::new(FAMILY, name, "").with_weights(spec);
        Some(reading.local(IsLocal::InLayers))
    };
    let whole = |name: &str, change: &dyn Fn(&mut ModelSpec)| {
        let mut spec = known.spec().clone();
        change(&mut spec);
        let is_other = spec != *known.spec();
        is_other.then(|| Reading::new(FAMILY, name, "").with_weights(Arc::new(spec)))
    };
    let width = |by: fn(usize) -> usize| {
        move |block: &mut BlockSpec| {
            if let Some(own) = block.own_mut()
                && let Some(window) = own.attention.mask.window
            {
                own.attention.mask.window = Some(resized(window, by));
            }
        }
    };
    let swapped = known
        .blocks()
        .find_map(|block| block.attention()?.mask.window);
    [
        blocks(
            "windows in the layers that have none, and none in the others",
            &|block| {
                if let Some(own) = block.own_mut() {
                    let mask = &mut own.attention.mask;
                    mask.window = if mask.window.is_some() { None } else { swapped };
                }
            },
        ),
        blocks("windows of twice the width", &width(|width| 2 * width)),
        blocks("windows of half the width", &width(|width| width / 2)),
        blocks("no sinks", &|block| {
            if let Some(own) = block.own_mut() {
                own.projections.sinks = None;
            }
        }),
        blocks("no scaling of rotary embeddings", &|block| {
            if let Some(own) = block.own_mut()
                && let Some(rope) = &mut own.attention.rope
            {
                (rope.scaling, rope.magnitude) = (RopeScaling::None, 1.0);
            }
        }),
        blocks("rotary embeddings without their magnitude", &|block| {
            if let Some(own) = block.own_mut()
                && let Some(rope) = &mut own.attention.rope
            {
                rope.magnitude = 1.0;
            }
        }),
        rescaled(
            known,
            "the ends of yarn's ramp rounded to whole dimensions",
            |own| {
                if let RopeScaling::Yarn { truncates, .. } = own {
                    *truncates = true;
                }
            },
        ),
        rescaled(known, "the ends of yarn's ramp not rounded", |own| {
            if let RopeScaling::Yarn { truncates, .. } = own {
                *truncates = false;
            }
        }),
        // Engines choose once, by the length that they have room for.
        rescaled(
            known,
            "the factors of longrope for long texts at every length",
            |own| {
                if let RopeScaling::Long { short, long, .. } = own {
                    short.clone_from(long);
                }
            },
        ),
        rescaled(
            known,
            "the factors of longrope for short texts at every length",
            |own| {
                if let RopeScaling::Long { short, long, .. } = own {
                    long.clone_from(short);
                }
            },
        ),
        by_layer(known),
        whole("no softcap on logits", &|spec| {
            if let Some(head) = &mut spec.head {
                head.softcap = None;
            }
        }),
        whole("logits without their factor", &|spec| {
            if let Some(head) = &mut spec.head {
                head.scale = 1.0;
            }
        }),
        whole("embeddings without their factor", &|spec| {
            let stacks = spec.stacks.iter_mut();
            stacks.for_each(|stack| stack.embed.scale = 1.0);
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Rotary embeddings with their scaling changed; `None` where the change does nothing.
fn rescaled(known: &Known<'_>, name: &str, change: fn(&mut RopeScaling)) -> Option<Reading> {
    let spec = known.with_blocks(|block| {
        if let Some(own) = block.own_mut()
            && let Some(rope) = &mut own.attention.rope
        {
            change(&mut rope.scaling);
        }
    })?;
    let reading = Reading::new(FAMILY, name, "").with_attention(spec);
    Some(reading.local(IsLocal::InLayers))
}

/// Scores of each layer divided by its number from 1, as `scale_attn_by_inverse_layer_idx` of GPT-2 does.
fn by_layer(known: &Known<'_>) -> Option<Reading> {
    let mut number = 0.0;
    let spec = known.with_blocks(|block| {
        number += 1.0;
        if let Some(own) = block.own_mut()
            && !matches!(own.attention.scale, Scale::OfKeys(_))
        {
            let factor = own.attention.scale.factor(own.attention.d_head);
            own.attention.scale = Scale::Factor(factor / number);
        }
    })?;
    Some(
        Reading::new(FAMILY, "scores of each layer divided by its number", "").with_attention(spec),
    )
}

/// A window with its width changed, never below one key.
fn resized(window: Window, by: fn(usize) -> usize) -> Window {
    let width = window.size();
    window.wider(by(width) as isize - width as isize)
}

/// Positions that another prefix or padding moved.
fn moved(known: &Known<'_>, first: Option<usize>) -> Vec<Reading> {
    let reading = |name: String, positions: PositionsAs| Reading {
        positions,
        ..Reading::new(FAMILY, name, "")
    };
    let mut all = Vec::new();
    let has_table = known.spec().main_stack().embed.positions.is_some();
    if has_table {
        let room = known.spec().n_ctx.unwrap_or(usize::MAX);
        for by in 3..=16isize {
            if known.first_position + known.n_longest + by as usize <= room {
                let name = format!("positions counted over {by} tokens of padding");
                all.push(reading(name, PositionsAs::Shifted(by)));
            }
        }
    }
    // What departs first may be hidden by rounding for some tokens.
    for at in first
        .into_iter()
        .flat_map(|first| first.saturating_sub(FIRST_REACH)..=first)
    {
        // The first token that departs is predicted from a query that no longer sees the first key.
        let odd = AttentionOverride {
            sight: Some(MaskOverride::Window(at)),
            ..AttentionOverride::NONE
        };
        if at >= 2 {
            let advice = format!("--set window={at}");
            let window = Reading::new(FAMILY, format!("a window of {at} keys"), advice).odd(odd);
            all.push(window.local(IsLocal::InLayers));
        }
        if at == 0 || at >= known.n_longest {
            continue;
        }
        for (by, name) in [
            (
                -(at as isize),
                format!("positions that begin again at token {at}"),
            ),
            (
                -1,
                format!("positions that fall behind by 1 from token {at} on"),
            ),
            (
                1,
                format!("positions that run ahead by 1 from token {at} on"),
            ),
        ] {
            all.push(reading(name, PositionsAs::MovedFrom { at, by }));
        }
    }
    all
}

/// What serving does to keys, values, weights and the keys that are kept, by the same words as `--what-if`.
fn served(known: &Known<'_>) -> Vec<Reading> {
    let spec = known.spec();
    let with = |words: String| {
        let what_if = WhatIf::new(&words, Vec::new()).ok()?;
        let changed = with_what_ifs(spec, &[what_if]).ok()?;
        let advice = format!("--what-if {words}");
        Some(Reading::new(FAMILY, words, advice).with_weights(Arc::new(changed)))
    };
    let kept = KEPT.into_iter().filter(|n| *n < known.n_longest);
    let kept = kept.flat_map(|n| {
        [
            format!("top_k_keys={n}"),
            format!("kv_window={n}+sinks:4"),
            format!("kv_window={}+sinks:4", n - 4),
        ]
    });
    let formats = WHAT_IFS.iter().map(|words| (*words).to_owned());
    // Rows that a format does not divide get another one, which is tried by its own name.
    let width = spec.d_model;
    let fits = |format: &BlockFormat| format.of_width(width) == Some(*format);
    let blocks = BlockFormat::ALL.into_iter().filter(fits);
    let blocks = blocks.map(|format| format!("weights={format}"));
    formats.chain(blocks).chain(kept).filter_map(with).collect()
}
