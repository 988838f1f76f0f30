//! Dia: an encoder of text, and a decoder that writes codes of sound; the channels beside the first are silent.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Scale};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    ConstantRow, CrossSpec, DecoderInput, DecoderStart, HeadSpec, ModelSpec, ProjectionSpec, Stack,
    StackSpec, TableSource,
};

use super::reading::bart_like::decoder_start;
use super::reading::llama_like::{self, NormPlaces, Recipe};
use super::reading::{check_groups, linear, stacked};
use super::{Family, dia_encoder};

pub const FAMILY: Family = Family::own("dia", "Dia", read);

/// The parts of its configuration.
const ENCODER: &str = "encoder_config";
const DECODER: &str = "decoder_config";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let parts = [ENCODER, DECODER].map(|key| reader.part(key));
    let [mut of_encoder, mut of_decoder] = parts.each_ref().map(Reader::new);
    let bases = if tensors.contains("model.decoder.norm.weight") {
        ["model.encoder.", "model.decoder."]
    } else {
        ["encoder.", "decoder."]
    };
    let encoder = side(checkpoint, &mut of_encoder, bases[0], false)?;
    let mut decoder = side(checkpoint, &mut of_decoder, bases[1], true)?;
    let more = complete(&mut of_decoder, bases[1], &mut decoder)?;
    let (start, n_channels, d_encoder) = more;
    reader.absorb(ENCODER, of_encoder);
    reader.absorb(DECODER, of_decoder);
    for (key, found) in [
        (format!("{ENCODER}.hidden_size"), encoder.d_model),
        (format!("{DECODER}.cross_hidden_size"), d_encoder),
    ] {
        if found != decoder.d_model {
            let problem = format!(
                "expected {}, the decoder's: stacks of two widths are not read, found {found}",
                decoder.d_model
            );
            return Err(Error::config(reader.path(), key, problem));
        }
    }
    reader.value("delay_pattern");
    reader.value("norm_eps");
    reader.remark(silent(n_channels));
    let d_vocab = decoder.d_vocab;
    let all = linear("logits_dense", decoder.d_model, n_channels * d_vocab, false);
    let [first, ..] = stacked(&all, [d_vocab, (n_channels - 1) * d_vocab, 0]);
    let head = tensors
        .contains("logits_dense.weight")
        .then(|| HeadSpec::plain(first));
    let stack = |spec: &ModelSpec, stack| StackSpec {
        stack,
        ..spec.stacks[0].clone()
    };
    Ok(ModelSpec {
        d_vocab,
        n_ctx: encoder.n_ctx,
        is_causal_lm: head.is_some(),
        decoder_start: Some(start),
        stacks: vec![
            stack(&encoder, Stack::Encoder),
            stack(&decoder, Stack::Decoder),
        ],
        ..ModelSpec::of_one_stack(FAMILY.model_type, decoder.stacks[0].clone(), head)
    })
}

/// Says what the channels beside the first hold.
pub(super) fn silent(n_channels: usize) -> String {
    format!(
        "run on codes of the first of {n_channels} channels: in the others, sound has not begun"
    )
}

/// The layers of one side.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn side(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    base: &'static str,
    is_causal: bool,
) -> Result<ModelSpec> {
    let second = if is_causal {
        "pre_mlp_norm"
    } else {
        "post_sa_norm"
    };
    let recipe = Recipe {
        norm_places: NormPlaces::BeforeNamed(["pre_sa_norm", second]),
        is_causal,
        base: Some(base),
        ..dia_encoder::recipe()
    };
    let spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    reader.value("model_type");
    reader.value("tie_word_embeddings");
    reader.forget(&["unembedding", "tied_unembedding"]);
    Ok(spec)
}

/// Adds to a decoder its attention to the encoder and the codes of its other channels. Returns how it begins, the number of
/// channels, and the width of the encoder.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn complete(
    reader: &mut Reader<'_>,
    base: &str,
    spec: &mut ModelSpec,
) -> Result<(DecoderStart, usize, usize)> {
    const CHANNELS: &str = "num_channels";
    const MOST: usize = 1 << 10;
    let default = |key: &str| Origin::Default(key.to_owned());
    let d_model = spec.d_model;
    let n_heads = reader.size("cross n_heads", "cross_num_attention_heads")?;
    let n_kv_heads = reader.size("cross n_kv_heads", "cross_num_key_value_heads")?;
    check_groups(reader, n_heads, n_kv_heads, "cross_num_key_value_heads")?;
    let d_head = reader.size("cross d_head", "cross_head_dim")?;
    let d_encoder = reader.size("cross width", "cross_hidden_size")?;
    let n_channels = reader.size_or("n_channels", CHANNELS, 9, default(CHANNELS))?;
    if n_channels > MOST {
        let problem = format!("expected at most {MOST}, found {n_channels}");
        return Err(Error::config(reader.path(), CHANNELS, problem));
    }
    let d_vocab = spec.d_vocab;
    let start = decoder_start(reader, Some("bos_token_id"), d_vocab)?;
    for (layer_idx, block) in spec.stacks[0].blocks_mut().iter_mut().enumerate() {
        let at = format!("{base}layers.{layer_idx}");
        let norm = block.attn_pre.clone();
        let map = |name: &str, n_in, n_out| {
            linear(&format!("{at}.cross_attention.{name}"), n_in, n_out, false)
        };
        let [d_q, d_kv] = [n_heads, n_kv_heads].map(|n| n * d_head);
        let projections = ProjectionSpec::plain(
            map("q_proj", d_model, d_q),
            map("k_proj", d_encoder, d_kv),
            map("v_proj", d_encoder, d_kv),
            map("o_proj", d_q, d_model),
        );
        let attention = AttentionSpec {
            is_cross: true,
            scale: Scale::One,
            ..AttentionSpec::plain(n_heads, n_kv_heads, d_head, false)
        };
        let pre = norm.map(|mut norm| {
            norm.gain = vec![format!("{at}.pre_ca_norm.weight")];
            norm
        });
        block.cross = Some(Box::new(CrossSpec {
            pre,
            ..CrossSpec::plain(attention, projections)
        }));
    }
    // One table holds the codes of each channel, one after another.
    let table = TableSource {
        tensor: format!("{base}embeddings.embed.weight"),
        n_rows: n_channels * d_vocab,
        width: d_model,
    };
    let embed = &mut spec.stacks[0].embed;
    let silent = (1..n_channels).map(|channel| ConstantRow {
        table: table.clone(),
        row: channel * d_vocab + start.start_token as usize,
        columns: vec![0],
    });
    embed.constants = silent.collect();
    embed.tokens = table;
    let start = DecoderStart {
        reads_again: DecoderInput::Never,
        has_own_vocabulary: true,
        ..start
    };
    Ok((start, n_channels, d_encoder))
}
