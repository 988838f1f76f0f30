//! The encoder of Omnilingual ASR: wav2vec 2.0 with norms before branches, and fewer settings.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::wave_like::{self, WaveLike, WaveNames, WaveShape};

pub const FAMILY: Family = Family::own("omniasr_audio", "OmniASRAudio", read);

/// How it differs from wav2vec 2.0.
pub(super) const LIKE: WaveLike = WaveLike {
    names: WaveNames {
        convolutions: "subsampling.conv_layers",
        feature_norm: "subsampling.layer_norm",
        projection: "subsampling.projection",
        encoder: "",
        positions: "encode_positions",
    },
    shape: WaveShape::Plain,
    ..WaveLike::usual(&["model.audio_tower.", ""])
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    wave_like::read(FAMILY.model_type, checkpoint, reader, LIKE)
}
