//! wav2vec 2.0: an encoder of sound that hears samples; its head for CTC writes a token, or none, at every position.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::wave_like::{self, BESIDE_CODEC, WaveLike};

pub const FAMILY: Family =
    Family::own("wav2vec2", "Wav2Vec2", read).leaving_unread(UNREAD_BESIDE_CODEC);

/// What marks parts of a sound in training.
pub(super) const UNREAD: &[&str] = &["masked_spec_embed"];

/// The same, and the maps of a codec beside such a model.
pub(super) const UNREAD_BESIDE_CODEC: &[&str] = &[
    "masked_spec_embed",
    "=fc.weight",
    "=fc.bias",
    "=fc1.weight",
    "=fc1.bias",
    "=fc2.weight",
    "=fc2.bias",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = WaveLike::usual(&["wav2vec2.", "", BESIDE_CODEC]);
    wave_like::read(FAMILY.model_type, checkpoint, reader, like)
}
