//! Parakeet's encoder: a Conformer over a spectrogram that convolutions made shorter.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::fast_conformer::{self, Like};

pub const FAMILY: Family = Family::own("parakeet_encoder", "ParakeetEncoder", read)
    .leaving_unread(&["num_batches_tracked"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    fast_conformer::read(FAMILY.model_type, checkpoint, reader, Like::Parakeet)
}
