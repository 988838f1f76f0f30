//! Hunyuan with experts in every layer, beside one that every token uses.

use super::Family;
use super::reading::expected::Expected;
use super::reading::llama_like::{
    BiasRule, ExpertsKeys, NormStyle, QkNorm, RMS, Recipe, SharedKeys, SharedWidth,
};

pub const FAMILY: Family = Family::decoder("hunyuan_v1_moe", "HunYuanMoEV1", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    qk_norm: QkNorm::HeadAfterRope,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    experts: Some(ExpertsKeys {
        router: "gate.wg",
        d_expert: "intermediate_size",
        n_used: "moe_topk",
        normalises: BiasRule::Always,
        shared: Some(SharedKeys {
            name: "shared_mlp",
            width: SharedWidth::Key("intermediate_size"),
            gate: None,
        }),
        ..ExpertsKeys::PLAIN
    }),
    expected_keys: &[
        ("use_qk_norm", Expected::Flag(true)),
        ("use_mixed_mlp_moe", Expected::Flag(true)),
        ("use_cla", Expected::Flag(false)),
        ("num_shared_expert", Expected::Number(1)),
        ("moe_layer_num_skipped", Expected::Number(0)),
        ("norm_topk_prob", Expected::Flag(true)),
    ],
    ..Recipe::llama()
});
