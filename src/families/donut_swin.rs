//! Donut's encoder: Swin without a norm behind its last layer.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::swin_like::{self, SwinLike};
use super::reading::vit_like::Pictures;
use super::{Family, swin};

pub const FAMILY: Family = Family::own("donut-swin", "DonutSwin", read)
    .with_tasks(swin::TASKS)
    .leaving_unread(swin::UNREAD);

/// Why positions cannot be stored: their table has a row for a token that is not there.
pub(super) const NO_POSITIONS: &str = "its table has one row more than there are patches";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let plain = swin::like(&["donut.", "swin.", ""]);
    let like = SwinLike {
        last_norm: None,
        without_positions: Some(NO_POSITIONS),
        pictures: Pictures {
            processor: Processor::DONUT,
            ..plain.pictures
        },
        ..plain
    };
    swin_like::read(FAMILY.model_type, checkpoint, reader, like)
}
