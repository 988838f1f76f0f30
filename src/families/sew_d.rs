//! SEW-D: SEW with DeBERTa's blocks. What widens the rows again behind the blocks is not read, and neither is the head that follows it.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::wave_like::{self, WaveLike, WaveNames, WaveShape};

pub const FAMILY: Family = Family::own("sew-d", "SEWD", read).leaving_unread(&[
    "masked_spec_embed",
    "encoder.upsample.*",
    "lm_head.*",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let usual = WaveLike::usual(&["sew_d.", ""]);
    let like = WaveLike {
        names: WaveNames {
            feature_norm: "layer_norm",
            projection: "feature_projection",
            ..usual.names
        },
        shape: WaveShape::SqueezedDeberta,
        ..usual
    };
    wave_like::read(FAMILY.model_type, checkpoint, reader, like)
}
