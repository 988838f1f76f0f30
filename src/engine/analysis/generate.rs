//! Lets a decoder write its own target: the likeliest token at each step, until an end token or enough of them.

use crate::error::{Error, Result};
use crate::model::recurrent::Ends;
use crate::model::{
    BlockContext, Input, LayerWeights, Memory, Model, ModelSpec, NoHooks, ReadsAgain, Scratch,
    Sequence, StackSpec, embed, final_hidden, logits_in_chunks, run_layer,
};
use crate::ops::{Ops, reuse_buffers};
use crate::pace::Pace;
use crate::prompt::Prompt;

/// Lets the model write as many tokens after a prompt as the prompt says; `label` tells what a token reads as, `wrote`
/// hears of the prompt after each.
///
/// # Errors
/// When the pace stops it, a tensor is not as the spec says, or the device fails.
pub fn generate<O: Ops>(
    ops: &O,
    model: &Model,
    prompt: &mut Prompt,
    label: &dyn Fn(u32) -> String,
    wrote: &mut dyn FnMut(&Prompt),
    pace: &dyn Pace,
) -> Result<()> {
    let spec = &model.spec;
    let (Some(start), Some(given)) = (&spec.decoder_start, prompt.source.as_deref()) else {
        return Ok(());
    };
    if prompt.n_to_generate == 0 {
        return Ok(());
    }
    if reads_again(spec) {
        let rotates = start.reads_again == ReadsAgain::Rotated;
        if let (Some(first), Some(last), true) = (
            prompt.tokens.first_mut(),
            given.tokens.last().copied(),
            rotates,
        ) {
            *first = last;
            prompt.labels[0] = label(last);
        }
        let n = given.tokens.len().saturating_sub(1);
        let again: Vec<u32> = given.tokens[..n].to_vec();
        for id in again {
            prompt.push(id, label(id), spec.positions);
        }
        prompt.n_to_generate = 0;
        return Ok(());
    }
    let writer = Writer { ops, model, pace };
    let source = sequence_of(given);
    let encoder = &spec.stacks[0];
    let (resid, ends) = writer.stack(encoder, &source, None)?;
    let mut memory = O::Buffer::default();
    final_hidden(ops, model, encoder, &resid, &mut memory)?; // [source position, d_model]
    while prompt.n_to_generate > 0 {
        if pace.stops() {
            return Err(Error::Cancelled);
        }
        let id = match start.forced_token.filter(|_| prompt.tokens.len() == 1) {
            Some(forced) => forced,
            None => {
                let memory = Memory {
                    hidden: &memory,
                    sequence: &source,
                    ends: &ends,
                };
                writer.next(&sequence_of(prompt), memory, &start.never_written)?
            }
        };
        prompt.push(id, label(id), spec.positions);
        if start.end_tokens.contains(&id) {
            prompt.n_to_generate = 0;
        }
        wrote(prompt);
    }
    Ok(())
}

/// Whether a decoder reads the text of its encoder again: it writes nothing where its head gives labels, or where there is none.
fn reads_again(spec: &ModelSpec) -> bool {
    let Some(start) = &spec.decoder_start else {
        return false;
    };
    match (&spec.head, start.reads_again) {
        (_, ReadsAgain::Never) => false,
        (Some(head), _) => head.labels.is_some(),
        (None, ReadsAgain::ForLabels) => false,
        (None, ReadsAgain::Shifted | ReadsAgain::Rotated) => true,
    }
}

/// A prompt as the model takes it.
pub fn input_of(prompt: &Prompt) -> Input {
    Input {
        source: prompt.source.as_deref().map(sequence_of),
        sequence: sequence_of(prompt),
    }
}

fn sequence_of(prompt: &Prompt) -> Sequence {
    Sequence {
        tokens: prompt.tokens.clone(),
        positions: prompt.positions.clone(),
        real: prompt.real.clone(),
    }
}

struct Writer<'a, O: Ops> {
    ops: &'a O,
    model: &'a Model,
    pace: &'a dyn Pace,
}

impl<O: Ops> Writer<'_, O> {
    /// The last residual of a stack, and what a recurrent encoder ended with. // [position, d_model]
    fn stack(
        &self,
        stack: &StackSpec,
        sequence: &Sequence,
        memory: Option<Memory<'_, O>>,
    ) -> Result<(O::Buffer, Ends)> {
        let (ops, tensors) = (self.ops, &self.model.checkpoint.tensors);
        let (mut resid, mut spare) = (O::Buffer::default(), O::Buffer::default());
        embed(ops, self.model, stack, sequence, &mut spare, &mut resid)?;
        let context = BlockContext::of(ops, tensors, stack, sequence, memory, self.pace)?;
        let mut scratch = Scratch::<O>::default();
        let _reuse = reuse_buffers();
        let mut ends = Ends::default();
        for layer_idx in 0..stack.n_layers() {
            let weights = LayerWeights::read(ops, tensors, stack, layer_idx, self.pace)?;
            let ran = run_layer(
                &context,
                stack,
                layer_idx,
                &weights,
                &mut resid,
                &mut scratch,
                &mut NoHooks,
            )?;
            ends = ran.ends;
        }
        Ok((resid, ends))
    }

    /// The likeliest token after a target; of equals the first.
    fn next(&self, target: &Sequence, memory: Memory<'_, O>, never: &[u32]) -> Result<u32> {
        let (ops, spec) = (self.ops, &self.model.spec);
        let decoder = spec.main_stack();
        let (resid, _) = self.stack(decoder, target, Some(memory))?;
        let (mut hidden, mut last) = (O::Buffer::default(), O::Buffer::default());
        final_hidden(ops, self.model, decoder, &resid, &mut hidden)?;
        ops.gather_rows(&hidden, &[target.len() - 1], &mut last)?; // [1, d_model]
        let Some(head) = &spec.head else {
            let start = spec.decoder_start.as_ref();
            let first = start.map_or(0, |start| start.start_token);
            let problem = format!(
                "the decoder has no head to write a target with: give one with --target TEXT, or with --target-tokens {first},ID,… \
                 where {first} is the start token"
            );
            return Err(Error::Prompt(problem));
        };
        let mut best = (0, f32::NEG_INFINITY);
        logits_in_chunks(
            ops,
            self.model,
            head,
            &last,
            1,
            self.pace,
            |range, logits| {
                for (id, logit) in range.zip(logits) {
                    if *logit > best.1 && !never.contains(&(id as u32)) {
                        best = (id, *logit);
                    }
                }
                Ok(())
            },
        )?;
        Ok(best.0 as u32)
    }
}
