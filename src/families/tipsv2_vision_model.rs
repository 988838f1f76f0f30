//! TIPS v2's tower of pictures: DINOv2's blocks under the names of published files, with registers and positions that are resampled
//! linearly.

use attnscope_spec::Resampling;

use super::reading::vit_like::{Keys, MlpKey, Names, OF_MOST, OF_QWEN, Pictures, Reads, VitLike};
use super::{Family, dinov2};

pub const FAMILY: Family = Family::seeing("tipsv2_vision_model", "Tipsv2VisionModel", || VitLike {
    keys: Keys {
        d_mlp: MlpKey::Ratio("mlp_ratio"),
        aside: &[
            "qkv_bias",
            "layerscale_value",
            "apply_layernorm",
            "reshape_hidden_states",
        ],
        off: &["use_swiglu_ffn"],
        ..OF_MOST
    },
    names: Names {
        up: "mlp.c_fc",
        down: "mlp.c_proj",
        factors: Some(["ls1.gamma", "ls2.gamma"]),
        ..OF_QWEN
    },
    reads: Reads::Pictures(Pictures {
        kernel: "patch_embed.proj.weight",
        class: Some("cls_token"),
        registers: Some(("register_tokens", "num_register_tokens", 1)),
        positions: Some("pos_embed"),
        resampled: Some(Resampling::LinearAntialiased),
        size: 448,
        ..dinov2::PICTURES
    }),
    last_norm: Some("norm"),
    ..dinov2::like(&["", "vision_encoder."])
});
