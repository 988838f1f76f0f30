//! Step 3.7's tower of pictures: CLIP's blocks under the names of its first code, with learned factors, learned positions and patches that
//! turn, columns first. The convolutions behind the last block are not read.

use attnscope_compute::attention::GridFrequencies;
use attnscope_spec::Resampling;

use super::reading::vit_like::{
    Keys, MlpKey, Names, OF_MOST, OF_QWEN, Pictures, Reads, Sizes, Turn, VitLike,
};
use super::{Family, clip_vision_model, siglip_vision_model};

pub const FAMILY: Family = Family::seeing("step3p5_vision", "Step3p7VisionModel", || VitLike {
    sizes: Sizes {
        d_model: 1536,
        d_mlp: 8960,
        n_layers: 47,
        n_heads: 16,
    },
    keys: Keys {
        d_mlp: MlpKey::Ratio("mlp_ratio"),
        aside: &[
            "intermediate_size",
            "max_position_embeddings",
            "layer_scale_init_value",
        ],
        ..OF_MOST
    },
    activation: "quick_gelu",
    names: Names {
        layers: "transformer.resblocks",
        qkv: Some("attn.in_proj"),
        o: "attn.out_proj",
        norms: ["ln_1", "ln_2"],
        up: "mlp.c_fc",
        down: "mlp.c_proj",
        factors: Some(["ls_1.gamma", "ls_2.gamma"]),
        ..OF_QWEN
    },
    reads: Reads::Pictures(Pictures {
        kernel: "conv1.weight",
        has_bias: Some(false),
        positions: Some("positional_embedding"),
        resampled: Some(Resampling::Linear),
        turn: Some(Turn {
            frequencies: GridFrequencies::ColumnsFirst,
            interleaved: true,
            ..Turn::PLAIN
        }),
        norm: Some("ln_pre"),
        size: 728,
        patch: 14,
        ..siglip_vision_model::PICTURES
    }),
    bases: &["", "vision_model.", "model.vision_model."],
    ..clip_vision_model::LIKE
})
.leaving_unread(&["downsampler*"]);
