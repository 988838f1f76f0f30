//! DINOv2 with registers: learned tokens without positions, between the class token and the patches.

use attnscope_spec::Resampling;

use super::reading::vit_like::{Pictures, Reads, VitLike};
use super::{Family, dinov2};

pub const FAMILY: Family =
    Family::seeing("dinov2_with_registers", "Dinov2WithRegisters", || VitLike {
        reads: Reads::Pictures(Pictures {
            registers: Some(("embeddings.register_tokens", "num_register_tokens", 4)),
            resampled: Some(Resampling::Antialiased),
            ..dinov2::PICTURES
        }),
        ..dinov2::like(&["dinov2_with_registers.", "", "backbone."])
    })
    .with_tasks(dinov2::TASKS);
