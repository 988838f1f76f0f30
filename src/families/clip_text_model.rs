//! CLIP's tower of captions: a causal encoder with learned positions.

use super::reading::task_rules::{Projection, TaskRules};
use super::reading::vit_like::{OF_CLIP, Reads, Sizes, Text, VitLike};
use super::{Family, vit};

pub const FAMILY: Family =
    Family::seeing("clip_text_model", "CLIPTextModel", || LIKE).with_tasks(TaskRules {
        projection: Some(Projection::End {
            map: "text_projection",
        }),
        ..TaskRules::USUAL
    });

/// CLIP's captions.
pub(super) const TEXT: Text = Text {
    d_vocab: 49_408,
    n_ctx: 77,
    is_causal: true,
};

/// CLIP's encoder of captions.
pub(super) const LIKE: VitLike = VitLike {
    sizes: Sizes {
        d_model: 512,
        d_mlp: 2048,
        n_layers: 12,
        n_heads: 8,
    },
    eps: 1e-5,
    activation: "quick_gelu",
    names: OF_CLIP,
    reads: Reads::Text(TEXT),
    last_norm: Some("final_layer_norm"),
    ..vit::like(&["text_model.", ""])
};
