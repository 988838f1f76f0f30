//! A model paired with a recording: which side is which, and which hooks both have.

use std::borrow::Cow;

use attnscope_compute::error::{Error, Result};
use attnscope_forward::{Hook, Input, Sequence};
use attnscope_spec::{Model, Stack};

use super::comparison::Side;
use super::gap::{Axes, HookGap};
use super::knobs::KnobDifference;
use super::layer_tokens::tokens_of;
use super::recording::{Form, Recording, told_apart};

/// A model paired with the recording that it is compared with.
#[derive(Clone, Copy)]
pub struct ModelAndRecording<'a> {
    pub model: &'a Model,
    pub input: &'a Input,
    pub recording: &'a Recording,
    /// The model's side.
    pub model_is: Side,
}

impl ModelAndRecording<'_> {
    /// Checks, before anything runs, that the recording has some hook of the model.
    ///
    /// # Errors
    /// When it has none; the error lists the recorded hooks.
    pub fn check(&self) -> Result<()> {
        if self.has_common() {
            return Ok(());
        }
        Err(nothing_in_common(self.recording))
    }

    fn has_common(&self) -> bool {
        let spec = &self.model.spec;
        let grids = spec.grids().into_iter();
        let mut grids = grids.chain(spec.stacks.iter().map(|stack| stack.stack));
        let has = |stack: Stack, layer_idx: usize| {
            let mut hooks = Hook::ALL.into_iter();
            hooks.any(|hook| self.recording.has((Some(stack), Some(layer_idx), hook)))
        };
        self.recording.has((None, None, Hook::Logits))
            || grids.any(|stack| (0..spec.n_layers(stack)).any(|idx| has(stack, idx)))
    }

    /// Returns the tokens of the queries of a layer's attention, and of its keys.
    pub(super) fn sequences(&self, at: (Stack, usize)) -> (Cow<'_, Sequence>, Cow<'_, Sequence>) {
        tokens_of(&self.model.spec, self.input, at)
    }

    /// Orders values of the model and of the recording as those of A and B.
    pub(super) fn ordered<'v>(
        &self,
        mine: &'v [f32],
        recorded: &'v [f32],
    ) -> (&'v [f32], &'v [f32]) {
        match self.model_is {
            Side::A => (mine, recorded),
            Side::B => (recorded, mine),
        }
    }

    /// Returns the index of the recording among A and B.
    pub(super) fn recorded_idx(&self) -> usize {
        match self.model_is {
            Side::A => 1,
            Side::B => 0,
        }
    }

    /// Swaps the sides of a knob difference, from model and recording to A and B.
    pub(super) fn turned(&self, knob: KnobDifference) -> KnobDifference {
        match self.model_is {
            Side::A => knob,
            Side::B => KnobDifference {
                a: knob.b,
                b: knob.a,
                ..knob
            },
        }
    }

    /// Compares vectors with the recorded ones; `None` if none were recorded.
    pub(super) fn gap(
        &self,
        (stack, layer_idx, hook): (Stack, usize, Hook),
        values: &[f32],
        width: usize,
    ) -> Result<Option<HookGap>> {
        let attention = self.model.spec.attention(stack, layer_idx);
        let is_of_keys = matches!(hook, Hook::K | Hook::V | Hook::RotK);
        let n_heads = attention.and_then(|attention| match hook {
            Hook::Q | Hook::RotQ | Hook::Z => Some(attention.n_heads),
            _ if is_of_keys => Some(attention.n_kv_heads),
            _ => None,
        });
        let form = Form::Vectors {
            n_heads,
            n_positions: values.len() / width.max(1),
            width,
        };
        let place = (Some(stack), Some(layer_idx), hook);
        let Some(mut recorded) = self.recording.values(place, form)? else {
            return Ok(None);
        };
        let mut values = Cow::Borrowed(values);
        if let Some(slack) = self.recording.slack(place, form)? {
            told_apart(values.to_mut(), &mut recorded, &slack);
        }
        let (queries, keys) = self.sequences((stack, layer_idx));
        let (axes, sequence) = if is_of_keys {
            (Axes::Keys, keys)
        } else {
            (Axes::Queries, queries)
        };
        let is_real = |idx: usize| sequence.real.as_ref().and_then(|r| r.get(idx)) != Some(&false);
        let both = self.ordered(&values, &recorded);
        Ok(Some(HookGap::of_vectors(
            axes, n_heads, both, width, &is_real,
        )))
    }
}

pub(super) fn nothing_in_common(recording: &Recording) -> Error {
    let names: Vec<String> = recording
        .places()
        .take(4)
        .map(|(stack, layer_idx, hook)| match (stack, layer_idx) {
            (Some(stack), Some(layer_idx)) => hook.full_name(*stack, *layer_idx),
            _ => hook.to_string(),
        })
        .collect();
    Error::Prompt(format!(
        "{}: expected hooks in common with the other side, found none: it holds {}",
        recording.name(),
        names.join(", ")
    ))
}
