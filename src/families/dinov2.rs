//! DINOv2: ViT with learned factors of what branches add, and positions that are resampled to the grid of a picture.

use attnscope_spec::{Pooled, Resampling};

use super::reading::processor::Processor;
use super::reading::task_rules::TaskRules;
use super::reading::vit_like::{Keys, MlpKey, Names, OF_MOST, OF_VIT, Pictures, Reads, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::seeing("dinov2", "Dinov2", || VitLike {
    reads: Reads::Pictures(PICTURES),
    ..like(&["dinov2.", "", "backbone."])
})
.with_tasks(TASKS);

/// A classifier of pictures reads the class token beside the mean of the patches.
pub(super) const TASKS: TaskRules = TaskRules {
    picture: Pooled::FirstAndMeanFrom,
    ..TaskRules::USUAL
};

/// How DINOv2 embeds pictures.
pub(super) const PICTURES: Pictures = Pictures {
    patch: 14,
    resampled: Some(Resampling::Nearest),
    processor: Processor::CLIP,
    ..vit::PICTURES
};

/// DINOv2 under the given prefixes.
pub(super) const fn like(bases: &'static [&'static str]) -> VitLike {
    VitLike {
        eps: 1e-6,
        keys: Keys {
            aside: &[
                "apply_layernorm",
                "reshape_hidden_states",
                "layerscale_value",
            ],
            d_mlp: MlpKey::RatioOrGated("mlp_ratio", "use_swiglu_ffn"),
            ..OF_MOST
        },
        names: Names {
            norms: ["norm1", "norm2"],
            up: "mlp.fc1",
            down: "mlp.fc2",
            factors: Some(["layer_scale1.lambda1", "layer_scale2.lambda1"]),
            ..OF_VIT
        },
        ..vit::like(bases)
    }
}
