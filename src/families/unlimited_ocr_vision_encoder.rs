//! The second encoder of Unlimited OCR: CLIP's layers over the maps of features that Segment Anything's encoder makes, as rows.

use super::reading::vit_like::{Keys, Names, OF_CLIP, OF_MOST, Reads, Sizes, VitLike};
use super::{Family, clip_vision_model, vit};

pub const FAMILY: Family = Family::seeing(
    "unlimited_ocr_vision_encoder",
    "UnlimitedOcrVisionEncoder",
    || VitLike {
        sizes: Sizes {
            d_model: 1024,
            d_mlp: 4096,
            n_layers: 24,
            n_heads: 16,
        },
        keys: Keys {
            aside: &["image_size", "num_channels", "patch_size"],
            ..OF_MOST
        },
        names: Names {
            qkv: Some("self_attn.qkv_proj"),
            ..OF_CLIP
        },
        reads: Reads::Rows(
            "the encoder before it, with a class token and positions, behind the first norm,",
        ),
        last_norm: None,
        bases: vit::like(&["vision_encoder.", ""]).bases,
        ..clip_vision_model::LIKE
    },
)
.leaving_unread(&["embeddings.*", "pre_layrnorm.*"]);
