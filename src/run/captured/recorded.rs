//! A trace as the screen shows it: grids, prompt, and layers numbered from 0 in each stack.

use std::sync::Arc;

use attnscope_checkpoint::captured::Captured;
use attnscope_checkpoint::values::Values;
use attnscope_checks::stats::LayerReport;
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_live::About;
use attnscope_prompt::Prompt;
use attnscope_spec::{Grid, Place, Stack};

use super::arrays::heads_of;
use super::{ArrayNames, Heads, Randomness, Trace};
use crate::job::Outcome;
use crate::predictions::{Predictions, Scan};

/// A trace opened for viewing.
#[derive(Debug)]
pub struct Recorded {
    pub captured: Captured,
    /// How the trace was made, and how its mask was determined.
    pub about: String,
    pub prompt: Prompt,
    /// Numbered from 0 in each stack, without gaps.
    pub layers: Vec<Arc<LayerReport>>,
    /// The arrays of each layer, in the order of `layers`.
    arrays: Vec<ArrayNames>,
    /// The process that recorded it and can run again; `None` for a file.
    pub live: Option<About>,
    /// The rows of numbers that ran in place of tokens.
    pub values: Option<Values>,
    /// Predictions, if logits were recorded for every token.
    pub outcome: Outcome,
}

impl Recorded {
    /// Takes a trace's layers and renumbers them.
    pub fn new(captured: Captured, trace: &Trace) -> Self {
        let layers = renumbered(&trace.layers);
        let prompt = prompt(&captured, trace, &layers);
        let is_causal = layers
            .iter()
            .any(|layer| layer.stack != Stack::Cross && layer.spec.mask.causal);
        Self {
            outcome: Outcome {
                predictions: predictions(&captured, &prompt, is_causal),
                tokens: prompt.tokens.clone(),
                ..Outcome::default()
            },
            prompt,
            layers,
            arrays: trace.arrays.clone(),
            about: match Randomness::of(&captured).words() {
                Some(words) => format!("a trace; {}; {words}", trace.mask_origin),
                None => format!("a trace; {}", trace.mask_origin),
            },
            captured,
            live: None,
            values: None,
        }
    }

    /// Makes it a run of a process that can run again, on rows of numbers if there are any.
    pub fn of_live(mut self, about: About, values: Option<Values>) -> Self {
        self.about = format!(
            "live: {}; {}",
            about.words(),
            match &about.intends {
                Some(why) if self.about.contains("mask as the file says") => why,
                _ => self.about.trim_start_matches("a trace; "),
            }
        );
        self.live = Some(about);
        self.values = values;
        self
    }

    fn layers_of(&self, stack: Stack) -> impl Iterator<Item = &Arc<LayerReport>> {
        self.layers.iter().filter(move |layer| layer.stack == stack)
    }

    /// Heads of every recorded layer, in grid order.
    pub fn shape(&self) -> Vec<Grid> {
        let of = |stack: Stack| Grid {
            stack,
            n_heads: self
                .layers_of(stack)
                .map(|layer| layer.heads.len())
                .collect(),
        };
        let all = [Stack::Only, Stack::Encoder, Stack::Decoder, Stack::Cross].map(of);
        all.into_iter()
            .filter(|grid| !grid.n_heads.is_empty())
            .collect()
    }

    /// Attention of a layer, as far as it is known.
    pub fn attention(&self, stack: Stack, layer_idx: usize) -> Option<&AttentionSpec> {
        Some(&self.layers_of(stack).nth(layer_idx)?.spec)
    }

    /// The names of a layer's arrays.
    pub fn arrays_of(&self, stack: Stack, layer_idx: usize) -> ArrayNames {
        let at = |layer: &Arc<LayerReport>| (layer.stack, layer.layer_idx) == (stack, layer_idx);
        let nth = self.layers.iter().position(at);
        let names = nth.and_then(|nth| self.arrays.get(nth));
        names.cloned().unwrap_or_default()
    }

    /// The patterns of a layer.
    ///
    /// # Errors
    /// When they were not recorded, or cannot be read.
    pub fn patterns(&self, stack: Stack, layer_idx: usize) -> Result<Heads> {
        let names = self.arrays_of(stack, layer_idx);
        let missing = || {
            let place = Place::layer(stack, layer_idx);
            let problem = format!("the pattern of {place} was not recorded");
            self.captured.at("pattern", &problem)
        };
        let name = names.pattern.ok_or_else(missing)?;
        heads_of(&self.captured, &name, names.axes)
    }

    /// # Errors
    /// When the file has changed since it was opened.
    pub fn unchanged(&self) -> Result<()> {
        self.captured.unchanged()
    }
}

/// Prompt of a trace's tokens, with the encoder's tokens as its source.
fn prompt(captured: &Captured, trace: &Trace, layers: &[Arc<LayerReport>]) -> Prompt {
    let has_two = layers.iter().any(|layer| layer.stack != Stack::Only);
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
    let tokens = if has_two {
        &trace.decoder_tokens
    } else {
        &trace.tokens
    };
    let key = if has_two {
        "attnscope.decoder_labels"
    } else {
        "attnscope.labels"
    };
    let mut prompt = prompt_of(tokens, &labels(captured, key), n);
    if has_two {
        let n_source = n_of(Stack::Encoder, true)
            .or(n_of(Stack::Cross, true))
            .unwrap_or(0);
        let texts = labels(captured, "attnscope.labels");
        prompt.source = Some(Box::new(prompt_of(&trace.tokens, &texts, n_source)));
    }
    prompt
}

/// Predictions from recorded logits [position, token], with losses for a causal model; `None` if they do not belong to the tokens.
fn predictions(captured: &Captured, prompt: &Prompt, is_causal: bool) -> Option<Predictions> {
    let shape = captured.shape("logits")?;
    let (n, d_vocab) = match *shape {
        [n, d_vocab] | [1, n, d_vocab] => (n, d_vocab),
        _ => return None,
    };
    let largest = prompt.tokens.iter().max().copied()?;
    if n != prompt.tokens.len() || prompt.lacks_ids || largest as usize >= d_vocab {
        return None;
    }
    let logits = captured.array("logits").ok()?.values;
    let next = prompt.tokens.iter().skip(1).map(|token| Some(*token));
    let mut scan = Scan::new(next.chain([None]).collect());
    scan.add(&(0..d_vocab), &logits);
    Some(scan.finish(None, is_causal, |_| true))
}

/// Token texts from a JSON list in the metadata, present if the capture had a tokenizer; anything else gives no texts.
fn labels(captured: &Captured, key: &str) -> Vec<String> {
    let said = captured.metadata.get(key);
    said.and_then(|said| serde_json::from_str(said).ok())
        .unwrap_or_default()
}

/// Tokens with their texts, or else their ids as labels, or else position numbers.
fn prompt_of(tokens: &[u32], texts: &[String], n: usize) -> Prompt {
    let is_whole = tokens.len() == n;
    Prompt {
        tokens: (0..n)
            .map(|idx| if is_whole { tokens[idx] } else { 0 })
            .collect(),
        labels: (0..n)
            .map(|idx| {
                if texts.len() == n {
                    texts[idx].clone()
                } else if is_whole {
                    tokens[idx].to_string()
                } else {
                    format!("#{idx}")
                }
            })
            .collect(),
        positions: (0..n).collect(),
        lacks_ids: !is_whole,
        ..Prompt::default()
    }
}

/// Numbers layers from 0 in each stack, since a trace may hold only some of a model's layers.
pub fn renumbered(layers: &[Arc<LayerReport>]) -> Vec<Arc<LayerReport>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_of_texts_alone_lacks_ids_whatever_they_say() {
        let texts = ["#".to_owned(), "a".to_owned()];
        let without = prompt_of(&[], &texts, 2);
        assert!(without.lacks_ids && without.labels == texts);
        let with = prompt_of(&[5, 6], &texts, 2);
        assert!(!with.lacks_ids && with.tokens == [5, 6]);
    }
}
