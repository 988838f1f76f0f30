//! Recorded hooks: a trace of attnscope or of another framework, its arrays keyed by hook.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_checkpoint::Dtype;
use attnscope_checkpoint::captured::{Array, Captured, holds};
use attnscope_compute::error::{Error, Result};
use attnscope_forward::Hook;
use attnscope_run::Randomness;
use attnscope_spec::Stack;

use super::floors::Precision;

/// A hook of a layer; logits and last hidden states have no layer, and a stack only if they are an encoder's.
pub(super) type HookPlace = (Option<Stack>, Option<usize>, Hook);

/// A file of recorded hooks.
#[derive(Debug)]
pub struct Recording {
    captured: Captured,
    names: BTreeMap<HookPlace, String>,
    pub precision: Precision,
}

/// Whether a path contains recorded hooks.
pub fn is_recording(path: &Path) -> bool {
    holds(path, |name| parse(name).is_some())
}

/// Parses an array name: attnscope's, TransformerLens's, or Hugging Face's tuples.
pub(super) fn parse(name: &str) -> Option<HookPlace> {
    match name {
        "logits" | "last_hidden_state" => return Some((None, None, Hook::Logits)),
        "encoder.last_hidden_state" | "encoder_last_hidden_state" => {
            return Some((Some(Stack::Encoder), None, Hook::Logits));
        }
        _ => {}
    }
    let tuples = [
        ("attentions.", Stack::Only),
        ("arr_", Stack::Only),
        ("encoder_attentions.", Stack::Encoder),
        ("decoder_attentions.", Stack::Decoder),
        ("cross_attentions.", Stack::Cross),
    ];
    for (before, stack) in tuples {
        if let Some(number) = name.strip_prefix(before) {
            return Some((Some(stack), Some(number.parse().ok()?), Hook::Pattern));
        }
    }
    let (stack, rest) = match name.split_once(".blocks.") {
        Some(("encoder", rest)) => (Stack::Encoder, rest),
        Some(("decoder", rest)) => (Stack::Decoder, rest),
        Some(_) => return None,
        None => (Stack::Only, name.strip_prefix("blocks.")?),
    };
    let (number, rest) = rest.split_once('.')?;
    let layer_idx = number.parse().ok()?;
    let (stack, last) = match rest.split_once('.') {
        Some(("attn", last)) => (stack, last),
        Some(("cross_attn", last)) => (Stack::Cross, last),
        Some(_) => return None,
        None => (stack, rest),
    };
    let last = last.strip_prefix("hook_").unwrap_or(last);
    let hook = match last {
        "attn_scores" => Hook::Scores,
        "attn" => Hook::Pattern,
        other => {
            let hook: Hook = other.parse().ok()?;
            (hook != Hook::Logits && !hook.is_measure()).then_some(hook)?
        }
    };
    Some((Some(stack), Some(layer_idx), hook))
}

/// Expected axes of a hook's array.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// [head, query, key]
    Cells {
        n_heads: usize,
        n_queries: usize,
        n_keys: usize,
    },
    /// [position, heads · width]
    Vectors {
        n_heads: Option<usize>,
        n_positions: usize,
        width: usize,
    },
}

impl Recording {
    /// # Errors
    /// When the file cannot be read, or has no hooks.
    pub fn open(path: &Path) -> Result<Self> {
        let captured = Captured::open(path)?;
        let mut names = BTreeMap::new();
        for name in captured.names() {
            if let Some(place) = parse(name) {
                names.entry(place).or_insert_with(|| name.to_owned());
            }
        }
        if names.is_empty() {
            let problem = "expected recorded hooks such as blocks.0.attn.q, found none";
            return Err(Error::file(path, problem));
        }
        let mut recording = Self {
            captured,
            names,
            precision: Precision::Single,
        };
        recording.precision = recording.found_precision()?;
        Ok(recording)
    }

    /// Returns the recording's name.
    pub fn name(&self) -> &str {
        &self.captured.name
    }

    /// Returns the recorded sources of randomness, such as dropout.
    pub fn randomness(&self) -> Randomness {
        Randomness::of(&self.captured)
    }

    /// Returns the recorded token ids of the only stack or the encoder, those of a decoder, and which tokens are real.
    ///
    /// # Errors
    /// When the values are not whole numbers.
    pub fn tokens(&self) -> Result<RecordedTokens> {
        let ids = |name: &str| -> Result<Option<Vec<u32>>> {
            let numbers = self.captured.whole_numbers(name)?;
            let n_rows = self.captured.shape(name).filter(|shape| shape.len() > 1);
            let n = n_rows.and_then(|shape| shape.last().copied());
            // Only the first sequence of a batch is used.
            Ok(numbers.map(|all| {
                let n = n.unwrap_or(all.len());
                all.into_iter().take(n).map(|id| id as u32).collect()
            }))
        };
        let real = ids("attention_mask")?;
        Ok(RecordedTokens {
            tokens: ids("tokens")?,
            decoder_tokens: ids("decoder_tokens")?,
            real: real.map(|real| real.into_iter().map(|r| r != 0).collect()),
        })
    }

    /// Returns the hooks, in no particular order.
    pub(super) fn places(&self) -> impl Iterator<Item = &HookPlace> {
        self.names.keys()
    }

    pub(super) fn has(&self, place: HookPlace) -> bool {
        self.names.contains_key(&self.meant(place))
    }

    /// Returns a place as this file names it: a model of one stack may have been recorded as a decoder, or the reverse.
    fn meant(&self, place: HookPlace) -> HookPlace {
        let (stack, layer_idx, hook) = place;
        let other = match stack {
            Some(Stack::Only) => Some(Stack::Decoder),
            Some(Stack::Decoder) => Some(Stack::Only),
            _ => None,
        };
        let turned = (other, layer_idx, hook);
        if other.is_some() && !self.names.contains_key(&place) && self.names.contains_key(&turned) {
            turned
        } else {
            place
        }
    }

    /// Returns an array's shape without batch axes.
    pub(super) fn shape(&self, place: HookPlace) -> Option<Vec<usize>> {
        let shape = self.captured.shape(self.names.get(&place)?)?;
        Some(shape)
    }

    /// Returns the values of a hook in the order of a run; `None` if it was not recorded.
    ///
    /// # Errors
    /// When the array cannot be read, or has another number of values.
    pub(super) fn values(&self, place: HookPlace, form: Form) -> Result<Option<Vec<f32>>> {
        let Some(name) = self.names.get(&self.meant(place)) else {
            return Ok(None);
        };
        let array = self.captured.array(name)?;
        let shape = array.shape.clone();
        let positions_first = name.contains(".hook_");
        arranged(array, form, positions_first)
            .map(Some)
            .ok_or_else(|| {
                let expected = match form {
                    Form::Cells {
                        n_heads,
                        n_queries,
                        n_keys,
                    } => format!("[{n_heads}, {n_queries}, {n_keys}]"),
                    Form::Vectors {
                        n_heads: Some(n),
                        n_positions,
                        width,
                    } => format!(
                        "[{n}, {n_positions}, {}] or [{n_positions}, {width}]",
                        width / n
                    ),
                    Form::Vectors {
                        n_positions, width, ..
                    } => format!("[{n_positions}, {width}]"),
                };
                let problem = format!("expected shape {expected}, found {shape:?}");
                self.captured.at(name, &problem)
            })
    }

    /// Detects whether values were computed in 16 bits: they are stored so, or all of them fit.
    fn found_precision(&self) -> Result<Precision> {
        let small = |name: &&String| {
            let shape = self.captured.shape(name).unwrap_or_default();
            shape.iter().product::<usize>()
        };
        let vectors = self
            .names
            .iter()
            .filter(|(place, _)| !matches!(place.2, Hook::Pattern | Hook::Scores | Hook::Logits));
        let Some(name) = vectors.map(|(_, name)| name).min_by_key(small) else {
            return Ok(Precision::Single);
        };
        if let Some(dtype) = self.captured.dtype(name)
            && matches!(dtype, Dtype::F16 | Dtype::Bf16)
        {
            return Ok(Precision::Half);
        }
        let values = self.captured.array(name)?.values;
        let fits = |of: fn(f32) -> f32| {
            let finite = values.iter().filter(|v| v.is_finite());
            finite.clone().any(|v| *v != 0.0) && finite.clone().all(|v| of(*v) == *v)
        };
        let is_half =
            fits(|v| half::bf16::from_f32(v).to_f32()) || fits(|v| half::f16::from_f32(v).to_f32());
        Ok(if is_half {
            Precision::Half
        } else {
            Precision::Single
        })
    }
}

/// Tokens of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedTokens {
    pub tokens: Option<Vec<u32>>,
    pub decoder_tokens: Option<Vec<u32>>,
    pub real: Option<Vec<bool>>,
}

/// Scores at or below this are finite mask values.
const MASKED: f32 = -5000.0;

/// Whether an array of three axes has a head axis, in which KV heads may be repeated.
fn is_by_heads(shape: &[usize], form: Form, n_heads: usize) -> bool {
    let (
        [heads, positions, d],
        Form::Vectors {
            n_positions, width, ..
        },
    ) = (shape, form)
    else {
        return false;
    };
    heads.is_multiple_of(n_heads) && *positions == n_positions && *d == width / n_heads.max(1)
}

/// Rearranges an array into the order of a run, taking the first of a batch; `None` if it has another number of values.
fn arranged(array: Array, form: Form, positions_first: bool) -> Option<Vec<f32>> {
    let Array { shape, mut values } = array;
    let n = match form {
        Form::Cells {
            n_heads,
            n_queries,
            n_keys,
        } => n_heads * n_queries * n_keys,
        Form::Vectors {
            n_positions, width, ..
        } => n_positions * width,
    };
    let n_axes = match form {
        Form::Cells { .. } => 3,
        Form::Vectors {
            n_heads: Some(n), ..
        } if shape.len() > 3 || is_by_heads(&shape, form, n) => 3,
        Form::Vectors { n_positions, .. } if shape.first() == Some(&n_positions) => shape.len(),
        Form::Vectors { n_heads, .. } if n_heads.is_some() && shape.first() == n_heads.as_ref() => {
            shape.len()
        }
        Form::Vectors { .. } => shape.len().saturating_sub(1),
    };
    let kept: &[usize] = &shape[shape.len().saturating_sub(n_axes)..];
    let n_kept: usize = kept.iter().product();
    values.truncate(n_kept);
    match form {
        Form::Cells { .. } => {
            for value in values.iter_mut().filter(|value| **value <= MASKED) {
                *value = f32::NEG_INFINITY;
            }
            (n_kept == n).then_some(values)
        }
        Form::Vectors {
            n_heads,
            n_positions,
            width,
        } => {
            let of_head = n_heads.map_or(width, |n| width / n.max(1));
            match (kept, n_heads) {
                // A KV head may have been written once for each query head that it serves.
                ([heads, positions, d], Some(n_heads))
                    if (*positions, *d) == (n_positions, of_head)
                        && heads.is_multiple_of(n_heads)
                        && !(positions_first && *heads == n_positions) =>
                {
                    Some(by_position(
                        &values,
                        (*heads, n_heads),
                        n_positions,
                        of_head,
                    ))
                }
                ([positions, heads, d], Some(n_heads))
                    if (*positions, *heads, *d) == (n_positions, n_heads, of_head) =>
                {
                    Some(values)
                }
                _ => (n_kept == n).then_some(values),
            }
        }
    }
}

/// Transposes [head, position, d] to [position, head · d]; heads may be repeated.
fn by_position(
    values: &[f32],
    (n_stored, n_heads): (usize, usize),
    n_positions: usize,
    d: usize,
) -> Vec<f32> {
    let step = n_stored / n_heads.max(1);
    let mut to = Vec::with_capacity(n_positions * n_heads * d);
    for position_idx in 0..n_positions {
        for head_idx in 0..n_heads {
            let at = (head_idx * step * n_positions + position_idx) * d;
            to.extend_from_slice(&values[at..at + d]);
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_name_of_traces_is_parsed() {
        for stack in [Stack::Only, Stack::Encoder, Stack::Decoder, Stack::Cross] {
            let of_layer = |hook: &Hook| *hook != Hook::Logits && !hook.is_measure();
            for hook in Hook::ALL.into_iter().filter(of_layer) {
                let name = hook.full_name(stack, 11);
                assert_eq!(parse(&name), Some((Some(stack), Some(11), hook)), "{name}");
            }
        }
        let of = |stack, layer_idx, hook| Some((Some(stack), Some(layer_idx), hook));
        assert_eq!(
            parse("blocks.2.attn.hook_rot_k"),
            of(Stack::Only, 2, Hook::RotK)
        );
        assert_eq!(
            parse("blocks.2.hook_resid_pre"),
            of(Stack::Only, 2, Hook::ResidPre)
        );
        assert_eq!(
            parse("cross_attentions.1"),
            of(Stack::Cross, 1, Hook::Pattern)
        );
        for weights in [
            "blocks.0.attn.W_Q",
            "blocks.0.mlp.c_fc.weight",
            "tokens",
            "blocks.x.attn.q",
        ] {
            assert_eq!(parse(weights), None, "{weights}");
        }
    }

    #[test]
    fn heads_are_rearranged_from_every_recorded_layout() {
        // Two heads, three positions, width 2; a value is 10 · position + head + 0.1 · component.
        let at = |p: usize, h: usize, d: usize| (10 * p + h) as f32 + 0.1 * d as f32;
        let mut expected = Vec::new();
        let mut ours = vec![0.0; 12];
        for p in 0..3 {
            for h in 0..2 {
                for d in 0..2 {
                    expected.push(at(p, h, d));
                    ours[(h * 3 + p) * 2 + d] = at(p, h, d);
                }
            }
        }
        let form = Form::Vectors {
            n_heads: Some(2),
            n_positions: 3,
            width: 4,
        };
        let read = |shape: &[usize], values: &[f32]| {
            let array = Array {
                shape: shape.to_vec(),
                values: values.to_vec(),
            };
            arranged(array, form, false)
        };
        assert_eq!(read(&[2, 3, 2], &ours), Some(expected.clone()));
        assert_eq!(read(&[1, 2, 3, 2], &ours), Some(expected.clone()));
        assert_eq!(read(&[3, 2, 2], &expected), Some(expected.clone()));
        assert_eq!(read(&[3, 4], &expected), Some(expected.clone()));
        assert_eq!(read(&[1, 3, 4], &expected), Some(expected.clone()));
        let repeated: Vec<f32> = [&ours[..6], &ours[..6], &ours[6..], &ours[6..]].concat();
        assert_eq!(read(&[4, 3, 2], &repeated), Some(expected));
        assert_eq!(read(&[5, 4], &[0.0; 20]), None);
    }
}
