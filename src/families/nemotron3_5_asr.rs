//! Nemotron 3.5's speech recognition, a transducer told which language to write: its encoder.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::fast_conformer::{self, Like};

pub const FAMILY: Family =
    Family::own("nemotron3_5_asr", "Nemotron3_5Asr", read).leaving_unread(&[
        "decoder.*",
        "joint.*",
        "encoder_projector.*",
        "prompt_projector.*",
    ]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    fast_conformer::read_of_transducer(FAMILY.model_type, checkpoint, reader, Like::Streaming)
}
