//! MGP-STR: ViT under the names of timm, over lines of a text. The modules that choose characters, which attend to its patches from learned
//! queries, are not read.

use super::reading::vit_like::{Keys, MlpKey, Names, OF_MOST, OF_QWEN, Pictures, Reads, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::seeing("mgp-str", "Mgpstr", || VitLike {
    keys: Keys {
        d_mlp: MlpKey::Ratio("mlp_ratio"),
        aside: &[
            "qkv_bias",
            "max_token_length",
            "num_character_labels",
            "num_bpe_labels",
            "num_wordpiece_labels",
            "drop_rate",
            "attn_drop_rate",
            "drop_path_rate",
            "output_a3_attentions",
        ],
        off: &["distilled"],
        ..OF_MOST
    },
    eps: 1e-5,
    names: Names {
        layers: "encoder.blocks",
        ..OF_QWEN
    },
    reads: Reads::Pictures(Pictures {
        kernel: "embeddings.proj.weight",
        class: Some("embeddings.cls_token"),
        positions: Some("embeddings.pos_embed"),
        patch: 4,
        ..vit::PICTURES
    }),
    last_norm: None,
    ..vit::like(&["mgp_str.", ""])
})
.leaving_unread(&["_a3_module.*", "_head.weight", "_head.bias"]);
