//! MiniMax M2: norms of whole queries and keys, part of each head rotating, and experts chosen by sigmoids in every layer.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, RouterScores};

use super::Family;
use super::reading::expected::{Expected, check};
use super::reading::experts::NUMBERED;
use super::reading::llama_like::{
    self, BiasRule, ExpertStore, ExpertsKeys, QkNorm, Recipe, SparseLayers,
};

pub const FAMILY: Family = Family::own("minimax_m2", "MiniMaxM2", read);

const EXPERTS: ExpertsKeys = ExpertsKeys {
    at: "block_sparse_moe",
    store: ExpertStore::Each(NUMBERED),
    n_experts: ["num_local_experts", "num_experts"],
    d_expert: "intermediate_size",
    scores: RouterScores::Sigmoid,
    choice_bias: Some(("e_score_correction_bias", false)),
    normalises: BiasRule::Always,
    layers: SparseLayers::All,
    ..ExpertsKeys::PLAIN
};

const EXPECTED: [(&str, Expected); 6] = [
    ("attn_type_list", Expected::Number(1)),
    ("scoring_func", Expected::Word("sigmoid")),
    ("use_qk_norm", Expected::Flag(true)),
    ("qk_norm_type", Expected::Word("per_layer")),
    ("use_routing_bias", Expected::Flag(true)),
    ("shared_intermediate_size", Expected::Number(0)),
];

/// The width of a head if the configuration states none.
const D_HEAD: usize = 128;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    check(reader, &EXPECTED)?;
    // Published configurations state how much of a head rotates in dimensions.
    let number = |value: Option<&serde_json::Value>| value.and_then(|value| value.as_f64());
    let d_rotary = number(reader.value("rotary_dim"));
    let d_head = number(reader.value("head_dim")).unwrap_or(D_HEAD as f64);
    let recipe = Recipe {
        d_head: Some(D_HEAD),
        theta: 5e6,
        rotary_share: Some(d_rotary.map_or(1.0, |d_rotary| d_rotary / d_head)),
        qk_norm: QkNorm::Whole,
        experts: Some(EXPERTS),
        ..Recipe::llama()
    };
    llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)
}
