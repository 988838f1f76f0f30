//! AIMv2's tower of pictures: RMSNorm, gates, and a norm of the patches before learned positions are added.

use attnscope_compute::ops::NormKind;

use super::reading::processor::Processor;
use super::reading::vit_like::{
    Biases, Keys, Names, OF_CLIP, OF_MOST, Pictures, Reads, Sizes, VitLike,
};
use super::{Family, siglip_vision_model, vit};

/// Names of a block of both towers.
pub(super) const NAMES: Names = Names {
    q: "attention.q_proj",
    k: "attention.k_proj",
    v: "attention.v_proj",
    o: "attention.out_proj",
    norms: ["rms_norm1", "rms_norm2"],
    up: "ffn.up_proj",
    down: "ffn.down_proj",
    gate: Some("ffn.gate_proj"),
    biases: Biases::Stored,
    ..OF_CLIP
};

pub const FAMILY: Family = Family::seeing("aimv2_vision_model", "Aimv2VisionModel", || VitLike {
    sizes: Sizes {
        d_model: 1024,
        d_mlp: 2816,
        n_layers: 24,
        n_heads: 8,
    },
    keys: Keys {
        eps: Some("rms_norm_eps"),
        aside: &["qkv_bias", "mlp_bias", "use_head"],
        off: &["is_native"],
        ..OF_MOST
    },
    eps: 1e-5,
    activation: "silu",
    norm: NormKind::RmsNorm,
    names: NAMES,
    reads: Reads::Pictures(Pictures {
        kernel: "embeddings.patch_embed.weight",
        patch_norm: Some("embeddings.rms_norm"),
        patch: 14,
        processor: Processor::CLIP,
        ..siglip_vision_model::PICTURES
    }),
    last_norm: Some("rms_norm"),
    ..vit::like(&["vision_model.", ""])
});
