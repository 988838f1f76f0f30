//! T5Gemma 2: an encoder and a decoder of Gemma 3's blocks. One softmax of the decoder sees the encoder's tokens and its own, through the
//! same maps; the encoder's keys do not turn.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Mask};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, CrossSpec, HeadSpec, LinearSource, ModelSpec, ProjectionSpec, Stack, StackSpec,
};

use super::direction::check_direction;
use super::reading::bart_like::decoder_start;
use super::reading::llama_like::{self, Recipe};
use super::reading::{prefix, tied_head};
use super::{Family, t5gemma2_text};

/// The token that ends a picture has a row of its own, in each half.
pub const FAMILY: Family =
    Family::own("t5gemma2", "T5Gemma2", read).leaving_unread(&["eoi_embedding"]);

/// Prefixes of the encoder: those of a text part that stands alone there came first.
const ENCODERS: [&str; 4] = [
    "model.encoder.text_model.",
    "encoder.text_model.",
    "model.encoder.",
    "encoder.",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    // Copies of the decoder's values, and what pictures need.
    for key in [
        "vocab_size",
        "is_encoder_decoder",
        "dropout_rate",
        "eoi_token_index",
        "image_token_index",
    ] {
        reader.value(key);
    }
    let encoder = encoder(checkpoint, reader)?;
    let mut decoder = decoder(checkpoint, reader)?;
    let d_model = decoder.d_model;
    for (is, of_encoder, key) in [
        (d_model, encoder.d_model, "hidden_size"),
        (decoder.d_vocab, encoder.d_vocab, "vocab_size"),
    ] {
        if is != of_encoder {
            let problem = format!("expected {is}, the decoder's, found {of_encoder}");
            let key = format!("encoder.text_config.{key}");
            return Err(Error::config(reader.path(), &key, problem));
        }
    }
    let tokens = &encoder.main_stack().embed.tokens.tensor;
    let head = "lm_head.out_proj.weight";
    let unembed = tied_head(reader, tensors, &[head], tokens, true)?;
    let head = HeadSpec {
        softcap: decoder.head.as_ref().and_then(|head| head.softcap),
        ..HeadSpec::plain(LinearSource::whole(unembed, None, d_model, decoder.d_vocab))
    };
    let stack = &mut decoder.stacks[0];
    if !tensors.contains(&stack.embed.tokens.tensor) {
        tokens.clone_into(&mut stack.embed.tokens.tensor);
    }
    for block in stack.blocks_mut() {
        block.cross = merged(block).map(Box::new);
    }
    reader.note("softmax", "over both stacks' tokens", Origin::Family);
    reader.remark(t5gemma2_text::OF_PICTURES.to_owned());
    let start = decoder_start(reader, Some("bos_token_id"), decoder.d_vocab)?;
    let of = |spec: &ModelSpec, stack| StackSpec {
        stack,
        ..spec.main_stack().clone()
    };
    Ok(ModelSpec {
        d_vocab: decoder.d_vocab,
        n_ctx: encoder.n_ctx.max(decoder.n_ctx),
        stacks: vec![of(&encoder, Stack::Encoder), of(&decoder, Stack::Decoder)],
        is_causal_lm: true,
        decoder_start: Some(start),
        ..ModelSpec::of_one_stack(FAMILY.model_type, decoder.main_stack().clone(), Some(head))
    })
}

/// Keys that each half repeats of the model, or that it does not need.
fn skip(reader: &mut Reader<'_>) {
    for key in [
        "dropout_rate",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "model_type",
    ] {
        reader.value(key);
    }
}

fn side(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    bases: &[&'static str],
    is_causal: bool,
) -> Result<ModelSpec> {
    let recipe = Recipe {
        base: Some(prefix(&checkpoint.tensors, bases, "norm.weight")),
        is_causal,
        ..t5gemma2_text::recipe()
    };
    let spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    // The head belongs to the outer model.
    reader.forget(&["unembedding", "tied_unembedding"]);
    skip(reader);
    Ok(spec)
}

fn encoder(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let config = reader.part("encoder");
    let mut outer = Reader::new(&config);
    let text = outer.part("text_config");
    let mut inner = Reader::new(&text);
    let spec = side(checkpoint, &mut inner, &ENCODERS, false)?;
    inner.forget(&["logit_softcap", "mask"]);
    outer.absorb("text_config", inner);
    for key in [
        "boi_token_index",
        "eoi_token_index",
        "image_token_index",
        "mm_tokens_per_image",
        "vision_config",
        "tie_word_embeddings",
    ] {
        outer.value(key);
    }
    skip(&mut outer);
    reader.absorb("encoder", outer);
    Ok(spec)
}

fn decoder(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let config = reader.part("decoder");
    let mut inner = Reader::new(&config);
    let bases = ["model.decoder.", "decoder."];
    let spec = side(checkpoint, &mut inner, &bases, true)?;
    check_direction(&mut inner, &spec)?;
    reader.absorb("decoder", inner);
    Ok(spec)
}

/// The attention of a block to the encoder's tokens, by its own maps.
fn merged(block: &BlockSpec) -> Option<CrossSpec> {
    let own = block.own()?;
    let mut attention = AttentionSpec {
        is_cross: true,
        mask: Mask::with_width(false, None),
        ..own.attention.clone()
    };
    if let Some(rope) = &mut attention.rope {
        rope.leaves_keys = true;
    }
    let mut projections: ProjectionSpec = own.projections.clone();
    // What both give is summed behind the output map, whose bias is added once.
    projections.o.bias = None;
    Some(CrossSpec {
        pre: block.attn_pre.clone(),
        shares_softmax: true,
        ..CrossSpec::plain(attention, projections)
    })
}
