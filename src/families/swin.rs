//! Swin: patches that see windows, shifted in every other layer, in stages between which four patches become one.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, Pooled};

use super::reading::swin_like::{self, SwinLike, Windows};
use super::reading::task_rules::TaskRules;
use super::reading::vit_like::{Names, OF_VIT, Pictures};
use super::reading::windowed::Distances;
use super::{Family, vit};

pub const FAMILY: Family = Family::own("swin", "Swin", read)
    .with_tasks(TASKS)
    .leaving_unread(UNREAD);

/// A classifier of pictures reads the mean of the patches of the last stage.
pub(super) const TASKS: TaskRules = TaskRules {
    picture: |_| Pooled::Mean,
    ..TaskRules::USUAL
};

/// Computed from the sizes, of pictures with patches left out, or norms of other stages than the last that is read.
pub(super) const UNREAD: &[&str] = &[
    "relative_position_index",
    "embeddings.mask_token",
    "hidden_states_norms.*",
    "encoder.swin.layernorm.*",
];

const QUERY: &str = "query.weight";

/// Swin under the given prefixes.
pub(super) const fn like(bases: &'static [&'static str]) -> SwinLike {
    SwinLike {
        bases,
        names: Names {
            q: "attention.self.query",
            k: "attention.self.key",
            v: "attention.self.value",
            ..OF_VIT
        },
        distances: Distances::Values(QUERY, "relative_position_bias_table"),
        pictures: Pictures {
            class: None,
            patch_norm: Some("embeddings.norm"),
            patch: 4,
            ..vit::PICTURES
        },
        last_norm: Some("layernorm"),
        without_positions: None,
        windows: Windows::Whole,
        is_second: false,
    }
}

/// Where models that segment pictures keep it.
const INSIDE: &str = "model.pixel_level_module.encoder.";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    // A backbone fills its windows up, however few patches a stage has.
    let mut names = checkpoint.tensors.iter().map(|(name, _)| name);
    let is_backbone = names.any(|name| name.contains("hidden_states_norms."));
    let like = like(&["swin.", "model.swin.", INSIDE, ""]);
    let like = SwinLike {
        windows: if is_backbone {
            Windows::FilledUp
        } else {
            like.windows
        },
        ..like
    };
    swin_like::read(FAMILY.model_type, checkpoint, reader, like)
}
