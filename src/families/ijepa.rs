//! I-JEPA: ViT without a class token.

use attnscope_spec::Pooled;

use super::reading::task_rules::TaskRules;
use super::reading::vit_like::{Pictures, Reads, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::seeing("ijepa", "IJepa", || VitLike {
    reads: Reads::Pictures(Pictures {
        class: None,
        ..vit::PICTURES
    }),
    ..vit::like(&["ijepa.", ""])
})
.with_tasks(TaskRules {
    picture: Pooled::MeanFrom,
    ..TaskRules::USUAL
});
