//! Qwen3-VL's tower of pictures: Qwen2-VL's, with a grid of learned positions that is resampled to that of a picture.

use attnscope_spec::Resampling;

use super::reading::processor::Processor;
use super::reading::vit_like::{
    Count, KEYS_OF_QWEN, Keys, Names, OF_QWEN, Pictures, Reads, Sizes, VitLike,
};
use super::{Family, qwen2_vl_vision};

pub const FAMILY: Family = Family::seeing("qwen3_vl_vision", "Qwen3VLVisionModel", || VitLike {
    sizes: Sizes {
        d_model: 1152,
        d_mlp: 4304,
        n_layers: 27,
        n_heads: 16,
    },
    keys: Keys {
        aside: &["out_hidden_size", "deepstack_visual_indexes"],
        ..KEYS_OF_QWEN
    },
    activation: "gelu_pytorch_tanh",
    names: Names {
        up: "mlp.linear_fc1",
        down: "mlp.linear_fc2",
        ..OF_QWEN
    },
    reads: Reads::Pictures(Pictures {
        positions: Some("pos_embed.weight"),
        places: Count::Square("num_position_embeddings", 2304),
        resampled: Some(Resampling::LinearToEnds),
        patch: 16,
        processor: Processor::SIGLIP.in_multiples(),
        ..qwen2_vl_vision::PICTURES
    }),
    ..qwen2_vl_vision::LIKE
});
