//! Higgs Audio v2 on text alone: Llama, whose second norms and feed-forward layers are for codes of sound.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::llama_like;
use super::{Family, csm};

pub const FAMILY: Family = Family::own("higgs_audio_v2", "HiggsAudioV2", read).leaving_unread(&[
    "audio_mlp*",
    "audio_input_layernorm*",
    "audio_post_attention_layernorm*",
    "embed_audio_tokens*",
    "audio_lm_head*",
    "text_lm_head*",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = csm::recipe();
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    for key in ["pretraining_tp", "num_codebooks", "codebook_size"] {
        reader.value(key);
    }
    let left_out =
        "codes of sound, the norms and layers that read them, and the head that writes them";
    csm::without_head(reader, &mut spec, left_out);
    Ok(spec)
}
