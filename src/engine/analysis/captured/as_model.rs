//! A trace as a model without weights, so that screens can walk through it as through any other.

use std::sync::Arc;

use super::Trace;
use crate::attention::AttentionSpec;
use crate::checkpoint::Checkpoint;
use crate::checkpoint::captured::Captured;
use crate::model::{
    BlockSpec, CrossSpec, EmbedSpec, FeedForward, LinearSource, MlpSpec, Model, ModelSpec,
    ProjectionSpec, Stack, StackSpec, TableSource,
};
use crate::ops::Activation;
use crate::prompt::Prompt;
use crate::stats::LayerReport;

/// What a trace looks like to a screen.
#[derive(Debug, Clone)]
pub struct TraceView {
    pub model: Arc<Model>,
    pub prompt: Prompt,
    /// Numbered from 0 in each stack, without gaps.
    pub layers: Vec<Arc<LayerReport>>,
}

/// The model, prompt and layers of a trace.
pub fn view_of(captured: &Captured, trace: &Trace) -> TraceView {
    let layers = renumbered(&trace.layers);
    let of = |stack: Stack| layers.iter().filter(move |layer| layer.stack == stack);
    let has_two = layers.iter().any(|layer| layer.stack != Stack::Only);
    let stacks: Vec<StackSpec> = match has_two {
        false => vec![stack_spec(
            Stack::Only,
            of(Stack::Only).map(|layer| &layer.spec).collect(),
            &[],
        )],
        true => {
            let cross: Vec<&AttentionSpec> = of(Stack::Cross).map(|layer| &layer.spec).collect();
            vec![
                stack_spec(
                    Stack::Encoder,
                    of(Stack::Encoder).map(|layer| &layer.spec).collect(),
                    &[],
                ),
                stack_spec(
                    Stack::Decoder,
                    of(Stack::Decoder).map(|layer| &layer.spec).collect(),
                    &cross,
                ),
            ]
        }
    };
    let main = stacks[stacks.len() - 1].clone();
    let spec = ModelSpec {
        stacks,
        ..ModelSpec::of_one_stack("trace", main, None)
    };
    let n_of = |stack: Stack, is_key: bool| {
        let layer = layers.iter().find(|layer| layer.stack == stack)?;
        let head = layer.heads.first()?;
        Some(if is_key {
            head.summary.column_sums.len()
        } else {
            head.summary.rows.len()
        })
    };
    let n = n_of(Stack::Only, false)
        .or(n_of(Stack::Decoder, false))
        .or(n_of(Stack::Cross, false))
        .unwrap_or(0);
    let mut prompt = prompt_of(
        if has_two {
            &trace.decoder_tokens
        } else {
            &trace.tokens
        },
        n,
    );
    if has_two {
        let n_source = n_of(Stack::Encoder, true)
            .or(n_of(Stack::Cross, true))
            .unwrap_or(0);
        prompt.source = Some(Box::new(prompt_of(&trace.tokens, n_source)));
    }
    TraceView {
        model: Arc::new(Model {
            checkpoint: Arc::new(Checkpoint::of_captured(captured)),
            spec,
        }),
        prompt,
        layers,
    }
}

/// Tokens as ids; a position's number where none were captured.
fn prompt_of(tokens: &[u64], n: usize) -> Prompt {
    let is_whole = tokens.len() == n;
    Prompt {
        tokens: (0..n)
            .map(|idx| if is_whole { tokens[idx] as u32 } else { 0 })
            .collect(),
        labels: (0..n)
            .map(|idx| {
                if is_whole {
                    tokens[idx].to_string()
                } else {
                    format!("#{idx}")
                }
            })
            .collect(),
        positions: (0..n).collect(),
        ..Prompt::default()
    }
}

/// Layers counted from 0 in each stack: a trace may hold a few of a model's.
fn renumbered(layers: &[Arc<LayerReport>]) -> Vec<Arc<LayerReport>> {
    let mut n_of: Vec<(Stack, usize)> = Vec::new();
    let number = |layer: &Arc<LayerReport>| {
        let at = match n_of.iter_mut().find(|(stack, _)| *stack == layer.stack) {
            Some((_, n)) => {
                *n += 1;
                *n
            }
            None => {
                n_of.push((layer.stack, 0));
                0
            }
        };
        if at == layer.layer_idx {
            return layer.clone();
        }
        let name = layer
            .name
            .clone()
            .unwrap_or_else(|| format!("layer {} of the file", layer.layer_idx));
        Arc::new(LayerReport {
            layer_idx: at,
            name: Some(name),
            ..LayerReport::clone(layer)
        })
    };
    layers.iter().map(number).collect()
}

/// Blocks that hold an attention and nothing else: no tensor is ever read through them.
fn stack_spec(
    stack: Stack,
    attentions: Vec<&AttentionSpec>,
    cross: &[&AttentionSpec],
) -> StackSpec {
    let nothing = || LinearSource::whole(String::new(), None, 0, 0);
    let projections = || ProjectionSpec::plain(nothing(), nothing(), nothing(), nothing());
    let n_layers = attentions.len().max(cross.len());
    let blocks = (0..n_layers).map(|layer_idx| {
        // A decoder may have been captured by its cross-attention alone.
        let attention = attentions.get(layer_idx).or(cross.get(layer_idx)).copied();
        let attention = attention
            .cloned()
            .unwrap_or_else(|| AttentionSpec::plain(1, 1, 1, false));
        let mlp = MlpSpec::plain(nothing(), nothing(), Activation::Relu);
        BlockSpec {
            cross: cross
                .get(layer_idx)
                .map(|attention| Box::new(CrossSpec::plain((*attention).clone(), projections()))),
            ..BlockSpec::plain(attention, projections(), FeedForward::Dense(Box::new(mlp)))
        }
    });
    let table = TableSource {
        tensor: String::new(),
        n_rows: 0,
        width: 0,
    };
    StackSpec {
        stack,
        ..StackSpec::only(EmbedSpec::plain(table), blocks.collect(), None)
    }
}
