//! ProphetNet: an encoder, and a decoder in whose scores every query has values of its own for buckets of distances. Its predictions
//! come from further streams, which see what the main one holds and leave it as it is; the main stream is read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Bias, Buckets};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::PositionRule;
use attnscope_spec::{
    BiasGate, BlockSpec, CrossSpec, DecoderInput, DecoderStart, EmbedSpec, MlpSpec, ModelSpec,
    PositionTable, ProfileGate, ProjectionSpec, Stack, StackSpec, TableSource,
};

use super::Family;
use super::reading::bart_like::decoder_start;
use super::reading::{activation, even_heads, layer_norm, linear, note_attention, prefix};

/// The rows that further streams begin with, and the head that reads these streams.
pub const FAMILY: Family = Family::own("prophetnet", "ProphetNet", read)
    .leaving_unread(&["ngram_embeddings.weight", "lm_head.weight"]);

/// Fixed; no configuration states it.
const EPS: f64 = 1e-5;

/// The encoder or the decoder.
struct Side<'a> {
    tensors: &'a Tensors,
    base: String,
    stack: Stack,
    n_layers: usize,
    n_heads: usize,
    d_model: usize,
    d_mlp: usize,
    activation: Activation,
    buckets: Buckets,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let n_rows = reader.size("n_positions", "max_position_embeddings")?;
    let activation = activation(reader, "activation_function", "gelu")?;
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    let pad = reader.count_or("pad_token", "pad_token_id", 0)?;
    let n_ctx = n_rows.checked_sub(pad + 1).filter(|n| *n > 0);
    let n_ctx = n_ctx.ok_or_else(|| {
        let problem = format!("expected more rows than the {} before position 0", pad + 1);
        Error::config(reader.path(), "max_position_embeddings", problem)
    })?;
    let (number, distance) = ("num_buckets", "relative_max_distance");
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_buckets = reader.size_or("n_buckets", number, 32, default(number))?;
    let max_distance = reader.size_or("max_distance", distance, 128, default(distance))?;
    if n_buckets < 2 || max_distance <= n_buckets / 2 {
        let problem =
            format!("expected more than half of {n_buckets} buckets, found {max_distance}");
        return Err(Error::config(reader.path(), distance, problem));
    }
    let probe = "layers.0.feed_forward.intermediate.weight";
    let base = prefix(tensors, &["prophetnet.", ""], &format!("encoder.{probe}"));
    if !tensors.contains(&format!("{base}encoder.{probe}")) {
        let problem = "expected an encoder and a decoder, found no encoder";
        return Err(Error::config(
            reader.path(),
            "is_encoder_decoder",
            problem.to_owned(),
        ));
    }
    let mut side = |name: &str, stack: Stack| -> Result<Side<'_>> {
        let [layers, heads, mlp] = [
            format!("num_{name}_layers"),
            format!("num_{name}_attention_heads"),
            format!("{name}_ffn_dim"),
        ];
        let [of_heads, of_mlp] = if stack == Stack::Encoder {
            ["encoder n_heads", "encoder d_mlp"]
        } else {
            ["decoder n_heads", "decoder d_mlp"]
        };
        let n_heads = reader.size(of_heads, &heads)?;
        even_heads(reader, &heads, d_model, n_heads)?;
        Ok(Side {
            tensors,
            base: format!("{base}{name}."),
            stack,
            n_layers: reader.layers(&layers)?,
            n_heads,
            d_model,
            d_mlp: reader.size(of_mlp, &mlp)?,
            activation,
            buckets: Buckets::plain(n_buckets, max_distance, false),
        })
    };
    let encoder = side("encoder", Stack::Encoder)?;
    let decoder = side("decoder", Stack::Decoder)?;
    note_attention(reader, &decoder.attention(), Origin::Family);
    reader.note(
        "score_bias",
        "by query and bucket of distance",
        Origin::Family,
    );
    let start = DecoderStart {
        reads_again: DecoderInput::Never,
        ..decoder_start(reader, Some("bos_token_id"), d_vocab)?
    };
    const CROSSES: &str = "add_cross_attention";
    if !reader.flag_or("cross_attention", CROSSES, true)? {
        let problem = "expected true: the decoder attends to the encoder's output, found false";
        return Err(Error::config(reader.path(), CROSSES, problem.to_owned()));
    }
    for key in [
        "is_encoder_decoder",
        "is_decoder",
        "tie_word_embeddings",
        "eps",
    ] {
        reader.value(key);
    }
    for key in ["disable_ngram_loss", "init_std"] {
        reader.value(key);
    }
    let n_streams = reader.size_or("n_predicting_streams", "ngram", 2, default("ngram"))?;
    reader.remark(format!(
        "the decoder's main stream is read; those that make the predictions ({n_streams}) see it, and are not read"
    ));
    let stored = |side: &Side<'_>| {
        let own = format!("{}word_embeddings.weight", side.base);
        let other = format!("{base}encoder.word_embeddings.weight");
        let shared = format!("{base}word_embeddings.weight");
        let names = [own, shared, other];
        let found = names.iter().find(|name| tensors.contains(name));
        found.unwrap_or(&names[1]).clone()
    };
    let stack = |side: &Side<'_>| {
        let table = |tensor: String, n_rows| TableSource {
            tensor,
            n_rows,
            width: d_model,
        };
        let positions = format!("{}position_embeddings.weight", side.base);
        let embed = EmbedSpec {
            positions: Some(PositionTable::Stored(table(positions, n_rows))),
            norm: Some(side.norm("embeddings_layer_norm")),
            ..EmbedSpec::plain(table(stored(side), d_vocab))
        };
        let blocks = (0..side.n_layers).map(|layer_idx| side.block(layer_idx));
        StackSpec {
            stack: side.stack,
            ..StackSpec::only(embed, blocks.collect(), None)
        }
    };
    Ok(ModelSpec {
        d_model,
        d_vocab,
        n_ctx: Some(n_ctx),
        positions: PositionRule::Shifted { by: pad + 1 },
        stacks: vec![stack(&encoder), stack(&decoder)],
        decoder_start: Some(start),
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack(&encoder), None)
    })
}

impl Side<'_> {
    fn attention(&self) -> AttentionSpec {
        let is_decoder = self.stack == Stack::Decoder;
        let d_head = self.d_model / self.n_heads;
        let mut attention = AttentionSpec::plain(self.n_heads, self.n_heads, d_head, is_decoder);
        if is_decoder {
            attention.bias = Bias::Buckets(self.buckets);
        }
        attention
    }

    fn norm(&self, name: &str) -> attnscope_spec::NormSource {
        let name = format!("{}{name}", self.base);
        layer_norm(self.tensors, &name, self.d_model, EPS)
    }

    fn projections(&self, at: &str) -> ProjectionSpec {
        let d = self.d_model;
        let names = ["query_proj", "key_proj", "value_proj", "out_proj"];
        let [q, k, v, o] =
            names.map(|name| linear(&format!("{}{at}.{name}", self.base), d, d, true));
        ProjectionSpec::plain(q, k, v, o)
    }

    fn block(&self, layer_idx: usize) -> BlockSpec {
        let at = format!("layers.{layer_idx}");
        let is_decoder = self.stack == Stack::Decoder;
        let map = |name: &str, n_in, n_out| {
            let name = format!("{}{at}.{name}", self.base);
            linear(&name, n_in, n_out, true)
        };
        let mlp = MlpSpec::plain(
            map("feed_forward.intermediate", self.d_model, self.d_mlp),
            map("feed_forward.output", self.d_mlp, self.d_model),
            self.activation,
        );
        let norm = |name: &str| Some(self.norm(&format!("{at}.{name}")));
        let mut projections = self.projections(&format!("{at}.self_attn"));
        let cross = is_decoder.then(|| {
            let n_values = self.buckets.n_buckets * self.n_heads;
            projections.bias_gate = Some(Box::new(BiasGate::Values(ProfileGate {
                map: map("self_attn.relative_pos_embeddings", self.d_model, n_values),
            })));
            let d_head = self.d_model / self.n_heads;
            let attention = AttentionSpec {
                is_cross: true,
                ..AttentionSpec::plain(self.n_heads, self.n_heads, d_head, false)
            };
            let maps = self.projections(&format!("{at}.cross_attn"));
            Box::new(CrossSpec {
                post: norm("cross_attn_layer_norm"),
                ..CrossSpec::plain(attention, maps)
            })
        });
        let norms = ["self_attn_layer_norm", "feed_forward_layer_norm"].map(norm);
        BlockSpec {
            cross,
            ..BlockSpec::post_norm(self.attention(), projections, mlp, norms)
        }
    }
}
