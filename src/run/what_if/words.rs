//! Parses changes as the user writes them: `KEY=VALUE`, followed by `@PLACE,…` unless they apply everywhere.

use std::fmt;
use std::str::FromStr;

use attnscope_checkpoint::nearest::did_you_mean;
use attnscope_compute::attention::{KeyDivisor, Mask, OfKeys, Scale, SoftmaxAxis};
use attnscope_spec::{Ablation, Place, Places};

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
    ("softmax_axis", "keys|queries", "which axis is normalised"),
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
            _ => None,
        },
        "mask" => mask(value),
        "qk_norm" => on_off(value).map(Change::QkNorm),
        "temperature" => positive(value).map(Change::Temperature),
        "softcap" if value == "off" => Some(Change::Softcap(None)),
        "softcap" => positive(value).map(|cap| Change::Softcap(Some(cap))),
        _ => match value {
            "zero" => Some(Change::Drop(Ablation::Zero)),
            "mean" => Some(Change::Drop(Ablation::Mean)),
            _ => None,
        },
    };
    found.ok_or_else(|| format!("{key}: expected {takes}, found {value:?}"))
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
        }))
    };
    match value {
        "declared" => Some(Change::MaskAsDeclared),
        "none" => plain(false),
        "causal" => plain(true),
        _ => {
            let width: usize = value.strip_prefix("window:")?.parse().ok()?;
            (width > 0).then_some(Change::Window(width))
        }
    }
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
    }
}
