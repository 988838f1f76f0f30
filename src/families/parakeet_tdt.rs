//! Parakeet as a transducer that predicts durations too: its encoder.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::fast_conformer::{self, Like};

pub const FAMILY: Family = Family::own("parakeet_tdt", "ParakeetTDT", read).leaving_unread(&[
    "num_batches_tracked",
    "decoder.*",
    "joint.*",
    "encoder_projector.*",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    fast_conformer::read_of_transducer(FAMILY.model_type, checkpoint, reader, Like::Parakeet)
}
