//! Perceiver: learned latents look at all rows of the input once, and then at each other, in layers that may run several times. What
//! makes outputs of the latents is not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, CrossSpec, EmbedSpec, FeedForward, Mixer, MlpSpec, ModelSpec, NormSource,
    PositionTable, ProjectionSpec, Stack, StackSpec, TableSource,
};

use super::Family;
use super::reading::{activation, given_rows, layer_norm, linear, note_attention, prefix};

/// What makes rows of other inputs than texts, and what makes outputs of the latents.
pub const FAMILY: Family = Family::own("perceiver", "Perceiver", read).leaving_unread(&[
    "input_preprocessor.*",
    "output_postprocessor.*",
    "decoder.*",
]);

/// Epsilon of all norms, whatever the configuration states.
const EPS: f64 = 1e-5;

/// Keys of what makes rows of other inputs than texts, and outputs of the latents.
const ASIDE: [&str; 9] = [
    "_label_trainable_num_channels",
    "audio_samples_per_frame",
    "image_size",
    "layer_norm_eps",
    "num_frames",
    "output_num_channels",
    "output_shape",
    "samples_per_patch",
    "train_size",
];

/// Sizes of one kind of attention, and of the feed-forward layers behind it.
struct Sizes {
    n_heads: usize,
    /// Width of all queries, and of all values.
    d_keys: usize,
    d_values: usize,
    d_mlp: usize,
}

/// What blocks are made of.
struct Latents<'a> {
    tensors: &'a Tensors,
    base: &'a str,
    d_model: usize,
    activation: Activation,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const RESIDUAL: &str = "use_query_residual";
    const SHAPE: &str = "cross_attention_shape_for_attention";
    let default = |key: &str| Origin::Default(key.to_owned());
    let tensors = &checkpoint.tensors;
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    let base = prefix(tensors, &["perceiver.", ""], "embeddings.latents");
    let n_latents = reader.size_or("n_latents", "num_latents", 256, default("num_latents"))?;
    let d_model = reader.size_or("d_model", "d_latents", 1280, default("d_latents"))?;
    let stated = reader.size_or("d_inputs", "d_model", 768, default("d_model"))?;
    // What makes rows of pictures decides how wide they are.
    let of_keys = format!("{base}encoder.cross_attention.attention.self.layernorm2");
    let stored = tensors.info(&format!("{of_keys}.weight"));
    let d_inputs = stored.and_then(|info| info.shape.first().copied());
    let d_inputs = d_inputs.unwrap_or(stated);
    let times = reader.size_or("n_times", "num_blocks", 1, default("num_blocks"))?;
    let each = "num_self_attends_per_block";
    let n_each = match reader.value(each) {
        Some(_) => reader.layers(each)?,
        None => 26,
    };
    if n_each.saturating_mul(times) > MOST_LAYERS {
        let problem =
            format!("expected at most {MOST_LAYERS} layers, found {n_each} that run {times} times");
        return Err(Error::config(reader.path(), "num_blocks", problem));
    }
    if !reader.flag_or("latents_stay", RESIDUAL, true)? {
        let problem =
            "expected true: attention without the query residual is not supported, found false";
        return Err(Error::config(reader.path(), RESIDUAL, problem.to_owned()));
    }
    let of_cross = match reader.word_or("keys_are_wide_as", SHAPE, "kv")?.as_str() {
        "kv" => d_inputs,
        "q" => d_model,
        found => {
            let problem = format!("expected \"kv\" or \"q\", found {found:?}");
            return Err(Error::config(reader.path(), SHAPE, problem));
        }
    };
    let cross = sizes(reader, "cross", (d_model, of_cross))?;
    let own = sizes(reader, "self", (d_model, d_model))?;
    if own.d_values != d_model {
        let problem = format!(
            "expected values as wide as latents, {d_model}, which they are added to, found {}",
            own.d_values
        );
        return Err(Error::config(reader.path(), "v_channels", problem));
    }
    let latents = Latents {
        tensors,
        base,
        d_model,
        activation: activation(reader, "hidden_act", "gelu")?,
    };
    let looks = latents.cross(&cross, d_inputs);
    let attends: Vec<BlockSpec> = (0..n_each).map(|idx| latents.own(&own, idx)).collect();
    note_attention(reader, &own.attention(), Origin::Family);
    let blocks = std::iter::once(looks).chain((0..times).flat_map(|_| attends.iter().cloned()));
    let table = TableSource {
        tensor: format!("{base}embeddings.latents"),
        n_rows: n_latents,
        width: d_model,
    };
    let decoder = StackSpec {
        stack: Stack::Decoder,
        ..StackSpec::only(EmbedSpec::plain(table), blocks.collect(), None)
    };
    let (embed, n_ctx) = inputs(tensors, reader, (base, d_inputs))?;
    let encoder = StackSpec {
        stack: Stack::Encoder,
        ..StackSpec::only(
            embed,
            Vec::new(),
            Some(layer_norm(tensors, &of_keys, d_inputs, EPS)),
        )
    };
    reader.remark("what makes outputs of its latents is not read".to_owned());
    let stacks = [encoder, decoder];
    let spec = given_rows::of_numbers(FAMILY.model_type, reader, "latents", stacks);
    Ok(ModelSpec { n_ctx, ..spec })
}

/// Layers that run several times count as often.
const MOST_LAYERS: usize = 1 << 12;

/// The sizes of cross-attention or of self-attention. `d_keys` is the width of queries if no key states it.
fn sizes(
    reader: &mut Reader<'_>,
    kind: &'static str,
    (d_model, d_keys): (usize, usize),
) -> Result<Sizes> {
    let default = |key: &str| Origin::Default(key.to_owned());
    let heads = format!("num_{kind}_attention_heads");
    let widening = format!("{kind}_attention_widening_factor");
    let n_heads = reader.size_or("n_heads", &heads, 8, default(&heads))?;
    let d_keys = stated(reader, "qk_channels")?.unwrap_or(d_keys);
    let d_values = stated(reader, "v_channels")?.unwrap_or(d_keys);
    for (key, width) in [("qk_channels", d_keys), ("v_channels", d_values)] {
        if !width.is_multiple_of(n_heads) {
            let problem = format!("{n_heads} heads do not divide a width of {width}");
            return Err(Error::config(reader.path(), key, problem));
        }
    }
    let times = reader.size_or("widening", &widening, 1, default(&widening))?;
    Ok(Sizes {
        n_heads,
        d_keys,
        d_values,
        d_mlp: times.saturating_mul(d_model),
    })
}

/// A size that may be absent or null.
fn stated(reader: &mut Reader<'_>, key: &'static str) -> Result<Option<usize>> {
    match reader.value(key) {
        Some(value) if !value.is_null() => Ok(Some(reader.size(key, key)?)),
        _ => Ok(None),
    }
}

/// What the latents look at: tokens of a text with their positions, or rows that are given.
fn inputs(
    tensors: &Tensors,
    reader: &mut Reader<'_>,
    (base, width): (&str, usize),
) -> Result<(EmbedSpec, Option<usize>)> {
    const ROWS: &str = "max_position_embeddings";
    let default = |key: &str| Origin::Default(key.to_owned());
    let at = format!("{base}input_preprocessor.");
    let d_vocab = reader.size_or("d_vocab", "vocab_size", 262, default("vocab_size"))?;
    let n_ctx = reader.size_or("n_ctx", ROWS, 2048, default(ROWS))?;
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{at}{name}"),
        n_rows,
        width,
    };
    let words = table("embeddings.weight", d_vocab);
    if !tensors.contains(&words.tensor) {
        reader.forget(&["d_vocab", "n_ctx"]);
        given_rows::remark(reader, "what prepares its inputs");
        let first = format!("{base}encoder.cross_attention.attention.self.key.weight");
        return Ok((given_rows::embed(first, width), None));
    }
    let embed = EmbedSpec {
        positions: Some(PositionTable::Stored(table(
            "position_embeddings.weight",
            n_ctx,
        ))),
        ..EmbedSpec::plain(words)
    };
    Ok((embed, Some(n_ctx)))
}

impl Sizes {
    fn attention(&self) -> AttentionSpec {
        let (n_heads, d_head) = (self.n_heads, self.d_keys / self.n_heads);
        AttentionSpec {
            d_value: self.d_values / n_heads,
            ..AttentionSpec::plain(n_heads, n_heads, d_head, false)
        }
    }
}

impl Latents<'_> {
    /// The block in which latents look at the input.
    fn cross(&self, sizes: &Sizes, d_inputs: usize) -> BlockSpec {
        let at = format!("{}encoder.cross_attention", self.base);
        let attention = AttentionSpec {
            is_cross: true,
            ..sizes.attention()
        };
        let cross = CrossSpec {
            pre: Some(self.norm(&format!("{at}.attention.self.layernorm1"))),
            ..CrossSpec::plain(attention, self.maps(&at, sizes, d_inputs))
        };
        BlockSpec {
            cross: Some(Box::new(cross)),
            mlp_pre: Some(self.norm(&format!("{at}.layernorm"))),
            ..BlockSpec::mixed(Mixer::None, self.mlp(&at, sizes.d_mlp))
        }
    }

    /// A block in which latents look at each other.
    fn own(&self, sizes: &Sizes, idx: usize) -> BlockSpec {
        let at = format!("{}encoder.self_attends.{idx}", self.base);
        let maps = self.maps(&at, sizes, self.d_model);
        BlockSpec {
            attn_pre: Some(self.norm(&format!("{at}.attention.self.layernorm1"))),
            mlp_pre: Some(self.norm(&format!("{at}.layernorm"))),
            ..BlockSpec::plain(sizes.attention(), maps, self.mlp(&at, sizes.d_mlp))
        }
    }

    fn norm(&self, name: &str) -> NormSource {
        layer_norm(self.tensors, name, self.d_model, EPS)
    }

    fn maps(&self, at: &str, sizes: &Sizes, d_inputs: usize) -> ProjectionSpec {
        let map =
            |name: &str, n_in, n_out| linear(&format!("{at}.attention.{name}"), n_in, n_out, true);
        ProjectionSpec::plain(
            map("self.query", self.d_model, sizes.d_keys),
            map("self.key", d_inputs, sizes.d_keys),
            map("self.value", d_inputs, sizes.d_values),
            map("output.dense", sizes.d_values, self.d_model),
        )
    }

    fn mlp(&self, at: &str, d_mlp: usize) -> FeedForward {
        let map = |name: &str, n_in, n_out| linear(&format!("{at}.mlp.{name}"), n_in, n_out, true);
        let (up, down) = (
            map("dense1", self.d_model, d_mlp),
            map("dense2", d_mlp, self.d_model),
        );
        FeedForward::Dense(Box::new(MlpSpec::plain(up, down, self.activation)))
    }
}
