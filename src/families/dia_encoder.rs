//! The encoder of Dia: Llama in which every token sees every other one, with scores that nothing divides.

use super::Family;
use super::reading::llama_like::{
    BlockNames, MlpStore, NormPlaces, NormStyle, RMS, Recipe, ScorePower,
};

pub const FAMILY: Family = Family::decoder("dia_encoder", "DiaEncoder", recipe);

/// How it differs from Llama.
pub(super) fn recipe() -> Recipe {
    Recipe {
        norm: NormStyle {
            eps_key: Some("norm_eps"),
            eps: 1e-5,
            ..RMS
        },
        norm_places: NormPlaces::BeforeNamed(["pre_sa_norm", "post_sa_norm"]),
        mlp: MlpStore::FusedGated,
        names: BlockNames {
            attn: "self_attention",
            ..BlockNames::USUAL
        },
        score_factor: Some(("head_dim", ScorePower::One)),
        is_causal: false,
        d_head: Some(128),
        ..Recipe::llama()
    }
}
