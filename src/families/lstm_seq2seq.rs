//! LSTM encoder and decoder with attention between them (Luong et al. 2015, Bahdanau et al. 2015); docs/collapse.md.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Scale};
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::Prefix;
use attnscope_spec::recurrent::{
    Additive, Bridge, Recurrence, RecurrentDecoderSpec, RecurrentEncoderSpec, ScoreSource, Start,
};
use attnscope_spec::{
    DecoderInput, DecoderStart, EmbedSpec, HeadSpec, Layers, LinearSource, ModelSpec, Stack,
    StackSpec, TableSource,
};

use super::Family;
use super::reading::linear_bias_if_stored;
use super::reading::torch_lstm::{cell, check_layers};

pub const FAMILY: Family = Family::own("lstm_seq2seq", "LstmSeq2Seq", read);

/// Values of `attention`: how a decoder state and an encoder state are scored.
const SCORES: [&str; 4] = ["dot", "scaled-dot", "general", "additive"];

const STARTS: [&str; 3] = ["zeros", "encoder", "bridge"];

/// Widths that several parts share.
struct Sizes {
    d_embed: usize,
    /// Width of the encoder's output, and of one of its directions.
    d_encoder: usize,
    d_direction: usize,
    d_decoder: usize,
    /// Width of a decoder step's output.
    d_out: usize,
    n_encoder_layers: usize,
    n_decoder_layers: usize,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let d_direction = reader.size("d_encoder", "hidden_size")?;
    let is_bidirectional = reader.flag_or("bidirectional", "bidirectional", true)?;
    let d_encoder = d_direction * if is_bidirectional { 2 } else { 1 };
    let family = || Origin::Family;
    let d_decoder = reader.size_or("d_decoder", "decoder_hidden_size", d_encoder, family())?;
    let sizes = Sizes {
        d_embed: reader.size("d_embed", "embedding_size")?,
        d_encoder,
        d_direction,
        d_decoder,
        d_out: reader.size_or("d_out", "attention_size", d_decoder, family())?,
        n_encoder_layers: reader.layers("num_encoder_layers")?,
        n_decoder_layers: reader.size_or("n_decoder_layers", "num_decoder_layers", 1, family())?,
    };
    check_layers(
        reader,
        tensors,
        sizes.n_encoder_layers + sizes.n_decoder_layers,
    )?;
    let d_vocab_source = reader.size("d_vocab_source", "src_vocab_size")?;
    let d_vocab = reader.size("d_vocab", "tgt_vocab_size")?;
    let encoder = Recurrence::Reader(reads(tensors, &sizes, is_bidirectional));
    let end_tokens = reader.tokens("end_token", "eos_token_id");
    let writer = RecurrentDecoderSpec {
        end_tokens: end_tokens.clone(),
        ..writes(tensors, reader, &sizes)?
    };
    let decoder = Recurrence::Writer(Box::new(writer));
    let output = linear_bias_if_stored(tensors, "output", sizes.d_out, d_vocab);
    let start = DecoderStart {
        reads_again: DecoderInput::Never,
        start_token: needed_token(reader, "bos_token_id", d_vocab)?,
        end_tokens,
        prefixes: [Prefix::NONE; 2],
        forced: Vec::new(),
        never_first: Vec::new(),
        never_written: reader.tokens("pad_token", "pad_token_id"),
        has_own_vocabulary: true,
    };
    let stack = |stack: Stack, table: &str, n_rows: usize, network: Recurrence| StackSpec {
        stack,
        layers: Layers::Recurrent(network),
        ..StackSpec::only(embed(table, n_rows, sizes.d_embed), Vec::new(), None)
    };
    let encoder = stack(Stack::Encoder, "src_embedding", d_vocab_source, encoder);
    let decoder = stack(Stack::Decoder, "tgt_embedding", d_vocab, decoder);
    let head = Some(HeadSpec::plain(output));
    Ok(ModelSpec {
        d_model: sizes.d_encoder,
        is_causal_lm: true,
        decoder_start: Some(start),
        stacks: vec![encoder, decoder.clone()],
        ..ModelSpec::of_one_stack(FAMILY.model_type, decoder, head)
    })
}

fn embed(table: &str, n_rows: usize, width: usize) -> EmbedSpec {
    EmbedSpec::plain(TableSource {
        tensor: format!("{table}.weight"),
        n_rows,
        width,
    })
}

fn needed_token(reader: &mut Reader<'_>, key: &str, d_vocab: usize) -> Result<u32> {
    let token = reader.token("start_token", key, d_vocab)?;
    let missing = || {
        let problem =
            "missing: a target has to begin with some token; --set start_token=ID says with which";
        Error::config(reader.path(), key, problem)
    };
    token.ok_or_else(missing)
}

fn reads(tensors: &Tensors, sizes: &Sizes, is_bidirectional: bool) -> RecurrentEncoderSpec {
    let width = sizes.d_direction;
    let layer = |layer_idx: usize| {
        let n_in = match layer_idx {
            0 => sizes.d_embed,
            _ => sizes.d_encoder,
        };
        let ends: &[&str] = if is_bidirectional {
            &["", "_reverse"]
        } else {
            &[""]
        };
        let cells = ends.iter().map(|end| {
            cell(
                tensors,
                "encoder",
                &format!("l{layer_idx}{end}"),
                n_in,
                width,
            )
        });
        cells.collect()
    };
    RecurrentEncoderSpec {
        layers: (0..sizes.n_encoder_layers).map(layer).collect(),
    }
}

fn writes(
    tensors: &Tensors,
    reader: &mut Reader<'_>,
    sizes: &Sizes,
) -> Result<RecurrentDecoderSpec> {
    let (d_encoder, d_decoder) = (sizes.d_encoder, sizes.d_decoder);
    let feeds_back = reader.flag_or("input_feeding", "input_feeding", true)?;
    let d_fed = if feeds_back { sizes.d_out } else { 0 };
    let layer = |layer_idx: usize| {
        let n_in = match layer_idx {
            0 => sizes.d_embed + d_fed,
            _ => d_decoder,
        };
        cell(
            tensors,
            "decoder",
            &format!("l{layer_idx}"),
            n_in,
            d_decoder,
        )
    };
    let start = start(tensors, reader, sizes)?;
    let rule = word(reader, "scores", "attention", &SCORES)?;
    if rule.ends_with("dot") && d_decoder != d_encoder {
        let problem = format!(
            "expected states of one width for {rule}, found {d_decoder} in the decoder and {d_encoder} in the encoder: general and additive bring them together"
        );
        return Err(Error::config(reader.path(), "attention", problem));
    }
    let bare =
        |name: &str, n_in: usize, n_out: usize| linear_bias_if_stored(tensors, name, n_in, n_out);
    let (scores, d_head) = match rule.as_str() {
        "general" => (
            ScoreSource::General(Box::new(bare("attention.key", d_encoder, d_decoder))),
            d_decoder,
        ),
        "additive" => {
            let width = stored_rows(tensors, "attention.query.weight").unwrap_or(sizes.d_out);
            let maps = Additive {
                query: bare("attention.query", d_decoder, width),
                key: bare("attention.key", d_encoder, width),
                vector: bare("attention.score", width, 1),
            };
            (ScoreSource::Additive(Box::new(maps)), width)
        }
        _ => (ScoreSource::Dot, d_encoder),
    };
    let scale = match rule.as_str() {
        "scaled-dot" => Scale::InvSqrtD,
        _ => Scale::One,
    };
    let attention = AttentionSpec {
        d_value: d_encoder,
        scale,
        is_cross: true,
        ..AttentionSpec::plain(1, 1, d_head, false)
    };
    super::reading::note_attention(reader, &attention, Origin::Key("attention".to_owned()));
    Ok(RecurrentDecoderSpec {
        layers: (0..sizes.n_decoder_layers).map(layer).collect(),
        start,
        feeds_back,
        attention,
        scores,
        qk_norm: false,
        ablation: None,
        combine: bare("combine", d_encoder + d_decoder, sizes.d_out),
        end_tokens: Vec::new(),
    })
}

fn start(tensors: &Tensors, reader: &mut Reader<'_>, sizes: &Sizes) -> Result<Start> {
    const KEY: &str = "initial_state";
    let rule = word(reader, KEY, KEY, &STARTS)?;
    match rule.as_str() {
        "encoder" => {
            let (d_encoder, d_decoder) = (sizes.d_encoder, sizes.d_decoder);
            let layers = [sizes.n_encoder_layers, sizes.n_decoder_layers];
            if d_encoder == d_decoder && layers[0] == layers[1] {
                return Ok(Start::Encoder);
            }
            let problem = format!(
                "expected as many layers on both sides, of one width, for \"encoder\"; found {} × {d_encoder} and {} × {d_decoder}",
                layers[0], layers[1]
            );
            Err(Error::config(reader.path(), KEY, problem))
        }
        "bridge" => {
            let n_out = sizes.n_decoder_layers * sizes.d_decoder;
            let map = |name: &str| -> LinearSource {
                linear_bias_if_stored(tensors, name, sizes.d_encoder, n_out)
            };
            Ok(Start::Bridge(Box::new(Bridge {
                hidden: map("bridge_h"),
                cell: map("bridge_c"),
            })))
        }
        _ => Ok(Start::Zeros),
    }
}

/// Reads one of several words; the first is the default.
fn word(
    reader: &mut Reader<'_>,
    knob: &'static str,
    key: &str,
    known: &[&'static str],
) -> Result<String> {
    let word = reader.word_or(knob, key, known[0])?;
    if known.contains(&word.as_str()) {
        return Ok(word);
    }
    let problem = format!("expected one of {}, found {word:?}", known.join(", "));
    Err(Error::config(reader.path(), key, problem))
}

/// Number of rows of a stored matrix.
fn stored_rows(tensors: &Tensors, name: &str) -> Option<usize> {
    tensors.info(name)?.shape.first().copied()
}
