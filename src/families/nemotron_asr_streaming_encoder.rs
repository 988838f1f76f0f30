//! The encoder of Nemotron's streaming speech recognition: Parakeet's, where a position sees chunks.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::fast_conformer::{self, Like};

pub const FAMILY: Family = Family::own(
    "nemotron_asr_streaming_encoder",
    "NemotronAsrStreamingEncoder",
    read,
);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    fast_conformer::read(FAMILY.model_type, checkpoint, reader, Like::Streaming)
}
