//! FastSpeech 2 with Conformers, together with what makes sound of its frames: its encoder of phonemes.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::{Family, fastspeech2_conformer};

pub const FAMILY: Family = Family::own(
    "fastspeech2_conformer_with_hifigan",
    "FastSpeech2ConformerWithHifiGan",
    read,
)
.leaving_unread(fastspeech2_conformer::UNREAD);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const MODEL: &str = "model_config";
    reader.value("vocoder_config");
    let config = reader.part(MODEL);
    let mut inner = Reader::new(&config);
    inner.value("model_type");
    let spec = fastspeech2_conformer::read(checkpoint, &mut inner)?;
    reader.absorb(MODEL, inner);
    Ok(ModelSpec {
        family: FAMILY.model_type,
        ..spec
    })
}
