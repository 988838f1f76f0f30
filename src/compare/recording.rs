//! Recorded hooks: a trace of attnscope or of another framework, its arrays keyed by hook.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_checkpoint::Dtype;
use attnscope_checkpoint::captured::{Array, Captured, holds};
use attnscope_compute::error::{Error, Result};
use attnscope_forward::Hook;
use attnscope_run::captured::{
    Axes, Layer, Layout, MASKED, Name, coarsest_dtype, real_tokens, stated_axes, token_ids,
};
use attnscope_run::{Randomness, about_dump, is_dump, open_trace};
use attnscope_spec::Stack;

use super::floors::Precision;

/// A hook of a layer; logits and last hidden states have no layer, and a stack only if they are an encoder's.
pub(super) type HookPlace = (Option<Stack>, Option<usize>, Hook);

/// A file of recorded hooks.
#[derive(Debug)]
pub struct Recording {
    captured: Captured,
    names: BTreeMap<HookPlace, String>,
    /// Order of the axes of scores and patterns, as the file states it.
    axes: Axes,
    pub precision: Precision,
}

/// Whether a path contains recorded hooks.
pub fn is_recording(path: &Path) -> bool {
    is_dump(path) || holds(path, |name| place_of(name).is_some())
}

/// Returns the place of an array by its name: a hook of a numbered layer, or an output of the model.
fn place_of(name: &str) -> Option<HookPlace> {
    match name {
        "logits" | "unembed.hook_out" | "last_hidden_state" => Some((None, None, Hook::Logits)),
        "encoder.last_hidden_state" | "encoder_last_hidden_state" => {
            Some((Some(Stack::Encoder), None, Hook::Logits))
        }
        _ => match Name::parse(name)? {
            Name {
                stack,
                layer: Layer::Numbered(layer_idx),
                hook,
            } => Some((Some(stack), Some(layer_idx), hook)),
            // Modules without a number have no counterpart in a model.
            _ => None,
        },
    }
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
        let captured = open_trace(path)?;
        let names = captured.names().into_iter();
        let names = names.filter_map(|name| Some((place_of(name)?, name.to_owned())));
        let names: BTreeMap<HookPlace, String> = names.collect();
        if names.is_empty() {
            let problem = "expected recorded hooks such as blocks.0.attn.q, found none";
            return Err(Error::file(path, problem));
        }
        Ok(Self {
            axes: stated_axes(&captured)?.unwrap_or_default(),
            precision: precision(&captured, &names)?,
            captured,
            names,
        })
    }

    /// Returns the recording's name.
    pub fn name(&self) -> &str {
        &self.captured.name
    }

    /// Returns which dump of an engine it is, and which hooks it has; `None` for a trace.
    pub fn about(&self) -> Option<&str> {
        about_dump(&self.captured)
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
        Ok(RecordedTokens {
            tokens: token_ids(&self.captured, "tokens")?,
            decoder_tokens: token_ids(&self.captured, "decoder_tokens")?,
            real: real_tokens(&self.captured)?,
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

    /// Order of the axes of a hook's array.
    fn axes(&self, hook: Hook, name: &str) -> Axes {
        match hook {
            Hook::Scores | Hook::Pattern => self.axes,
            Hook::Q | Hook::K | Hook::V | Hook::RotQ | Hook::RotK | Hook::Z => {
                Axes::of_vectors(name)
            }
            _ => Axes::default(),
        }
    }

    /// Returns the form that a hook was recorded in; `None` if its shape cannot be that of the hook.
    pub(super) fn form(&self, place: HookPlace) -> Option<Form> {
        let (_, _, hook) = place;
        let name = self.names.get(&self.meant(place))?;
        let shape = self.captured.shape(name)?;
        let [_, n_heads, rows, columns] = Layout::of(&shape, self.axes(hook, name))?.dims;
        if matches!(hook, Hook::Scores | Hook::Pattern) {
            return Some(Form::Cells {
                n_heads,
                n_queries: rows,
                n_keys: columns,
            });
        }
        let n_heads = Some(n_heads).filter(|_| shape.len() > 2);
        Some(Form::Vectors {
            n_heads,
            n_positions: rows,
            width: n_heads.unwrap_or(1) * columns,
        })
    }

    /// Returns how far each value of a hook may lie from what was computed, in the order of a run; `None` if all are exact.
    ///
    /// # Errors
    /// When the machine has too little memory for them.
    pub(super) fn slack(&self, place: HookPlace, form: Form) -> Result<Option<Vec<f32>>> {
        let Some(name) = self.names.get(&self.meant(place)) else {
            return Ok(None);
        };
        let slack = self.captured.slack(name)?;
        let axes = self.axes(place.2, name);
        Ok(slack.and_then(|slack| arranged(slack, form, axes)))
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
        let axes = self.axes(place.2, name);
        arranged(array, form, axes).map(Some).ok_or_else(|| {
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
                    width / n.max(1)
                ),
                Form::Vectors {
                    n_positions, width, ..
                } => format!("[{n_positions}, {width}]"),
            };
            let problem = format!("expected shape {expected}, found {shape:?}");
            self.captured.at(name, &problem)
        })
    }
}

/// Estimates the precision from the smallest recorded array of vectors: its dtype if it has 16 bits, otherwise the coarsest
/// dtype that represents all its values.
fn precision(captured: &Captured, names: &BTreeMap<HookPlace, String>) -> Result<Precision> {
    let small = |name: &&String| {
        let shape = captured.shape(name).unwrap_or_default();
        shape.iter().product::<usize>()
    };
    let vectors = names
        .iter()
        .filter(|(place, _)| !matches!(place.2, Hook::Pattern | Hook::Scores | Hook::Logits));
    let Some(name) = vectors.map(|(_, name)| name).min_by_key(small) else {
        return Ok(Precision::Single);
    };
    let stored = captured.dtype(name);
    Ok(Precision::of(match stored {
        Some(dtype @ (Dtype::F16 | Dtype::Bf16)) => dtype,
        _ => coarsest_dtype(&captured.array(name)?.values),
    }))
}

/// Makes values alike where a recording cannot tell them apart: 0 on both sides where nothing was written, so that they count
/// neither as a difference nor in the size of the values, and those of `mine` where the difference is within the slack.
pub(super) fn told_apart(mine: &mut [f32], recorded: &mut [f32], slack: &[f32]) {
    for ((mine, recorded), slack) in mine.iter_mut().zip(recorded).zip(slack) {
        if *slack == f32::INFINITY {
            (*mine, *recorded) = (0.0, 0.0);
        } else if (*mine - *recorded).abs() <= *slack {
            *recorded = *mine;
        }
    }
}

/// Tokens of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedTokens {
    pub tokens: Option<Vec<u32>>,
    pub decoder_tokens: Option<Vec<u32>>,
    pub real: Option<Vec<bool>>,
}

/// Rearranges an array into the order of a run, taking the first of a batch; `None` if its shape does not fit.
fn arranged(array: Array, form: Form, axes: Axes) -> Option<Vec<f32>> {
    let Array { shape, mut values } = array;
    match form {
        Form::Cells {
            n_heads,
            n_queries,
            n_keys,
        } => {
            // Without a stated order, the sizes tell it, except for [head, batch, query, key]: its shape may equally be that of
            // [batch, head, query, key].
            let orders = [axes, Axes::BatchQueryKeyHead, Axes::QueryKeyBatchHead];
            let mut layouts = orders.iter().filter_map(|axes| Layout::of(&shape, *axes));
            let layout = layouts.find(|layout| layout.dims[1..] == [n_heads, n_queries, n_keys])?;
            let mut values = layout.first(values).values;
            // Scores are only compared here, so a fixed limit tells which are masked.
            for value in values.iter_mut().filter(|value| **value <= MASKED) {
                *value = f32::NEG_INFINITY;
            }
            Some(values)
        }
        Form::Vectors {
            n_heads,
            n_positions,
            width,
        } => {
            let layout = Layout::of(&shape, Axes::default())?;
            let [_, first, second, last] = layout.dims;
            // With as many heads as positions, only the name tells which axis comes first.
            let may_be_heads = first != n_positions || axes == Axes::default();
            // A KV head may have been written once for each query head that it serves.
            let is_heads_first = |n_heads: &usize| {
                may_be_heads
                    && first.is_multiple_of(*n_heads)
                    && (second, n_heads * last) == (n_positions, width)
            };
            if let Some(n_heads) = n_heads.filter(is_heads_first) {
                return Some(layout.by_position(&values, n_heads));
            }
            // [batch, position, width], or [batch, position, head, d_head].
            let is_flat = (second, last) == (n_positions, width) && (shape.len() < 4 || first == 1);
            let is_ordered = is_flat || (first, second * last) == (n_positions, width);
            is_ordered.then(|| {
                values.truncate(n_positions * width);
                values
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_as_far_as_they_were_written() {
        let (mut mine, mut recorded) = ([1.0, 2.0, 3.0, f32::NAN], [1.04, 2.06, 0.0, 5.0]);
        told_apart(&mut mine, &mut recorded, &[0.05, 0.05, f32::INFINITY, 0.05]);
        assert_eq!(
            (mine[..3].to_vec(), recorded),
            (vec![1.0, 2.0, 0.0], [1.0, 2.06, 0.0, 5.0])
        );
        assert!(mine[3].is_nan());
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
            arranged(array, form, Axes::default())
        };
        assert_eq!(read(&[2, 3, 2], &ours), Some(expected.clone()));
        assert_eq!(read(&[1, 2, 3, 2], &ours), Some(expected.clone()));
        assert_eq!(read(&[3, 2, 2], &expected), Some(expected.clone()));
        assert_eq!(read(&[3, 4], &expected), Some(expected.clone()));
        assert_eq!(read(&[1, 3, 4], &expected), Some(expected.clone()));
        let repeated: Vec<f32> = [&ours[..6], &ours[..6], &ours[6..], &ours[6..]].concat();
        assert_eq!(read(&[4, 3, 2], &repeated), Some(expected));
        assert_eq!(read(&[5, 4], &[0.0; 20]), None);
        assert_eq!(read(&[0, 3, 2], &[]), None);
    }

    #[test]
    fn cells_are_rearranged_from_every_recorded_layout() {
        let form = Form::Cells {
            n_heads: 2,
            n_queries: 3,
            n_keys: 3,
        };
        let read = |shape: &[usize], values: &[f32], axes: Axes| {
            let array = Array {
                shape: shape.to_vec(),
                values: values.to_vec(),
            };
            arranged(array, form, axes)
        };
        let usual = Axes::default();
        let ours: Vec<f32> = (0..18).map(|at| at as f32).collect();
        let heads_last: Vec<f32> = (0..18).map(|at| (at % 2 * 9 + at / 2) as f32).collect();
        let batch = [&ours[..], &[0.0; 18]].concat();
        let heads_first = [&ours[..9], &[0.0; 9], &ours[9..], &[0.0; 9]].concat();
        let stated = Axes::HeadBatchQueryKey;
        assert_eq!(read(&[2, 3, 3], &ours, usual).as_ref(), Some(&ours));
        assert_eq!(read(&[2, 2, 3, 3], &batch, usual).as_ref(), Some(&ours));
        assert_eq!(
            read(&[2, 2, 3, 3], &heads_first, stated),
            Some(ours.clone())
        );
        assert_eq!(read(&[1, 3, 3, 2], &heads_last, usual), Some(ours.clone()));
        assert_eq!(read(&[3, 3, 2], &heads_last, usual), Some(ours.clone()));
        assert_eq!(read(&[1, 2, 1, 3, 3], &ours, usual), Some(ours));
        assert_eq!(read(&[1, 18], &[0.0; 18], usual), None);
    }
}
