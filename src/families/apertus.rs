//! Apertus: Llama with norms of heads, no gate, and an activation whose curvatures are learned.

use super::Family;
use super::reading::llama_like::{BiasRule, MlpStore, NormPlaces, NormStyle, QkNorm, RMS, Recipe};

pub const FAMILY: Family = Family::decoder("apertus", "Apertus", || Recipe {
    norm: NormStyle { eps: 1e-5, ..RMS },
    theta: 12_000_000.0,
    norm_places: NormPlaces::BeforeByBranch,
    qk_norm: QkNorm::Head,
    qkv_bias: BiasRule::Key("attention_bias", false),
    o_bias: BiasRule::Key("attention_bias", false),
    activation: ("hidden_act", "xielu"),
    mlp: MlpStore::Learned("act_fn"),
    requires_rope_parameters: true,
    ..Recipe::llama()
});
