//! AFMoE: norms around both branches, heads with gates, rotation in layers with a window, and experts from some layer on.

use attnscope_spec::RouterScores;

use super::Family;
use super::reading::expected::Expected;
use super::reading::llama_like::{
    BiasRule, ExpertsKeys, FactorRule, NormPlaces, NormStyle, QkNorm, RMS, Recipe, RopeLayers,
    SharedKeys, SharedWidth, SparseLayers,
};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("afmoe", "Afmoe", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    norm_places: NormPlaces::Around([
        "input_layernorm",
        "post_attention_layernorm",
        "pre_mlp_layernorm",
        "post_mlp_layernorm",
    ]),
    qk_norm: QkNorm::Head,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    d_head: Some(128),
    head_gate: Some("gate_proj"),
    embed_scale: FactorRule::RootWidthIf("mup_enabled"),
    rope_layers: RopeLayers::Windowed,
    window: WindowRule::AllBut {
        every: 4,
        every_key: Some("global_attn_every_n_layers"),
        width: 1024,
    },
    experts: Some(ExpertsKeys {
        router: "router.gate",
        scores: RouterScores::Sigmoid,
        choice_bias: Some(("expert_bias", false)),
        normalises: BiasRule::Always,
        scale: Some(("route_scale", 1.0)),
        shared: Some(SharedKeys {
            name: "shared_experts",
            width: SharedWidth::Times("num_shared_experts", 2),
            gate: None,
        }),
        layers: SparseLayers::From("num_dense_layers", 1),
        ..ExpertsKeys::PLAIN
    }),
    expected_keys: &[
        ("score_func", Expected::Word("sigmoid")),
        ("route_norm", Expected::Flag(true)),
        ("n_group", Expected::Number(1)),
        ("num_expert_groups", Expected::Number(1)),
    ],
    ..Recipe::llama()
});
