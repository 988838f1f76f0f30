//! SigLIP's tower of captions: every token sees every other one.

use super::reading::task_rules::{Projection, TaskRules};
use super::reading::vit_like::{OF_CLIP, Reads, Text, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::seeing("siglip_text_model", "SiglipTextModel", || VitLike {
    eps: 1e-6,
    activation: "gelu_pytorch_tanh",
    names: OF_CLIP,
    reads: Reads::Text(Text {
        d_vocab: 32_000,
        n_ctx: 64,
        is_causal: false,
    }),
    last_norm: Some("final_layer_norm"),
    ..vit::like(&["text_model.", ""])
})
.with_tasks(TaskRules {
    projection: Some(Projection::Last { map: "head" }),
    ..TaskRules::USUAL
});
