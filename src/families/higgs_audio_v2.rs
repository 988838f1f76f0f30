//! Higgs Audio v2 on text alone: Llama, whose second norms and feed-forward layers are for codes of sound.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::llama_like::{self, BiasRule, NormStyle, RMS, Recipe};

pub const FAMILY: Family = Family::own("higgs_audio_v2", "HiggsAudioV2", read).leaving_unread(&[
    "audio_mlp*",
    "audio_input_layernorm*",
    "audio_post_attention_layernorm*",
    "embed_audio_tokens*",
    "audio_lm_head*",
    "text_lm_head*",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        theta: 500_000.0,
        norm: NormStyle { eps: 1e-5, ..RMS },
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    reader.value("pretraining_tp");
    for key in ["num_codebooks", "codebook_size"] {
        reader.value(key);
    }
    reader.forget(&["unembedding", "tied_unembedding"]);
    spec.head = None;
    spec.is_causal_lm = false;
    reader.remark(
        "run on text alone: codes of sound, the norms and layers that read them, and the head that writes them are left out"
            .to_owned(),
    );
    Ok(spec)
}
