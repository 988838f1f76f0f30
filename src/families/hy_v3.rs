//! Hunyuan 3: Qwen3's attention, and experts chosen by sigmoids from the second layer on.

use attnscope_spec::RouterScores;

use super::Family;
use super::reading::expected::Expected;
use super::reading::llama_like::{
    BiasRule, ExpertsKeys, NormStyle, QkNorm, RMS, Recipe, SharedKeys, SharedWidth, SparseLayers,
};

pub const FAMILY: Family = Family::decoder("hy_v3", "HYV3", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    theta: 11_158_840.0,
    d_head: Some(128),
    qk_norm: QkNorm::Head,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    mlp_bias: BiasRule::Key("mlp_bias", false),
    experts: Some(ExpertsKeys {
        router: "router.gate",
        scores: RouterScores::Sigmoid,
        choice_bias: Some(("expert_bias", false)),
        normalises: BiasRule::Always,
        scale: Some(("router_scaling_factor", 2.826)),
        shared: Some(SharedKeys {
            name: "shared_mlp",
            width: SharedWidth::Times("num_shared_experts", 1),
            gate: None,
        }),
        layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 1),
        ..ExpertsKeys::PLAIN
    }),
    expected_keys: &[
        ("qk_norm", Expected::Flag(true)),
        ("route_norm", Expected::Flag(true)),
        ("moe_router_use_sigmoid", Expected::Flag(true)),
        ("moe_router_enable_expert_bias", Expected::Flag(true)),
    ],
    ..Recipe::llama()
});
