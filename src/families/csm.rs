//! CSM on text alone: Llama, whose head for the first code of a moment of sound is left out.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, TableSource};

use super::Family;
use super::reading::llama_like::{self, BiasRule, NormStyle, RMS, Recipe};

/// The head, the decoder of the other codes, the codec, and the rows of codes that were heard or written.
pub const FAMILY: Family = Family::own("csm", "Csm", read).leaving_unread(&[
    "depth_decoder.*",
    "codec_model.*",
    "embed_audio_tokens.*",
    "lm_head.*",
]);

/// Llama 3 with biases where the configuration asks for them.
pub(super) fn recipe() -> Recipe {
    Recipe {
        theta: 500_000.0,
        norm: NormStyle { eps: 1e-5, ..RMS },
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        ..Recipe::llama()
    }
}

/// Leaves out the head, which writes codes of sound, and says what else is.
pub(super) fn without_head(reader: &mut Reader<'_>, spec: &mut ModelSpec, left_out: &str) {
    reader.forget(&["unembedding", "tied_unembedding"]);
    spec.head = None;
    spec.is_causal_lm = false;
    reader.remark(format!("run on text alone: {left_out} are left out"));
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        base: Some("backbone_model."),
        ..recipe()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    const WORDS: &str = "text_vocab_size";
    let d_model = spec.d_model;
    let by = Origin::Default(WORDS.to_owned());
    let n_words = reader.size_or("n_words", WORDS, 128_256, by)?;
    spec.stacks[0].embed.tokens = TableSource {
        tensor: "embed_text_tokens.weight".to_owned(),
        n_rows: n_words,
        width: d_model,
    };
    spec.d_vocab = n_words;
    let left_out = "the codes of sound between words, the head that writes the first of a moment, and the decoder of the others";
    without_head(reader, &mut spec, left_out);
    Ok(spec)
}
