//! Omnilingual ASR with a head for CTC: its encoder, and a token or none at every position.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::omniasr_audio::LIKE;
use super::reading::wave_like;

pub const FAMILY: Family = Family::own("omniasr_ctc", "OmniASRCTC", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const ENCODER: &str = "audio_config";
    const VOCABULARY: &str = "vocab_size";
    let mut config = reader.part(ENCODER);
    if let Some(n) = reader.value(VOCABULARY) {
        config.put(VOCABULARY, n.clone(), Origin::Key(VOCABULARY.to_owned()));
    }
    let mut inner = Reader::new(&config);
    inner.value("model_type");
    let spec = wave_like::read(FAMILY.model_type, checkpoint, &mut inner, LIKE)?;
    reader.absorb(ENCODER, inner);
    Ok(spec)
}
