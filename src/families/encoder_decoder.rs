//! Encoder-decoder models of two models: the decoder, of BERT's kind, attends to the output of an encoder of its kind, or of one that
//! sees or hears.

use attnscope_checkpoint::{Checkpoint, Config, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{DecoderInput, DecoderStart, ModelSpec, Stack, StackSpec};
use serde_json::Value;

use super::direction::check_direction;
use super::find::named;
use super::reading::bart_like::decoder_start;
use super::reading::bert_like::{self, Part, Positions};
use super::{Family, aliases, published};

pub const FAMILY: Family =
    Family::own("encoder-decoder", "EncoderDecoder", |checkpoint, reader| {
        let encoder = side(checkpoint, reader, "encoder")?;
        joined(FAMILY.model_type, checkpoint, reader, encoder)
    });

/// The types of models whose encoder sees or hears.
const WITH_SENSES: [&str; 2] = ["vision-encoder-decoder", "speech-encoder-decoder"];

/// Whether a model whose encoder sees or hears has a decoder that is read behind it; that of others is read alone.
pub(super) fn has_other_decoder(config: &Config) -> bool {
    let word = |config: &Config| {
        let kind = config.get("model_type").and_then(Value::as_str);
        kind.map(str::to_owned)
    };
    let has_senses = word(config).is_some_and(|kind| WITH_SENSES.contains(&kind.as_str()));
    let decoder = config.part("decoder").and_then(|part| word(&part));
    has_senses && decoder.is_some_and(|kind| decoder_like(&kind, true).is_none())
}

/// The family of a side, if it is of BERT's kind, and has the positions that a decoder has to have.
fn decoder_like(kind: &str, is_decoder: bool) -> Option<(&'static str, bert_like::BertLike)> {
    let family = named(aliases::family_of(kind).unwrap_or(kind))?;
    let like = family.encoder_like()?;
    // Cross-attention to an encoder's output has no positions to rotate by.
    let fits = !is_decoder || like.positions == Positions::Learned && like.window.is_none();
    fits.then_some((family.model_type, like))
}

/// Reads a model whose encoder sees or hears; `default` is the type of an encoder that states none.
///
/// # Errors
/// When a value of the configuration is missing or impossible, or the encoder reads text.
pub(super) fn read_with_senses(
    (family, default): (&'static str, &str),
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
) -> Result<ModelSpec> {
    let mut config = reader.part("encoder");
    published::rename_keys(&mut config);
    aliases::complete(&mut config)?;
    let mut inner = Reader::new(&config);
    let stated = inner.value("model_type").and_then(Value::as_str);
    let kind = stated.unwrap_or(default);
    let known = named(aliases::family_of(kind).unwrap_or(kind));
    let refused = |reader: &Reader<'_>| {
        let problem =
            format!("expected a model that sees or hears, which is known, found {kind:?}");
        Error::config(reader.path(), "encoder.model_type", problem)
    };
    let known = known.ok_or_else(|| refused(reader))?;
    let mut encoder = known.read(checkpoint, &mut inner)?;
    let embed = &encoder.stacks[0].embed;
    if encoder.stacks.len() > 1 || embed.patches.is_none() && embed.sound.is_none() {
        return Err(refused(reader));
    }
    if encoder.stacks[0].is_staged() {
        let problem = format!(
            "expected an encoder whose layers have one number of positions: one in stages is read alone, found {kind:?}"
        );
        return Err(Error::config(reader.path(), "encoder.model_type", problem));
    }
    encoder.head = None;
    inner.forget(&["head", "mask"]);
    reader.absorb("encoder", inner);
    joined(family, checkpoint, reader, encoder)
}

/// Reads the decoder of BERT's kind, and puts it behind an encoder.
fn joined(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    encoder: ModelSpec,
) -> Result<ModelSpec> {
    let decoder = side(checkpoint, reader, "decoder")?;
    behind(family, reader, encoder, decoder)
}

/// Puts a decoder behind an encoder, with the start token that the whole configuration names.
///
/// # Errors
/// When they do not fit together, or no token begins a target.
pub(super) fn behind(
    family: &'static str,
    reader: &mut Reader<'_>,
    encoder: ModelSpec,
    decoder: ModelSpec,
) -> Result<ModelSpec> {
    check_both(reader, &encoder, &decoder)?;
    let start = decoder_start(reader, Some("bos_token_id"), decoder.d_vocab)?;
    Ok(joined_by(family, encoder, decoder, start))
}

/// Checks that a decoder can stand behind an encoder.
///
/// # Errors
/// When they do not fit together.
pub(super) fn check_both(
    reader: &mut Reader<'_>,
    encoder: &ModelSpec,
    decoder: &ModelSpec,
) -> Result<()> {
    let refused = |key: &str, problem: String| Err(Error::config(reader.path(), key, problem));
    if encoder.d_model != decoder.d_model {
        let problem = format!(
            "expected {}, the decoder's: stacks of two widths are not read, found {}",
            decoder.d_model, encoder.d_model
        );
        return refused("encoder.hidden_size", problem);
    }
    // Patches and sounds are counted from 0 in any case.
    if reads_text(encoder) && encoder.positions != decoder.positions {
        let problem = format!(
            "expected a model that counts positions as the encoder's {} does, found {}",
            encoder.family, decoder.family
        );
        return refused("decoder.model_type", problem);
    }
    let looks_ahead = |spec: &ModelSpec| {
        let mut blocks = spec.main_stack().blocks().iter();
        blocks.any(|block| block.attention().is_some_and(|own| !own.mask.causal))
    };
    if !looks_ahead(encoder) {
        let problem = "expected false: the encoder's tokens see each other, found true";
        return refused("encoder.is_decoder", problem.to_owned());
    }
    if looks_ahead(decoder) {
        let problem = "expected true: a decoder's tokens see those before them, found false";
        return refused("decoder.is_decoder", problem.to_owned());
    }
    if !decoder
        .main_stack()
        .blocks()
        .iter()
        .all(|b| b.cross.is_some())
    {
        let problem = "expected true: the decoder attends to the encoder's output, found false";
        return refused("decoder.add_cross_attention", problem.to_owned());
    }
    reader.value("is_encoder_decoder");
    // Encoder and decoder have their own switches.
    reader.value("tie_word_embeddings");
    Ok(())
}

fn reads_text(encoder: &ModelSpec) -> bool {
    let embed = &encoder.stacks[0].embed;
    embed.patches.is_none() && embed.sound.is_none()
}

/// Joins an encoder and a decoder that fit together, with the token that begins a target.
pub(super) fn joined_by(
    family: &'static str,
    encoder: ModelSpec,
    decoder: ModelSpec,
    start: DecoderStart,
) -> ModelSpec {
    let d_vocab = decoder.d_vocab;
    let reads_text = reads_text(&encoder);
    let start = DecoderStart {
        reads_again: DecoderInput::Never,
        has_own_vocabulary: !reads_text || encoder.d_vocab != d_vocab,
        ..start
    };
    let stack = |spec: &ModelSpec, stack| StackSpec {
        stack,
        ..spec.main_stack().clone()
    };
    ModelSpec {
        d_model: decoder.d_model,
        n_ctx: if reads_text {
            encoder.n_ctx.min(decoder.n_ctx)
        } else {
            encoder.n_ctx
        },
        d_vocab,
        positions: decoder.positions,
        stacks: vec![
            stack(&encoder, Stack::Encoder),
            stack(&decoder, Stack::Decoder),
        ],
        is_causal_lm: decoder.head.is_some(),
        decoder_start: Some(start),
        ..ModelSpec::of_one_stack(family, decoder.main_stack().clone(), decoder.head.clone())
    }
}

/// Reads the encoder or the decoder from its part of the configuration.
fn side(checkpoint: &Checkpoint, reader: &mut Reader<'_>, key: &'static str) -> Result<ModelSpec> {
    let config = reader.part(key);
    let mut inner = Reader::new(&config);
    let stated = inner.value("model_type").and_then(Value::as_str);
    let kind = stated.unwrap_or("bert");
    let is_decoder = key == "decoder";
    let Some((family, like)) = decoder_like(kind, is_decoder) else {
        let problem =
            format!("expected a model of BERT's kind with learned positions, found {kind:?}");
        return Err(Error::config(
            reader.path(),
            format!("{key}.model_type"),
            problem,
        ));
    };
    let part = Part {
        at: if is_decoder { "decoder." } else { "encoder." },
        may_cross: is_decoder,
    };
    let mut spec = bert_like::read_part(family, checkpoint, &mut inner, like, part)?;
    if is_decoder {
        check_direction(&mut inner, &spec)?;
    }
    if !is_decoder {
        inner.forget(&["head", "mask"]);
        spec.head = None;
    }
    for name in [
        "bos_token_id",
        "eos_token_id",
        "cross_attention_hidden_size",
    ] {
        inner.value(name);
    }
    reader.absorb(key, inner);
    Ok(spec)
}
