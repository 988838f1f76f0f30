//! Pixio: ViT with several class tokens, each with a position, which are read in place of one.

use attnscope_spec::Resampling;

use super::reading::vit_like::{
    Keys, MlpKey, Names, OF_MOST, OF_VIT, Pictures, Reads, Sizes, VitLike,
};
use super::{Family, vit};

pub const FAMILY: Family = Family::seeing("pixio", "Pixio", || VitLike {
    sizes: Sizes {
        d_model: 1280,
        d_mlp: 5120,
        n_layers: 32,
        n_heads: 16,
    },
    keys: Keys {
        d_mlp: MlpKey::Ratio("mlp_ratio"),
        aside: &["apply_layernorm", "reshape_hidden_states"],
        ..OF_MOST
    },
    eps: 1e-6,
    names: Names {
        norms: ["norm1", "norm2"],
        ..OF_VIT
    },
    reads: Reads::Pictures(Pictures {
        class: None,
        registers: Some(("embeddings.cls_token", "n_cls_tokens", 8)),
        are_registers_placed: true,
        resampled: Some(Resampling::Nearest),
        size: 256,
        ..vit::PICTURES
    }),
    ..vit::like(&["pixio.", ""])
});
