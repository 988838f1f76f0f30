//! HunyuanVL's tower of pictures: CLIP's blocks over patches alone, whose positions are resampled; the stored position of a class token
//! is unused.

use attnscope_spec::Resampling;

use super::reading::processor::Processor;
use super::reading::vit_like::{
    Count, Keys, Names, OF_CLIP, OF_MOST, Pictures, Reads, Sizes, VitLike,
};
use super::{Family, siglip_vision_model, vit};

pub const FAMILY: Family =
    Family::seeing("hunyuan_vl_vision", "HunYuanVLVisionTransformer", || LIKE);

pub(super) const PICTURES: Pictures = Pictures {
    resampled: Some(Resampling::Linear),
    merged: Some(("spatial_merge_size", 2)),
    n_spare: 1,
    places: Count::Side("max_image_size", 2048),
    processor: Processor::CLIP.in_multiples(),
    ..siglip_vision_model::PICTURES
};

pub(super) const LIKE: VitLike = VitLike {
    sizes: Sizes {
        d_model: 1152,
        d_mlp: 4304,
        n_layers: 27,
        n_heads: 16,
    },
    keys: Keys {
        eps: Some("rms_norm_eps"),
        words: &[("interpolate_mode", "bilinear")],
        aside: &[
            "out_hidden_size",
            "text_hidden_size",
            "min_image_size",
            "max_vit_seq_len",
            "img_max_token_num",
            "num_key_value_heads",
        ],
        ..OF_MOST
    },
    eps: 1e-5,
    activation: "gelu",
    names: Names {
        layers: "layers",
        o: "self_attn.o_proj",
        ..OF_CLIP
    },
    reads: Reads::Pictures(PICTURES),
    last_norm: None,
    ..vit::like(&["", "vision_tower."])
};
