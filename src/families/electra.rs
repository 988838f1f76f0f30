//! ELECTRA: BERT whose embeddings may be narrower than its residual; the generator's head, where it is stored.

use attnscope_compute::ops::Activation;

use super::Family;
use super::layouts::Keys;
use super::reading::bert_like::{BertLike, Widening};
use super::reading::masked_head::MaskedHead;
use super::reading::task_rules::{HeadActivation, TaskRules};

pub const FAMILY: Family = Family::encoder("electra", "Electra", || BertLike {
    widens: Some(WIDENS),
    ..BertLike::plain("electra.", HEAD)
})
.with_tasks(TaskRules {
    dense: HeadActivation::Always(Activation::Gelu),
    summary: Some("gelu"),
    discriminator: HeadActivation::Key("hidden_act", "gelu"),
    ..TaskRules::USUAL
})
.with_keys(Keys::Bert);

/// Narrow embeddings.
pub(super) const WIDENS: Widening = Widening {
    key: "embedding_size",
    map: "embeddings_project",
    is_always: false,
    head_key: None,
};

/// The generator's head.
pub(super) const HEAD: MaskedHead = MaskedHead {
    dense: Some("generator_predictions.dense"),
    norm: "generator_predictions.LayerNorm",
    decoder: "generator_lm_head",
    bias: "generator_lm_head.bias",
    activation: Some(Activation::Gelu),
};
