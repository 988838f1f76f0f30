//! Parses changes as the user writes them: `KEY=VALUE`, followed by `@PLACE,…` unless they apply everywhere.

use std::fmt;
use std::str::FromStr;

use attnscope_checkpoint::nearest::did_you_mean;
use attnscope_compute::attention::{
    KeyDivisor, KvFormat, Mask, OfKeys, Scale, SoftmaxAxis, Streaming,
};
use attnscope_compute::kernels::{BlockFormat, NumberFormat};
use attnscope_spec::{Ablation, Place, Places, ScaleOver, WeightFormat};

use super::Change;

/// One change and the places where it applies.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf {
    pub change: Change,
    /// Empty if it applies everywhere.
    at: Vec<Place>,
    /// Its text without the places.
    words: String,
}

/// Every key with its values and its effect.
pub const KEYS: &[(&str, &str, &str)] = &[
    (
        "scale",
        "inv_sqrt_d|none|inv_d|xFACTOR|sum_key_norms|mean_key_norm|rms_key_norm|p_norm:P|n_sqrt_d",
        "what scores are divided by: √d, nothing, d, the present divisor over FACTOR; or, of the keys that a query sees, Σ‖k‖, Σ‖k‖/n, √Σ‖k‖², (Σ‖k‖^P)^(1/P), or n·√d",
    ),
    (
        "softmax_axis",
        "keys|queries|heads",
        "which axis is normalised",
    ),
    (
        "mask",
        "declared|none|causal|window:W",
        "which keys a query sees: as declared, all, none after itself, or the last W",
    ),
    (
        "qk_norm",
        "on|off",
        "queries and keys divided by their root mean squares, head by head",
    ),
    ("temperature", "T", "scores divided by T"),
    ("softcap", "C|off", "scores s become C·tanh(s/C)"),
    (
        "kv",
        "fp8|fp8_e4m3|fp8_e5m2|int8|int4|bf16|f16",
        "keys and values rounded as a KV cache stores them: fp8 with scale 1, int8 and int4 in blocks of 32",
    ),
    (
        "kv_window",
        "N|N+sinks:S",
        "a query sees the last N keys and the first S: a streaming KV cache",
    ),
    (
        "top_k_keys",
        "K|all",
        "each query of each head sees only the K keys with its largest scores; where an indexer picks keys, it picks K; all switches sparse attention off",
    ),
    (
        "weights",
        "bf16|f16|fp8|fp8_channel|q8_0|q6_k|q5_k|q5_1|q5_0|q4_k|q4_1|q4_0|iq4_nl|q3_k|q2_k",
        "weights rounded: all of them to bf16 or f16; maps of layers to fp8, with one scale per matrix or per output; in blocks, as a GGUF file of that type stores them",
    ),
    (
        "drop",
        "zero|mean",
        "a head's output is replaced by zeros, or by its mean over the prompt's real positions",
    ),
];

impl WhatIf {
    /// Parses a change and applies it to some places; everywhere if `at` is empty.
    ///
    /// # Errors
    /// When the key or the value is unknown, or a place names a query or a key.
    pub fn new(words: &str, at: Vec<Place>) -> Result<Self, String> {
        let has_pair = |place: &&Place| place.query_idx.or(place.key_idx).is_some();
        if let Some(place) = at.iter().find(has_pair) {
            return Err(format!(
                "a change is of whole heads; expected a place such as L3H5, found {place}"
            ));
        }
        let (key, value) = words
            .split_once('=')
            .ok_or_else(|| format!("expected KEY=VALUE[@PLACE,…], found {words:?}"))?;
        Ok(Self {
            change: change(key.trim(), value.trim())?,
            at,
            words: format!("{}={}", key.trim(), value.trim()),
        })
    }

    /// The change at one place alone, or at the narrower places within it; `None` if it holds nowhere there.
    pub fn only_at(&self, place: Place) -> Option<Self> {
        let (grid, layer_idx) = (place.grid(), place.layer_idx.unwrap_or(0));
        let here = self.places().into_iter().filter_map(|own| {
            let is_same_layer = own.holds(grid, layer_idx);
            match (own.head_idx, place.head_idx) {
                (Some(own), Some(wanted)) if own != wanted => None,
                (Some(head_idx), None) => is_same_layer.then(|| place.head(head_idx)),
                _ => is_same_layer.then_some(place),
            }
        });
        let at: Vec<Place> = here.collect();
        (!at.is_empty()).then(|| Self { at, ..self.clone() })
    }

    /// The change as it was written, in two parts.
    pub fn key_and_value(&self) -> (&str, &str) {
        self.words.split_once('=').unwrap_or((&self.words, ""))
    }

    pub fn places(&self) -> Vec<Place> {
        if self.at.is_empty() {
            vec![Place::default()]
        } else {
            self.at.clone()
        }
    }
}

fn change(key: &str, value: &str) -> Result<Change, String> {
    let Some((_, takes, _)) = KEYS.iter().find(|(known, ..)| *known == key) else {
        let known: Vec<&str> = KEYS.iter().map(|(key, ..)| *key).collect();
        return Err(format!(
            "unknown key {key:?}{}; expected one of {}",
            did_you_mean(key, known.iter().copied()),
            known.join(", ")
        ));
    };
    let found = match key {
        "scale" => scale(value),
        "softmax_axis" => match value {
            "keys" => Some(Change::SoftmaxAxis(SoftmaxAxis::Keys)),
            "queries" => Some(Change::SoftmaxAxis(SoftmaxAxis::Queries)),
            "heads" => Some(Change::SoftmaxAxis(SoftmaxAxis::Heads)),
            _ => None,
        },
        "mask" => mask(value),
        "qk_norm" => on_off(value).map(Change::QkNorm),
        "temperature" => positive(value).map(Change::Temperature),
        "softcap" if value == "off" => Some(Change::Softcap(None)),
        "softcap" => positive(value).map(|cap| Change::Softcap(Some(cap))),
        "kv" => kv_format(value).map(Change::Cache),
        "kv_window" => kv_window(value),
        "top_k_keys" if value == "all" => Some(Change::TopKeys(None)),
        "top_k_keys" => count(value).map(|n| Change::TopKeys(Some(n))),
        "weights" => weight_format(value).map(Change::Weights),
        _ => match value {
            "zero" => Some(Change::Drop(Ablation::Zero)),
            "mean" => Some(Change::Drop(Ablation::Mean)),
            _ => None,
        },
    };
    found.ok_or_else(|| {
        // A place in the value's stead: what was meant is a drop there.
        let first = value.split(',').next().unwrap_or_default();
        let is_place = key == "drop" && Place::from_str(first.trim()).is_ok();
        let hint = if is_place {
            format!("; places follow @, as in drop=zero@{value}")
        } else {
            String::new()
        };
        format!("{key}: expected {takes}, found {value:?}{hint}")
    })
}

fn scale(value: &str) -> Option<Change> {
    let of_keys = |divisor| {
        Some(Change::Scale(Scale::OfKeys(OfKeys {
            divisor,
            factor: 1.0,
        })))
    };
    let plain = [
        KeyDivisor::SumOfNorms,
        KeyDivisor::MeanNorm,
        KeyDivisor::RootOfSquares,
        KeyDivisor::NSqrtD,
    ];
    if let Some(divisor) = plain.into_iter().find(|known| known.to_string() == value) {
        return of_keys(divisor);
    }
    match value {
        "inv_sqrt_d" => Some(Change::Scale(Scale::InvSqrtD)),
        "inv_d" => Some(Change::Scale(Scale::InvD)),
        "none" => Some(Change::Scale(Scale::One)),
        _ => match value.strip_prefix("p_norm:") {
            // Below 1 it is not a norm; at infinity it is the maximum.
            Some(p) => of_keys(KeyDivisor::PNorm(
                p.parse().ok().filter(|p: &f32| *p >= 1.0)?,
            )),
            None => Some(Change::ScaleBy(positive(value.strip_prefix('x')?)?)),
        },
    }
}

fn mask(value: &str) -> Option<Change> {
    let plain = |causal| {
        Some(Change::Mask(Mask {
            causal,
            window: None,
            streaming: None,
            pools: None,
        }))
    };
    match value {
        "declared" => Some(Change::MaskAsDeclared),
        "none" => plain(false),
        "causal" => plain(true),
        _ => count(value.strip_prefix("window:")?).map(Change::Window),
    }
}

fn kv_format(value: &str) -> Option<KvFormat> {
    Some(match value {
        "fp8" | "fp8_e4m3" => KvFormat::Number(NumberFormat::E4m3),
        "fp8_e5m2" => KvFormat::Number(NumberFormat::E5m2),
        "bf16" => KvFormat::Number(NumberFormat::Bf16),
        "f16" => KvFormat::Number(NumberFormat::F16),
        "int8" => KvFormat::Int8,
        "int4" => KvFormat::Int4,
        _ => return None,
    })
}

fn kv_window(value: &str) -> Option<Change> {
    let (recent, sinks) = match value.split_once("+sinks:") {
        Some((recent, sinks)) => (recent, sinks.parse().ok()?),
        None => (value, 0),
    };
    let recent = count(recent)?;
    Some(Change::Streaming(Streaming { recent, sinks }))
}

fn weight_format(value: &str) -> Option<WeightFormat> {
    Some(match value {
        "bf16" => WeightFormat::Number(NumberFormat::Bf16),
        "f16" => WeightFormat::Number(NumberFormat::F16),
        "fp8" => WeightFormat::Fp8(ScaleOver::Map),
        "fp8_channel" => WeightFormat::Fp8(ScaleOver::Channel),
        other => WeightFormat::Blocks(BlockFormat::named(other)?),
    })
}

/// Parses a number of keys; there is at least one.
fn count(text: &str) -> Option<usize> {
    text.parse().ok().filter(|n| *n > 0)
}

fn on_off(value: &str) -> Option<bool> {
    match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// Parses a positive finite number.
fn positive(text: &str) -> Option<f32> {
    let value: f32 = text.parse().ok()?;
    (value.is_finite() && value > 0.0).then_some(value)
}

impl FromStr for WhatIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (words, places) = match text.split_once('@') {
            Some((words, places)) => (words, Some(places)),
            None => (text, None),
        };
        let at = places.map(Places::from_str).transpose()?;
        Self::new(words, at.map_or(Vec::new(), |places| places.0))
    }
}

impl fmt::Display for WhatIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)?;
        let at: Vec<String> = self.at.iter().map(Place::to_string).collect();
        if at.is_empty() {
            Ok(())
        } else {
            write!(f, "@{}", at.join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_parse_and_print_as_the_same_text() {
        for text in [
            "scale=inv_sqrt_d",
            "scale=none",
            "scale=inv_d",
            "scale=x0.5",
            "scale=sum_key_norms",
            "scale=mean_key_norm",
            "scale=rms_key_norm",
            "scale=p_norm:3",
            "scale=n_sqrt_d",
            "softmax_axis=queries@L0,L2H1",
            "mask=declared",
            "mask=none@encoder.L1",
            "mask=causal",
            "mask=window:16",
            "qk_norm=on@cross.L1",
            "temperature=2",
            "softcap=30",
            "softcap=off",
            "kv=fp8",
            "kv=fp8_e5m2@L1",
            "kv=int4@L0H2",
            "kv_window=64",
            "kv_window=1020+sinks:4",
            "top_k_keys=8@L2",
            "top_k_keys=all",
            "weights=bf16",
            "weights=fp8_channel@L1",
            "weights=iq4_nl@L1",
            "drop=zero@L1H2",
            "drop=mean@L0",
        ] {
            let read: WhatIf = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(read.to_string(), text);
        }
    }

    #[test]
    fn unknown_changes_are_refused_with_a_list_of_known_ones() {
        for text in [
            "scale",
            "scale=",
            "scale=x0",
            "scale=x-1",
            "scale=xNaN",
            "scale=p_norm:0",
            "scale=p_norm:0.5",
            "scale=2",
            "softmax_axis=rows",
            "mask=window:0",
            "mask=window:x",
            "qk_norm=yes",
            "temperature=0",
            "temperature=inf",
            "softcap=-1",
            "kv=int3",
            "kv_window=0+sinks:4",
            "kv_window=4+sinks:",
            "kv_window=4+sinks:-1",
            "kv_window=sinks:4",
            "top_k_keys=0",
            "top_k_keys=1.5",
            "top_k_keys=off",
            "weights=int8",
            "drop=half",
            "drop=zero@",
            "drop=zero@L0,,L1",
            "heads=1",
        ] {
            let message = text.parse::<WhatIf>().expect_err(text);
            assert!(
                message.contains("expected") && !message.contains('\n'),
                "{message}"
            );
        }
        let message = "drop=L1H2".parse::<WhatIf>().expect_err("a place");
        assert!(message.contains("as in drop=zero@L1H2"), "{message}");
    }
}
