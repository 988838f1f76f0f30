//! T5Gemma: an encoder and a decoder of Gemma 2's blocks; the decoder attends to the encoder's output between its branches.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Mask};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, CrossSpec, HeadSpec, LinearSource, ModelSpec, NormSource, ProjectionSpec, Stack,
    StackSpec,
};

use super::direction::check_direction;
use super::reading::bart_like::decoder_start;
use super::reading::llama_like::{self, NormPlaces, Recipe};
use super::reading::{linear, prefix, tied_head};
use super::{Family, gemma2};

pub const FAMILY: Family = Family::own("t5gemma", "T5Gemma", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    for key in ["vocab_size", "is_encoder_decoder"] {
        reader.value(key);
    }
    let probe = "embed_tokens.weight";
    let base = prefix(tensors, &["model.encoder.", "encoder."], probe);
    let encoder = side(checkpoint, reader, "encoder", base)?;
    let base = prefix(tensors, &["model.decoder.", "decoder."], probe);
    if !tensors.contains(&format!("{base}{probe}")) {
        let origin = Origin::Derived("tensor names".to_owned());
        reader.note("half", "encoder alone", origin);
        let stack = sees_both(encoder.main_stack().clone(), Stack::Only);
        return Ok(ModelSpec {
            n_ctx: encoder.n_ctx,
            ..ModelSpec::of_one_stack(FAMILY.model_type, stack, None)
        });
    }
    let decoder = side(checkpoint, reader, "decoder", base)?;
    let d_model = decoder.d_model;
    if encoder.d_model != d_model {
        let problem = format!(
            "expected {d_model}, the decoder's: stacks of two widths are not read, found {}",
            encoder.d_model
        );
        let key = "encoder.hidden_size";
        return Err(Error::config(reader.path(), key, problem));
    }
    let d_vocab = decoder.d_vocab;
    let tokens = &decoder.main_stack().embed.tokens.tensor;
    let unembed = tied_head(reader, tensors, &["lm_head.out_proj.weight"], tokens, true)?;
    let head = HeadSpec {
        softcap: decoder.head.as_ref().and_then(|head| head.softcap),
        ..HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab))
    };
    let mut stack = StackSpec {
        stack: Stack::Decoder,
        ..decoder.main_stack().clone()
    };
    for (layer_idx, block) in stack.blocks_mut().iter_mut().enumerate() {
        block.cross = cross(block, &format!("{base}layers.{layer_idx}"), d_model).map(Box::new);
    }
    let mut start = decoder_start(reader, Some("bos_token_id"), d_vocab)?;
    start.has_own_vocabulary = encoder.d_vocab != d_vocab;
    Ok(ModelSpec {
        d_vocab,
        n_ctx: encoder.n_ctx.max(decoder.n_ctx),
        stacks: vec![
            sees_both(encoder.main_stack().clone(), Stack::Encoder),
            stack,
        ],
        is_causal_lm: true,
        decoder_start: Some(start),
        ..ModelSpec::of_one_stack(FAMILY.model_type, decoder.main_stack().clone(), Some(head))
    })
}

/// Reads the encoder or the decoder, as a decoder without cross-attention.
fn side(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    key: &str,
    base: &'static str,
) -> Result<ModelSpec> {
    let config = reader.part(key);
    let mut inner = Reader::new(&config);
    let recipe = Recipe {
        base: Some(base),
        norm_places: NormPlaces::Around([
            "pre_self_attn_layernorm",
            "post_self_attn_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ]),
        ..gemma2::recipe()
    };
    let spec = llama_like::read(FAMILY.model_type, checkpoint, &mut inner, &recipe)?;
    if key == "decoder" {
        check_direction(&mut inner, &spec)?;
    }
    // The head belongs to the outer model, and only the decoder is causal.
    inner.forget(&["unembedding", "tied_unembedding"]);
    if key == "encoder" {
        inner.forget(&["logit_softcap", "mask"]);
    }
    // Copies of the outer model's values.
    for key in [
        "is_decoder",
        "cross_attention_hidden_size",
        "dropout_rate",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "model_type",
    ] {
        inner.value(key);
    }
    reader.absorb(key, inner);
    Ok(spec)
}

/// Makes a stack bidirectional: windows reach as far both ways as a decoder's reach back.
fn sees_both(stack: StackSpec, place: Stack) -> StackSpec {
    let mut stack = StackSpec {
        stack: place,
        ..stack
    };
    for own in stack.blocks_mut().iter_mut().filter_map(BlockSpec::own_mut) {
        let window = own
            .attention
            .mask
            .window
            .map(|window| window.to_both_sides(|width| width));
        own.attention.mask = Mask {
            causal: false,
            window,
            streaming: None,
            pools: None,
        };
    }
    stack
}

/// Cross-attention of a decoder block: the sizes of its self-attention, without rotation or window.
fn cross(block: &BlockSpec, at: &str, d_model: usize) -> Option<CrossSpec> {
    let own = block.own()?;
    let attention = AttentionSpec {
        rope: None,
        is_cross: true,
        mask: Mask {
            causal: false,
            window: None,
            streaming: None,
            pools: None,
        },
        ..own.attention.clone()
    };
    let maps = &own.projections;
    let has_bias = maps.q.bias.is_some();
    let one =
        |name: &str, n_in, n_out| linear(&format!("{at}.cross_attn.{name}"), n_in, n_out, has_bias);
    let projections = ProjectionSpec::plain(
        one("q_proj", d_model, maps.q.n_out()),
        one("k_proj", d_model, maps.k.n_out()),
        one("v_proj", d_model, maps.v.n_out()),
        one("o_proj", maps.o.n_in, d_model),
    );
    let norm = |name: &str| {
        let like = block.attn_pre.as_ref()?;
        Some(NormSource {
            gain: vec![format!("{at}.{name}.weight")],
            ..like.clone()
        })
    };
    Some(CrossSpec {
        pre: norm("pre_cross_attn_layernorm"),
        out: norm("post_cross_attn_layernorm"),
        ..CrossSpec::plain(attention, projections)
    })
}
