//! EuroBERT: Llama as an encoder, in which every token sees every other one.

use super::Family;
use super::reading::llama_like::{BiasRule, NormStyle, RMS, Recipe};
use super::reading::task_rules::{TaskRules, TextSummary};

pub const FAMILY: Family = Family::decoder("eurobert", "EuroBert", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    mlp_bias: BiasRule::Key("mlp_bias", false),
    is_causal: false,
    ..Recipe::llama()
})
.with_tasks(TaskRules {
    text: TextSummary::MeanOfOutputs,
    ..TaskRules::USUAL
});
