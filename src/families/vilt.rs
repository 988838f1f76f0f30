//! ViLT: ViT's layers over a text and a picture, one behind the other. What makes rows of both is not read.

use super::reading::vit_like::{Keys, OF_MOST, Reads, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::seeing("vilt", "Vilt", || VitLike {
    keys: KEYS,
    reads: Reads::Rows("the embeddings of a text, and behind it of a class token and patches,"),
    ..vit::like(&["vilt.", ""])
})
.leaving_unread(&["embeddings.*", "pooler.*", "rank_output.*"]);

/// Keys of the embeddings.
const KEYS: Keys = Keys {
    aside: &[
        "image_size",
        "max_image_length",
        "max_position_embeddings",
        "modality_type_vocab_size",
        "num_channels",
        "num_images",
        "patch_size",
        "tie_word_embeddings",
        "type_vocab_size",
        "vocab_size",
    ],
    ..OF_MOST
};
