//! The third encoder of FLAVA: ViT's layers over the last states of those of a picture and of a text.

use super::reading::vit_like::{Keys, OF_MOST, Reads, VitLike};
use super::{Family, vit};

pub const FAMILY: Family =
    Family::seeing("flava_multimodal_model", "FlavaMultimodal", || VitLike {
        keys: Keys {
            aside: &["use_cls_token"],
            ..OF_MOST
        },
        reads: Reads::Rows("its class token, if it has one, and the encoders before it"),
        ..vit::like(&["flava.multimodal_model.", "multimodal_model.", ""])
    })
    .leaving_unread(&["cls_token", "pooler.*"]);
