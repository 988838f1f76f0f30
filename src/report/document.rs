//! The report as data: the versioned shape that outside programs rely on.

use std::ops::ControlFlow;
use std::sync::Arc;

use attnscope_checks::stats::{LayerReport, STATISTICS, Values};
use attnscope_compute::attention::AttentionSpec;
use attnscope_prompt::Prompt;
use attnscope_run::{LabelAt, NonFinite, Observer, Outcome, Progress, Recorded};
use attnscope_spec::{Model, Stack};
use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::number::Number;

/// Changes when a reader of the old shape would misread the new one.
pub const VERSION: u32 = 3;

/// What every layer and head of a checkpoint does, prompt by prompt.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Report {
    #[schemars(extend("const" = VERSION))]
    pub version: u32,
    pub model: ModelRecord,
    /// What-ifs that were on, as they were written.
    pub what_if: Vec<String>,
    /// What a reader must know of how the checkpoint was read; left out where there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Stored tensors that the model never reads, less buffers and states of optimisers; left out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    pub prompts: Vec<PromptRecord>,
}

/// Version of the shape with several checkpoints.
pub const SEVERAL: u32 = 3;

/// What every layer and head of several checkpoints does, prompt by prompt.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct SeveralReport {
    #[schemars(extend("const" = SEVERAL))]
    pub version: u32,
    pub checkpoints: Vec<CheckpointRecord>,
}

/// One checkpoint of several.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CheckpointRecord {
    /// Base name of the checkpoint.
    pub checkpoint: String,
    /// Step of the training, where the name or the trainer's state tells it.
    pub step: Option<u64>,
    pub model: ModelRecord,
    /// What-ifs that were on, as they were written.
    pub what_if: Vec<String>,
    /// What a reader must know of how the checkpoint was read; left out where there is nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Stored tensors that the model never reads, less buffers and states of optimisers; left out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    pub prompts: Vec<PromptRecord>,
}

impl CheckpointRecord {
    pub fn of(report: Report, step: Option<u64>) -> Self {
        Self {
            checkpoint: report.model.name.clone(),
            step,
            model: report.model,
            what_if: report.what_if,
            notes: report.notes,
            unread: report.unread,
            prompts: report.prompts,
        }
    }
}

/// A model and its sizes.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ModelRecord {
    /// Base name of the checkpoint.
    pub name: String,
    /// Family of architectures, see docs/families.md.
    pub family: &'static str,
    /// Layers of the only stack, or of the decoder.
    pub n_layers: usize,
    /// Layers of the encoder; left out for models without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize")]
    pub n_encoder_layers: Option<usize>,
    /// Query heads of a layer.
    pub n_heads: usize,
    /// Key and value heads of a layer.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub d_head: usize,
    /// Hidden size.
    pub d_model: usize,
    /// Size of the vocabulary.
    pub d_vocab: usize,
    /// Context length; null where the model has none.
    pub n_ctx: Option<usize>,
    /// Element type of the weights in the file.
    pub dtype: String,
}

impl ModelRecord {
    pub fn of(model: &Model) -> Self {
        let spec = &model.spec;
        let attention = spec.main_stack().first_attention();
        let of = |figure: fn(&AttentionSpec) -> usize| attention.map_or(0, figure);
        Self {
            name: model.checkpoint.name.clone(),
            family: spec.family,
            n_layers: spec.main_stack().n_layers(),
            n_encoder_layers: spec
                .is_encoder_decoder()
                .then(|| spec.n_layers(Stack::Encoder)),
            n_heads: of(|attention| attention.n_heads),
            n_kv_heads: of(|attention| attention.n_kv_heads),
            d_head: of(|attention| attention.d_head),
            d_model: spec.d_model,
            d_vocab: spec.d_vocab,
            n_ctx: spec.n_ctx,
            dtype: model.checkpoint.dtype_label(),
        }
    }

    /// A model that other code ran, as far as its recording tells; sizes that it does not tell are 0.
    pub fn of_recorded(recorded: &Recorded) -> Self {
        let layers = recorded.layers.iter();
        let n_of = |stack: Stack| layers.clone().filter(|layer| layer.stack == stack).count();
        let n_encoder_layers = n_of(Stack::Encoder);
        let first = recorded.layers.first().map(|layer| &layer.spec);
        let of = |figure: fn(&AttentionSpec) -> usize| first.map_or(0, figure);
        let last_axis = |name: &str| {
            let shape = recorded.captured.shape(name);
            shape.and_then(|shape| shape.last().copied()).unwrap_or(0)
        };
        Self {
            name: recorded.captured.name.clone(),
            family: if recorded.live.is_some() {
                "live"
            } else {
                "trace"
            },
            n_layers: n_of(Stack::Only).max(n_of(Stack::Decoder)),
            n_encoder_layers: (n_encoder_layers > 0).then_some(n_encoder_layers),
            n_heads: of(|attention| attention.n_heads),
            n_kv_heads: of(|attention| attention.n_kv_heads),
            d_head: last_axis("blocks.0.attn.rot_q"),
            d_model: last_axis("blocks.0.resid_post"),
            d_vocab: last_axis("logits"),
            n_ctx: None,
            dtype: recorded
                .live
                .as_ref()
                .map_or(String::new(), |about| about.dtype.clone()),
        }
    }
}

/// One prompt and what each layer made of it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PromptRecord {
    /// Id of the prompt.
    pub id: String,
    /// Token ids; those of the encoder for models that have one.
    pub tokens: Vec<u32>,
    /// Token ids of the decoder; left out for models without an encoder.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<u32>")]
    pub decoder_tokens: Option<Vec<u32>>,
    /// What the model wrote itself; left out where it wrote nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WrittenRecord")]
    pub written: Option<WrittenRecord>,
    /// Mean next-token loss in nats; null for models that predict no next token.
    #[serde(serialize_with = "optional_number")]
    #[schemars(with = "Option<Number>")]
    pub loss: Option<f64>,
    /// Labels that a classifier gives: all of them for the text, or the likeliest of each token; left out for other models.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<LabelRecord>,
    /// The first NaN or infinity of the run; null where there was none.
    pub first_nonfinite: Option<String>,
    pub layers: Vec<LayerRecord>,
}

/// What a model wrote behind its prompt, or as its target.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct WrittenRecord {
    /// Position of the first token that the model wrote: where the prompt ends.
    pub first: usize,
    /// Ids of the tokens that it wrote.
    pub tokens: Vec<u32>,
    /// What they read as.
    pub text: String,
}

impl WrittenRecord {
    /// Returns what a model generated for a prompt; `None` if it generated nothing.
    pub fn of(prompt: &Prompt) -> Option<Self> {
        let first = prompt.tokens.len().checked_sub(prompt.n_written)?;
        (prompt.n_written > 0).then(|| Self {
            first,
            tokens: prompt.tokens[first..].to_vec(),
            text: prompt.written.clone(),
        })
    }
}

/// A label of a classifier, and where it is given.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LabelRecord {
    /// The token at which the label is read.
    pub position: usize,
    /// Name of the label.
    pub label: String,
    /// What the head gives.
    pub logit: Number,
    /// Probability of the label; null where the head gives a number.
    pub probability: Option<Number>,
}

impl LabelRecord {
    /// Returns the labels that a classifier predicts.
    pub fn of(model: &Model, outcome: &Outcome) -> Vec<Self> {
        let labels = model
            .spec
            .head
            .as_ref()
            .and_then(|head| head.labels.as_ref());
        let found = outcome
            .predictions
            .as_ref()
            .map(|found| found.labels.as_slice());
        let (Some(labels), Some(found)) = (labels, found) else {
            return Vec::new();
        };
        let record = |found: &LabelAt| Self {
            position: found.position_idx,
            label: labels
                .names
                .get(found.label_idx)
                .cloned()
                .unwrap_or_default(),
            logit: Number(f64::from(found.logit)),
            probability: found.probability.map(|p| Number(f64::from(p))),
        };
        found.iter().map(record).collect()
    }
}

/// Statistics of a layer and of its heads.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LayerRecord {
    /// Stack of the layer; null for the only stack.
    #[serde(serialize_with = "stack_label")]
    #[schemars(schema_with = "super::schema_parts::stack")]
    pub stack: Stack,
    /// Index of the layer in its stack, from 0.
    pub layer: usize,
    /// Statistics of the layer by their ids.
    #[serde(serialize_with = "layer_stats")]
    #[schemars(schema_with = "super::schema_parts::layer_statistics")]
    pub stats: Values,
    pub heads: Vec<HeadRecord>,
}

/// Statistics of a head.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HeadRecord {
    /// Index of the head, from 0.
    pub head: usize,
    /// Statistics of the head by their ids.
    #[serde(serialize_with = "head_stats")]
    #[schemars(schema_with = "super::schema_parts::head_statistics")]
    pub stats: Values,
}

/// Collects the report's numbers for each layer and drops the rest.
#[derive(Debug, Default)]
pub struct Recorder<P> {
    layers: Vec<LayerRecord>,
    /// Whole layers as they arrived, for formats that judge and draw them.
    whole: Option<Vec<Arc<LayerReport>>>,
    pub progress: P,
}

impl<P: FnMut(Progress)> Recorder<P> {
    pub fn new(progress: P) -> Self {
        Self {
            layers: Vec::new(),
            whole: None,
            progress,
        }
    }

    /// A collector that also keeps whole layers if `keeps` is set.
    pub fn keeping(keeps: bool, progress: P) -> Self {
        Self {
            whole: keeps.then(Vec::new),
            ..Self::new(progress)
        }
    }

    /// Takes the whole layers out; empty if they were not kept.
    pub fn take_whole(&mut self) -> Vec<Arc<LayerReport>> {
        self.whole.take().unwrap_or_default()
    }

    /// Finishes the record of one prompt.
    ///
    /// Without a model there are no names of labels.
    pub fn finish(
        self,
        id: String,
        model: Option<&Model>,
        prompt: &Prompt,
        outcome: &Outcome,
    ) -> PromptRecord {
        PromptRecord {
            id,
            tokens: prompt.given().tokens.clone(),
            decoder_tokens: prompt.source.as_ref().map(|_| prompt.tokens.clone()),
            written: WrittenRecord::of(prompt),
            loss: outcome.predictions.as_ref().and_then(|p| p.loss),
            labels: model.map_or_else(Vec::new, |model| LabelRecord::of(model, outcome)),
            first_nonfinite: outcome.nonfinite.as_ref().map(NonFinite::to_string),
            layers: self.layers,
        }
    }
}

impl<P: FnMut(Progress)> Observer for Recorder<P> {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        (self.progress)(progress);
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        let heads = report.heads.iter().enumerate();
        let heads = heads
            .map(|(head, report)| HeadRecord {
                head,
                stats: report.stats.clone(),
            })
            .collect();
        self.layers.push(LayerRecord {
            stack: report.stack,
            layer: report.layer_idx,
            stats: report.stats.clone(),
            heads,
        });
        if let Some(whole) = &mut self.whole {
            whole.push(Arc::new(report));
        }
        ControlFlow::Continue(())
    }
}

fn optional_number<S: Serializer>(value: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    value.map(Number).serialize(to)
}

fn stack_label<S: Serializer>(stack: &Stack, to: S) -> Result<S::Ok, S::Error> {
    stack.label().serialize(to)
}

fn layer_stats<S: Serializer>(values: &Values, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(
        STATISTICS
            .iter()
            .enumerate()
            .map(|(idx, s)| (s.id, values.measured(idx).map(Number))),
    )
}

fn head_stats<S: Serializer>(values: &Values, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(None)?;
    for (idx, statistic) in STATISTICS
        .iter()
        .enumerate()
        .filter(|(_, s)| s.is_per_head())
    {
        map.serialize_entry(statistic.id, &values.measured(idx).map(Number))?;
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_and_infinities_are_written_as_words() {
        let text = |v: f64| serde_json::to_string(&Number(v)).expect("serialises");
        assert_eq!(text(f64::NAN), "\"NaN\"");
        assert_eq!(text(f64::NEG_INFINITY), "\"-Infinity\"");
        assert_eq!(text(0.25), "0.25");
    }
}
