//! GLM-4V's tower of pictures: Qwen2-VL's with RMSNorm and gates, and learned positions added after a norm of the patches.

use attnscope_compute::ops::NormKind;
use attnscope_spec::Resampling;

use super::reading::vit_like::{
    KEYS_OF_QWEN, Keys, MlpKey, Names, OF_QWEN, Pictures, Reads, Sizes, VitLike,
};
use super::{Family, qwen2_vl_vision};

pub const FAMILY: Family = Family::seeing("glm4v_vision", "Glm4vVisionModel", || VitLike {
    sizes: Sizes {
        d_model: 1536,
        d_mlp: 4096,
        n_layers: 24,
        n_heads: 12,
    },
    keys: Keys {
        d_mlp: MlpKey::Width("out_hidden_size"),
        eps: Some("rms_norm_eps"),
        aside: &["intermediate_size", "attention_bias"],
        ..KEYS_OF_QWEN
    },
    reads: Reads::Pictures(Pictures {
        patch_norm: Some("post_conv_layernorm"),
        positions: Some("embeddings.position_embedding.weight"),
        resampled: Some(Resampling::Nearest),
        size: 336,
        ..qwen2_vl_vision::PICTURES
    }),
    ..LIKE
});

/// What the towers of GLM have in common.
pub(super) const LIKE: VitLike = VitLike {
    eps: 1e-5,
    activation: "silu",
    norm: NormKind::RmsNorm,
    names: Names {
        up: "mlp.up_proj",
        down: "mlp.down_proj",
        gate: Some("mlp.gate_proj"),
        ..OF_QWEN
    },
    last_norm: Some("post_layernorm"),
    ..qwen2_vl_vision::LIKE
};
