//! Hy4's tower of pictures: HunyuanVL's, wider and deeper, whose positions are resampled in steps that are a little too short.

use attnscope_spec::Resampling;

use super::reading::vit_like::{Keys, Pictures, Reads, Sizes, VitLike};
use super::{Family, hunyuan_vl_vision};

pub const FAMILY: Family = Family::seeing("hy_v4_vl_vision", "HYV4VLVisionModel", || VitLike {
    sizes: Sizes {
        d_model: 1536,
        d_mlp: 6144,
        n_layers: 40,
        n_heads: 16,
    },
    keys: Keys {
        aside: &["out_hidden_size", "num_key_value_heads"],
        ..hunyuan_vl_vision::LIKE.keys
    },
    reads: Reads::Pictures(Pictures {
        resampled: Some(Resampling::LinearShort),
        ..hunyuan_vl_vision::PICTURES
    }),
    ..hunyuan_vl_vision::LIKE
});
