//! Pixtral's tower of pictures: patches of a picture of any size turn by row and column, with other frequencies for columns; RMSNorm
//! and gates.

use attnscope_compute::attention::GridFrequencies;
use attnscope_compute::ops::NormKind;

use super::reading::processor::Processor;
use super::reading::vit_like::{
    Kernel, Keys, Names, OF_MOST, OF_QWEN, Pictures, Reads, Sizes, Turn, VitLike,
};
use super::{Family, qwen2_vl_vision, vit};

pub const FAMILY: Family = Family::seeing("pixtral", "PixtralVisionModel", || VitLike {
    sizes: Sizes {
        d_model: 1024,
        d_mlp: 4096,
        n_layers: 24,
        n_heads: 16,
    },
    keys: Keys {
        eps: None,
        aside: &["image_size", "head_dim"],
        ..OF_MOST
    },
    eps: 1e-5,
    activation: "gelu",
    norm: NormKind::RmsNorm,
    names: Names {
        layers: "transformer.layers",
        q: "attention.q_proj",
        k: "attention.k_proj",
        v: "attention.v_proj",
        qkv: None,
        o: "attention.o_proj",
        norms: ["attention_norm", "ffn_norm"],
        up: "feed_forward.up_proj",
        down: "feed_forward.down_proj",
        gate: Some("feed_forward.gate_proj"),
        ..OF_QWEN
    },
    reads: Reads::Pictures(Pictures {
        kernel: "patch_conv.weight",
        form: Kernel::Picture,
        turn: Some(Turn {
            frequencies: GridFrequencies::Alternating,
            ..Turn::PLAIN
        }),
        merged: None,
        norm: Some("ln_pre"),
        size: 1024,
        patch: 16,
        processor: Processor::PIXTRAL,
        ..qwen2_vl_vision::PICTURES
    }),
    last_norm: None,
    ..vit::like(&["", "vision_tower.", "vision_encoder."])
});
