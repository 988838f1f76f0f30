//! AIMv2's tower of captions: CLIP's with RMSNorm and gates.

use attnscope_compute::ops::NormKind;

use super::aimv2_vision_model::NAMES;
use super::reading::task_rules::{Projection, TaskRules};
use super::reading::vit_like::{Keys, OF_MOST, Reads, Sizes, Text, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::seeing("aimv2_text_model", "Aimv2TextModel", || VitLike {
    sizes: Sizes {
        d_model: 768,
        d_mlp: 2048,
        n_layers: 12,
        n_heads: 6,
    },
    keys: Keys {
        eps: Some("rms_norm_eps"),
        aside: &["qkv_bias", "mlp_bias"],
        ..OF_MOST
    },
    eps: 1e-5,
    activation: "silu",
    norm: NormKind::RmsNorm,
    names: NAMES,
    reads: Reads::Text(Text {
        d_vocab: 49_408,
        n_ctx: 77,
        is_causal: true,
    }),
    last_norm: Some("rms_norm"),
    ..vit::like(&["text_model.", ""])
})
.with_tasks(TaskRules {
    projection: Some(Projection::End {
        map: "text_projection",
    }),
    ..TaskRules::USUAL
});
