//! K-EXAONE: the attention of EXAONE 4 behind Llama's norms, with DeepSeek V3's experts in layers that a list names.

use super::Family;
use super::deepseek_v3::EXPERTS;
use super::reading::experts::GroupKeys;
use super::reading::llama_like::{
    ExpertsKeys, NormStyle, QkNorm, RMS, Recipe, RopeLayers, SharedKeys, SharedWidth, SparseLayers,
};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::decoder("exaone_moe", "ExaoneMoe", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    qk_norm: QkNorm::Head,
    rope_layers: RopeLayers::WindowedUnlessNull("sliding_window"),
    window: WindowRule::AllButUnlessNull {
        every: 4,
        every_key: "sliding_window_pattern",
        width: 4096,
    },
    experts: Some(ExpertsKeys {
        n_experts: ["num_experts", "num_local_experts"],
        choice_bias: Some(("e_score_correction_bias", false)),
        groups: Some(GroupKeys::if_stated(2)),
        shared: Some(SharedKeys {
            name: "shared_experts",
            width: SharedWidth::Times("num_shared_experts", 1),
            gate: None,
        }),
        layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 1),
        ..EXPERTS
    }),
    ..Recipe::llama()
});
