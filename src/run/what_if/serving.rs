//! What inference engines change: the format of the KV cache, the keys that it keeps, and the format of weights.

use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ModelSpec, Place, Stack, StackSpec, WeightFormat};

use super::{Change, WhatIf};

/// Whether an engine keeps keys and values of an attention: of tokens that later ones see, and of an encoder's output.
pub(super) fn has_cache(attention: &AttentionSpec) -> bool {
    attention.mask.causal || attention.is_cross
}

/// Whether keys can be dropped while a model writes.
pub(super) fn can_stream(attention: &AttentionSpec) -> bool {
    attention.mask.causal && !attention.is_cross
}

/// Refuses changes of serving at a place where an engine has nothing to change.
pub(super) fn check_serving(spec: &ModelSpec, place: Place, what_if: &WhatIf) -> Result<()> {
    let any = |is: fn(&AttentionSpec) -> bool| {
        let stacks = spec.stacks.iter();
        stacks.flat_map(|stack| attentions(stack, place)).any(is)
    };
    let problem = match what_if.change {
        Change::Cache(_) if !any(has_cache) => {
            "no KV cache is kept here; expected a place with causal attention or cross-attention over blocks"
        }
        Change::Streaming(_) if !any(can_stream) => {
            "no KV cache grows here; expected a place with causal attention"
        }
        Change::Weights(_) if place.head_idx.is_some() => {
            "heads share the maps of their layer; expected a layer such as L3, a stack, or no place"
        }
        Change::Weights(_) if place.stack == Some(Stack::Cross) => {
            "cross-attention is rounded with its decoder layer; expected a place such as decoder.L3"
        }
        Change::Weights(_) if spec.stacks.iter().any(|stack| is_recurrent(stack, place)) => {
            "maps of a recurrent network are not rounded; expected a place with blocks"
        }
        _ => return Ok(()),
    };
    Err(refused(what_if, problem))
}

/// Refuses changes of serving for an attention without blocks, as alignments have it.
pub(super) fn refuse_serving(what_if: &WhatIf) -> Result<()> {
    let problem = match what_if.change {
        Change::Cache(_) => "an alignment has no KV cache",
        Change::Weights(_) => "an alignment has no weights of layers",
        _ => return Ok(()),
    };
    Err(refused(what_if, problem))
}

fn refused(what_if: &WhatIf, problem: &str) -> Error {
    Error::Setting(format!("--what-if {what_if}: {problem}"))
}

/// The attentions of blocks at a place, without those whose keys no engine keeps: patches of another grid.
fn attentions(stack: &StackSpec, place: Place) -> impl Iterator<Item = &AttentionSpec> {
    let blocks = stack.blocks().iter().enumerate();
    blocks.flat_map(move |(layer_idx, block)| {
        let own = block.attention();
        let own = own.filter(|_| place.holds(stack.stack, layer_idx));
        let own = own.filter(|_| block.key_grid().is_none());
        let cross = block.cross.as_ref().map(|cross| &cross.attention);
        let cross = cross.filter(|_| place.holds(Stack::Cross, layer_idx));
        own.into_iter().chain(cross)
    })
}

fn is_recurrent(stack: &StackSpec, place: Place) -> bool {
    stack.recurrence().is_some() && place.holds(stack.stack, 0)
}

/// Rounds the weights of layers at a place, and what stands around the layers where the place is a whole stack or the model.
pub(super) fn round_weights(spec: &mut ModelSpec, place: Place, format: WeightFormat) {
    for stack in &mut spec.stacks {
        let name = stack.stack;
        for (layer_idx, block) in stack.blocks_mut().iter_mut().enumerate() {
            if place.holds(name, layer_idx) {
                block.round_weights(format);
            }
        }
        let is_whole = place.layer_idx.is_none();
        if is_whole && place.stack.is_none_or(|only| only == name) {
            stack.round_ends(format);
        }
    }
    if place == Place::default()
        && let Some(head) = &mut spec.head
    {
        head.round_weights(format);
        // One tensor has one format.
        let rounded = head.unembed.rounded;
        for stack in &mut spec.stacks {
            if rounded.is_some() && stack.embed.tokens.tensor == head.unembed.weight {
                stack.embed.rounded = rounded;
            }
        }
    }
}
