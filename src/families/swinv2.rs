//! Swin's second version: cosines of queries and keys, and what a network makes of distances.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::donut_swin::NO_POSITIONS;
use super::reading::swin_like::{self, SwinLike, Windows};
use super::reading::windowed::Distances;
use super::{Family, swin};

pub const FAMILY: Family = Family::own("swinv2", "Swinv2", read)
    .with_tasks(swin::TASKS)
    .leaving_unread(&[
        "relative_position_index",
        "relative_coords_table",
        "embeddings.mask_token",
    ]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = SwinLike {
        distances: Distances::Nothing,
        without_positions: Some(NO_POSITIONS),
        windows: Windows::Cut,
        is_second: true,
        ..swin::like(&["swinv2.", ""])
    };
    swin_like::read(FAMILY.model_type, checkpoint, reader, like)
}
