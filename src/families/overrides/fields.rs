//! The keys of `--set`, what each takes, and how its value is checked.

use attnscope_compute::attention::{RopeDirection, RopePrecision, Scale, SoftmaxAxis};

use super::given::{Given, LAYERS, POOLED, layers, pooled};
use crate::reading::described::{every_nth, sides};
use crate::reading::{global_tokens, is_activation};

/// Larger sizes are slips, not models.
const LARGEST: usize = 1 << 26;

/// A key, what it takes, and how its value is read.
pub(super) struct Field {
    pub name: &'static str,
    pub takes: &'static str,
    pub read: fn(&str) -> Option<Given>,
}

/// Every key, in the order in which messages list them.
pub(super) static FIELDS: &[Field] = &[
    field("family", "a family's name", |text| {
        Some(Given::Config(text.into()))
    }),
    field("n_layers", SIZE, size),
    field("n_heads", SIZE, size),
    field("n_kv_heads", SIZE, size),
    field("d_head", SIZE, size),
    field("d_value", SIZE, size),
    field("d_mlp", SIZE, size),
    field("n_ctx", SIZE, size),
    field("scale", "inv_sqrt_d, inv_d, none or a number", |text| {
        Some(Given::Scale(match text {
            "inv_sqrt_d" => Scale::InvSqrtD,
            "inv_d" => Scale::InvD,
            "none" => Scale::One,
            number => Scale::Factor(finite(number).filter(|n| *n != 0.0)? as f32),
        }))
    }),
    field(
        "softmax_axis",
        "keys, queries or heads",
        |text| match text {
            "keys" => Some(Given::SoftmaxAxis(SoftmaxAxis::Keys)),
            "queries" => Some(Given::SoftmaxAxis(SoftmaxAxis::Queries)),
            "heads" => Some(Given::SoftmaxAxis(SoftmaxAxis::Heads)),
            _ => None,
        },
    ),
    field("mask", "causal or bidirectional", |text| match text {
        "causal" => Some(Given::Causal(true)),
        "bidirectional" => Some(Given::Causal(false)),
        _ => None,
    }),
    field(
        "window",
        "none or a whole number from 1",
        |text| match text {
            "none" => Some(Given::Window(None)),
            width => whole(width).map(|width| Given::Window(Some(width))),
        },
    ),
    field("window_layers", "STEP*i+FIRST, as in 2*i+0", |text| {
        let (step, first) = every_nth(text)?;
        (first < step).then_some(Given::WindowLayers(step, first))
    }),
    field("attention_layers", LAYERS, layers),
    field("feed_forward_layers", LAYERS, layers),
    field("top_keys", SIZE, size),
    field("softcap", "none or a number above 0", |text| match text {
        "none" => Some(Given::Softcap(None)),
        cap => above_zero(cap).map(|cap| Given::Softcap(Some(cap as f32))),
    }),
    field("rope_theta", "a number above 0", |text| {
        above_zero(text).map(Given::RopeTheta)
    }),
    field("window_rope_theta", "a number above 0", |text| {
        above_zero(text).map(Given::WindowRopeTheta)
    }),
    field("rope_interleaved", "true or false", |text| {
        text.parse().ok().map(Given::RopeInterleaved)
    }),
    field(
        "rope_divisors",
        "a number above 0 for each pair, as in 1 1 4",
        |text| {
            let are_numbers = text
                .split_whitespace()
                .all(|word| above_zero(word).is_some());
            (are_numbers && !text.trim().is_empty()).then(|| Given::Config(text.into()))
        },
    ),
    field(
        "rope_precision",
        "float32, bfloat16 or float16, of cosines and sines",
        |text| one_of(text, &RopePrecision::ALL.map(RopePrecision::name)),
    ),
    field("rope_direction", "forward or backward", |text| match text {
        "forward" => Some(Given::RopeDirection(RopeDirection::Forward)),
        "backward" => Some(Given::RopeDirection(RopeDirection::Backward)),
        _ => None,
    }),
    field("norm_eps", "a number from 0", |text| {
        let eps = finite(text).filter(|eps| *eps >= 0.0)?;
        Some(Given::Config(eps.into()))
    }),
    field(
        "activation",
        "an activation function: gelu, gelu_new, relu, silu, …",
        |text| is_activation(text).then(|| Given::Config(text.into())),
    ),
    field("norm_first", "true or false", |text| {
        let first: bool = text.parse().ok()?;
        Some(Given::Config(first.into()))
    }),
    field("norm", "layer or rms", |text| {
        one_of(text, &["layer", "rms"])
    }),
    field("norm_adds_one", "true or false", |text| {
        let adds: bool = text.parse().ok()?;
        Some(Given::Config(adds.into()))
    }),
    field("norms_after_rope", "true or false", |text| {
        let after: bool = text.parse().ok()?;
        Some(Given::Config(after.into()))
    }),
    field("block", "serial or parallel", |text| {
        one_of(text, &["serial", "parallel"])
    }),
    field(
        "head_activation",
        "an activation function, of the layer before the unembedding",
        |text| is_activation(text).then(|| Given::Config(text.into())),
    ),
    field(
        "out_activation",
        "an activation function, of what a feed-forward layer's second map gives",
        |text| is_activation(text).then(|| Given::Config(text.into())),
    ),
    field("head", "any or none", |text| one_of(text, &["any", "none"])),
    field("residual", "added or none", |text| {
        one_of(text, &["added", "none"])
    }),
    field("pooled", POOLED, pooled),
    field("picture_size", SIDES, |text| {
        sides(text).map(|_| Given::Config(text.into()))
    }),
    field("patch_order", "channels_first or channels_last", |text| {
        one_of(text, &["channels_first", "channels_last"])
    }),
    field("picture_mean", COLOURS, |text| colours(text, |_| true)),
    field("picture_std", COLOURS, |text| {
        colours(text, |value| value != 0.0)
    }),
    field("d_rotary", SIZE, size),
    field(
        "embed_scale",
        "none, a number or sqrt_d",
        |text| match text {
            "sqrt_d" => Some(Given::Config(text.into())),
            "none" => Some(Given::Config(1.0.into())),
            number => finite(number).map(|scale| Given::Config(scale.into())),
        },
    ),
    field(
        "positions",
        "none or sines; of a described model also sines_halves, sines_halves_to_end, cosines_to_end, rotary or alibi",
        |text| match text {
            "none" => Some(Given::NoPositions),
            word => one_of(
                word,
                &[
                    "sines",
                    "sines_halves",
                    "sines_halves_to_end",
                    "cosines_to_end",
                    "rotary",
                    "alibi",
                ],
            ),
        },
    ),
    field("logit_scale", "a number other than 0", |text| {
        let scale = finite(text).filter(|scale| *scale != 0.0)?;
        Some(Given::LogitScale(scale as f32))
    }),
    field(
        "logit_softcap",
        "none or a number above 0",
        |text| match text {
            "none" => Some(Given::LogitSoftcap(None)),
            cap => above_zero(cap).map(|cap| Given::LogitSoftcap(Some(cap as f32))),
        },
    ),
    field(
        "global_tokens",
        "none, first, question or answer: tokens that see all others",
        |text| one_of(text, &global_tokens::WORDS),
    ),
    field("tower", "text or vision", |text| {
        one_of(text, &["text", "vision"])
    }),
    field("start_token", TOKEN, token),
    field("end_token", TOKEN, token),
    field("language", "a language of speech: en, or english", |text| {
        Some(Given::Config(text.into()))
    }),
    field("task", "transcribe or translate", |text| {
        one_of(text, &["transcribe", "translate"])
    }),
];

/// Every key of `--set` and what it takes.
pub fn settable() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIELDS.iter().map(|field| (field.name, field.takes))
}

const SIZE: &str = "a whole number from 1";
const TOKEN: &str = "a token id";
const SIDES: &str = "a number of pixels, or rows and columns, as in 32 or 32 64";
const COLOURS: &str = "a number, or one for each colour, as in 0.5 or 0.49 0.48 0.45";

const fn field(name: &'static str, takes: &'static str, read: fn(&str) -> Option<Given>) -> Field {
    Field { name, takes, read }
}

fn whole(text: &str) -> Option<usize> {
    text.parse().ok().filter(|n| (1..=LARGEST).contains(n))
}

fn size(text: &str) -> Option<Given> {
    whole(text).map(|size| Given::Config(size.into()))
}

fn token(text: &str) -> Option<Given> {
    let id: u32 = text.parse().ok()?;
    Some(Given::Config(id.into()))
}

fn one_of(text: &str, words: &[&str]) -> Option<Given> {
    words.contains(&text).then(|| Given::Config(text.into()))
}

fn finite(text: &str) -> Option<f64> {
    text.parse().ok().filter(|n: &f64| n.is_finite())
}

fn above_zero(text: &str) -> Option<f64> {
    finite(text).filter(|n| *n > 0.0 && (*n as f32).is_finite() && *n as f32 > 0.0)
}

/// One number, or three.
fn colours(text: &str, fits: impl Fn(f64) -> bool) -> Option<Given> {
    let numbers: Option<Vec<f64>> = text.split_whitespace().map(finite).collect();
    let numbers = numbers.filter(|numbers| [1, 3].contains(&numbers.len()))?;
    let all_fit = numbers.into_iter().all(fits);
    all_fit.then(|| Given::Config(text.into()))
}
