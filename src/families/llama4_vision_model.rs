//! Llama 4's tower of pictures: a matrix over patches that turn by column and row, counted from 1. The class token is shown before the
//! patches, although the library puts it behind them. What merges patches after the last norm is not read.

use attnscope_compute::attention::GridFrequencies;

use super::reading::processor::Processor;
use super::reading::vit_like::{
    Behind, Kernel, Keys, Names, OF_CLIP, OF_MOST, Pictures, Reads, Sizes, Turn, VitLike,
};
use super::{Family, clip_vision_model, vit};

pub const FAMILY: Family = Family::seeing("llama4_vision_model", "Llama4VisionModel", || VitLike {
    sizes: Sizes {
        d_model: 768,
        d_mlp: 5632,
        n_layers: 34,
        n_heads: 16,
    },
    keys: Keys {
        // The library reads neither an epsilon nor an activation here.
        eps: None,
        activation: "vision_activation",
        aside: &[
            "norm_eps",
            "hidden_act",
            "vision_output_dim",
            "vision_feature_select_strategy",
            "vision_feature_layer",
            "pixel_shuffle_ratio",
            "projector_input_dim",
            "projector_output_dim",
            "multi_modal_projector_bias",
            "projector_dropout",
        ],
        ..OF_MOST
    },
    eps: 1e-5,
    activation: "gelu",
    names: Names {
        layers: "model.layers",
        o: "self_attn.o_proj",
        norms: ["input_layernorm", "post_attention_layernorm"],
        ..OF_CLIP
    },
    reads: Reads::Pictures(Pictures {
        kernel: "patch_embedding.linear.weight",
        form: Kernel::Flat,
        class: Some("class_embedding"),
        positions: Some("positional_embedding_vlm"),
        n_behind: Behind::Class,
        turn: Some(Turn {
            first: 1,
            frequencies: GridFrequencies::ColumnsFirst,
            interleaved: true,
            ..Turn::PLAIN
        }),
        norm: Some("layernorm_pre"),
        size: 448,
        patch: 14,
        processor: Processor::SIGLIP,
        ..clip_vision_model::PICTURES
    }),
    last_norm: Some("layernorm_post"),
    bases: &["", "vision_model.", "model.vision_model."],
    ..vit::like(&[""])
});
