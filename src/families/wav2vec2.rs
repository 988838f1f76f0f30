//! wav2vec 2.0: an encoder of sound that hears samples; its head for CTC writes a token, or none, at every position.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::wave_like::{self, WaveLike};

pub const FAMILY: Family = Family::own("wav2vec2", "Wav2Vec2", read).leaving_unread(UNREAD);

/// What marks parts of a sound in training.
pub(super) const UNREAD: &[&str] = &["masked_spec_embed"];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = WaveLike::usual(&["wav2vec2.", ""]);
    wave_like::read(FAMILY.model_type, checkpoint, reader, like)
}
