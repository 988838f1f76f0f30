//! wav2vec 2.0 whose blocks are those of a Conformer.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::wave_like::{self, WaveLike, WaveShape};

pub const FAMILY: Family = Family::own("wav2vec2-conformer", "Wav2Vec2Conformer", read)
    // transformers stores the convolution over the rows around each, and does not run it.
    .leaving_unread(&[
        "masked_spec_embed",
        "num_batches_tracked",
        "pos_conv_embed.*",
    ]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = WaveLike {
        shape: WaveShape::Conformer,
        ..WaveLike::usual(&["wav2vec2_conformer.", ""])
    };
    wave_like::read(FAMILY.model_type, checkpoint, reader, like)
}
