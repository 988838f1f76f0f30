//! Encoder-decoder models of two models of BERT's kind: the decoder's blocks attend to the encoder's output.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{DecoderInput, DecoderStart, ModelSpec, Stack, StackSpec};
use serde_json::Value;

use super::direction::check_direction;
use super::find::named;
use super::reading::bart_like::decoder_start;
use super::reading::bert_like::{self, Part, Positions};
use super::{Family, aliases};

pub const FAMILY: Family = Family::own("encoder-decoder", "EncoderDecoder", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let encoder = side(checkpoint, reader, "encoder")?;
    let decoder = side(checkpoint, reader, "decoder")?;
    let refused = |key: &str, problem: String| Err(Error::config(reader.path(), key, problem));
    if encoder.d_model != decoder.d_model {
        let problem = format!(
            "expected {}, the decoder's: stacks of two widths are not read, found {}",
            decoder.d_model, encoder.d_model
        );
        return refused("encoder.hidden_size", problem);
    }
    if encoder.positions != decoder.positions {
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
    if !looks_ahead(&encoder) {
        let problem = "expected false: the encoder's tokens see each other, found true";
        return refused("encoder.is_decoder", problem.to_owned());
    }
    if looks_ahead(&decoder) {
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
    let d_vocab = decoder.d_vocab;
    let start = DecoderStart {
        reads_again: DecoderInput::Never,
        has_own_vocabulary: encoder.d_vocab != d_vocab,
        ..decoder_start(reader, Some("bos_token_id"), d_vocab)?
    };
    let stack = |spec: &ModelSpec, stack| StackSpec {
        stack,
        ..spec.main_stack().clone()
    };
    Ok(ModelSpec {
        n_ctx: encoder.n_ctx.min(decoder.n_ctx),
        d_vocab,
        positions: decoder.positions,
        stacks: vec![
            stack(&encoder, Stack::Encoder),
            stack(&decoder, Stack::Decoder),
        ],
        is_causal_lm: decoder.head.is_some(),
        decoder_start: Some(start),
        ..ModelSpec::of_one_stack(
            FAMILY.model_type,
            decoder.main_stack().clone(),
            decoder.head.clone(),
        )
    })
}

/// Reads the encoder or the decoder from its part of the configuration.
fn side(checkpoint: &Checkpoint, reader: &mut Reader<'_>, key: &'static str) -> Result<ModelSpec> {
    let config = reader.part(key);
    let mut inner = Reader::new(&config);
    let stated = inner.value("model_type").and_then(Value::as_str);
    let kind = stated.unwrap_or("bert");
    let kind = aliases::family_of(kind).unwrap_or(kind);
    let like = named(kind).and_then(|family| Some((family.model_type, family.encoder_like()?)));
    // Cross-attention to an encoder's output has no positions to rotate by.
    let is_decoder = key == "decoder";
    let fits = |(_, like): &(&str, bert_like::BertLike)| {
        !is_decoder || like.positions == Positions::Learned && like.window.is_none()
    };
    let Some((family, like)) = like.filter(fits) else {
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
