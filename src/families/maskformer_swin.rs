//! MaskFormer's encoder: Swin whose windows are shifted in every stage.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::donut_swin::NO_POSITIONS;
use super::reading::swin_like::{self, SwinLike, Windows};
use super::{Family, swin};

pub const FAMILY: Family =
    Family::own("maskformer-swin", "MaskFormerSwin", read).leaving_unread(swin::UNREAD);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = SwinLike {
        without_positions: Some(NO_POSITIONS),
        windows: Windows::FilledUp,
        ..swin::like(&["model.", ""])
    };
    swin_like::read(FAMILY.model_type, checkpoint, reader, like)
}
