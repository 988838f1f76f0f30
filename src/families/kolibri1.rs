//! Kolibri 1: norms around both branches, windows on four layers of five, rotation only there, and experts in every layer.

use attnscope_spec::RouterScores;

use super::reading::llama_like::{
    BiasRule, ExpertsKeys, NormPlaces, QkNorm, Recipe, RopeLayers, SharedKeys, SharedWidth,
};
use super::reading::windows::WindowRule;
use super::{Family, glm4};

pub const FAMILY: Family = Family::decoder("kolibri1", "Kolibri1", || Recipe {
    norm_places: NormPlaces::Around(glm4::NORMS),
    qk_norm: QkNorm::Head,
    rope_layers: RopeLayers::Windowed,
    window: WindowRule::AllBut {
        every: 5,
        every_key: None,
        width: 513,
    },
    d_head: Some(128),
    experts: Some(ExpertsKeys {
        n_experts: ["num_local_experts", "num_experts"],
        scores: RouterScores::SigmoidOfChosen,
        choice_bias: Some(("gate.e_score_correction_bias", false)),
        normalises: BiasRule::Key("norm_topk_prob", false),
        shared: Some(SharedKeys {
            name: "shared_experts",
            width: SharedWidth::Key("shared_expert_intermediate_size"),
            gate: None,
        }),
        ..ExpertsKeys::PLAIN
    }),
    ..Recipe::llama()
});
