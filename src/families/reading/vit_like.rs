//! Encoders of pictures and of their captions: pre-norm blocks over patches or words. How patches become rows is in `vit_pictures`.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_spec::{EmbedSpec, ModelSpec, PositionTable, StackSpec, TableSource};

pub(crate) use super::vit_blocks::Block;
pub use super::vit_blocks::NormRule;
pub use super::vit_pictures::{Count, Kernel, Pictures, sides};
use super::vit_pictures::{Place, of_pictures};
pub use super::vit_places::{Behind, Lines, MomentPlaces, Moments, Turn, theta};
use super::{activation, check_groups, even_heads, given_rows, must_be_off, note_attention};

/// How a family of this kind differs from the others.
#[derive(Debug, Clone, Copy)]
pub struct VitLike {
    /// Possible prefixes; the first one under which the embeddings exist is used.
    pub bases: &'static [&'static str],
    pub sizes: Sizes,
    pub keys: Keys,
    pub eps: f64,
    pub activation: &'static str,
    /// The kind of all norms.
    pub norm: NormKind,
    pub names: Names,
    pub reads: Reads,
    /// The norm after the last block, if it is part of the last hidden states; `None` if it is not.
    pub last_norm: Option<&'static str>,
}

/// Default sizes.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub d_model: usize,
    pub d_mlp: usize,
    pub n_layers: usize,
    pub n_heads: usize,
}

/// Sizes of nearly every family's base model.
pub const BASE: Sizes = Sizes {
    d_model: 768,
    d_mlp: 3072,
    n_layers: 12,
    n_heads: 12,
};

/// Keys of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    pub d_model: &'static str,
    pub n_layers: &'static str,
    pub n_heads: &'static str,
    /// The number of heads of keys and values, and its default; `None` if there are as many as heads.
    pub n_kv_heads: Option<(&'static str, usize)>,
    pub d_mlp: MlpKey,
    pub n_channels: &'static str,
    pub activation: &'static str,
    /// The epsilon of norms; `None` if no key states it.
    pub eps: Option<&'static str>,
    /// Keys of what follows the last hidden states, of training, or of what stored tensors say as well.
    pub aside: &'static [&'static str],
    /// Switches of parts that the family does not have.
    pub off: &'static [&'static str],
    /// Keys with the one word that is read.
    pub words: &'static [(&'static str, &'static str)],
}

/// What states the width of feed-forward layers.
#[derive(Debug, Clone, Copy)]
pub enum MlpKey {
    Width(&'static str),
    /// A multiple of d_model.
    Ratio(&'static str),
    /// A multiple of d_model, and a switch of gates that share a matrix, whose layers are narrower.
    RatioOrGated(&'static str, &'static str),
}

/// Keys of most families.
pub const OF_MOST: Keys = Keys {
    d_model: "hidden_size",
    n_layers: "num_hidden_layers",
    n_heads: "num_attention_heads",
    n_kv_heads: None,
    d_mlp: MlpKey::Width("intermediate_size"),
    n_channels: "num_channels",
    activation: "hidden_act",
    eps: Some("layer_norm_eps"),
    aside: &[],
    off: &[],
    words: &[],
};

/// Names of a block's tensors.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// Prefix of the layer number.
    pub layers: &'static str,
    pub q: &'static str,
    pub k: &'static str,
    pub v: &'static str,
    /// One tensor of all queries, then all keys, then all values, in place of the three.
    pub qkv: Option<&'static str>,
    pub o: &'static str,
    pub norms: [&'static str; 2],
    pub up: &'static str,
    pub down: &'static str,
    pub gate: Option<&'static str>,
    /// Norms of queries and keys, if they are stored: of each head, or of all together.
    pub head_norms: Option<[&'static str; 2]>,
    pub biases: Biases,
    /// Factors of the output of each branch.
    pub factors: Option<[&'static str; 2]>,
}

/// Which maps have biases.
#[derive(Debug, Clone, Copy)]
pub enum Biases {
    All,
    /// All, but those of queries, keys and values only if this switch is on.
    Switch(&'static str),
    /// Those that are stored.
    Stored,
}

/// Names of ViT and its descendants.
pub const OF_VIT: Names = Names {
    layers: "encoder.layer",
    q: "attention.attention.query",
    k: "attention.attention.key",
    v: "attention.attention.value",
    qkv: None,
    o: "attention.output.dense",
    norms: ["layernorm_before", "layernorm_after"],
    up: "intermediate.dense",
    down: "output.dense",
    gate: None,
    head_norms: None,
    biases: Biases::Switch("qkv_bias"),
    factors: None,
};

/// Names of CLIP and its descendants.
pub const OF_CLIP: Names = Names {
    layers: "encoder.layers",
    q: "self_attn.q_proj",
    k: "self_attn.k_proj",
    v: "self_attn.v_proj",
    qkv: None,
    o: "self_attn.out_proj",
    norms: ["layer_norm1", "layer_norm2"],
    up: "mlp.fc1",
    down: "mlp.fc2",
    gate: None,
    head_norms: None,
    biases: Biases::All,
    factors: None,
};

/// Names of Qwen-VL's tower and its descendants.
pub const OF_QWEN: Names = Names {
    layers: "blocks",
    q: "attn.q",
    k: "attn.k",
    v: "attn.v",
    qkv: Some("attn.qkv"),
    o: "attn.proj",
    norms: ["norm1", "norm2"],
    up: "mlp.fc1",
    down: "mlp.fc2",
    gate: None,
    head_norms: None,
    biases: Biases::Stored,
    factors: None,
};

/// Keys of Qwen-VL's tower and its descendants.
pub const KEYS_OF_QWEN: Keys = Keys {
    n_layers: "depth",
    n_heads: "num_heads",
    n_channels: "in_channels",
    eps: None,
    aside: &["out_hidden_size"],
    ..OF_MOST
};

/// The input, and how it becomes rows.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for a family, and it is a constant"
)]
pub enum Reads {
    Pictures(Pictures),
    Text(Text),
    /// Patches of a spectrogram, for tensors behind some prefix and rows of some width.
    Sound(OfSound),
    /// Rows of numbers as they reach the first layer, and what makes them.
    Rows(&'static str),
}

/// Reads how a sound becomes rows.
pub type OfSound = fn(&Checkpoint, &mut Reader<'_>, (&str, usize)) -> Result<EmbedSpec>;

/// Text, as rows of a token table.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    pub d_vocab: usize,
    pub n_ctx: usize,
    pub is_causal: bool,
}

/// Reads a family of this kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: VitLike,
) -> Result<ModelSpec> {
    let (tensors, keys) = (&checkpoint.tensors, like.keys);
    let size = |reader: &mut Reader<'_>, knob, key: &str, default| {
        reader.size_or(knob, key, default, Origin::Default(key.to_owned()))
    };
    let n_layers = match reader.value(keys.n_layers) {
        Some(_) => reader.layers(keys.n_layers)?,
        None => size(reader, "n_layers", keys.n_layers, like.sizes.n_layers)?,
    };
    let d_model = size(reader, "d_model", keys.d_model, like.sizes.d_model)?;
    let n_heads = size(reader, "n_heads", keys.n_heads, like.sizes.n_heads)?;
    let d_head = even_heads(reader, keys.n_heads, d_model, n_heads)?;
    let n_kv_heads = match keys.n_kv_heads {
        Some((key, default)) => {
            let n = size(reader, "n_kv_heads", key, default)?;
            check_groups(reader, n_heads, n, key)?;
            n
        }
        None => n_heads,
    };
    let (d_mlp, has_fused_gate) = match keys.d_mlp {
        MlpKey::Width(key) => (size(reader, "d_mlp", key, like.sizes.d_mlp)?, false),
        MlpKey::Ratio(key) => (widened(reader, d_model, key, false)?, false),
        MlpKey::RatioOrGated(key, switch) => {
            let is_gated = reader.flag_or("gated_mlp", switch, false)?;
            (widened(reader, d_model, key, is_gated)?, is_gated)
        }
    };
    let eps = match keys.eps {
        Some(key) => reader.number_or("norm_eps", key, like.eps)?,
        None => {
            reader.note("norm_eps", format!("{:e}", like.eps), Origin::Family);
            like.eps
        }
    };
    let norm = NormRule {
        kind: like.norm,
        eps,
    };
    keys.aside.iter().for_each(|key| {
        reader.value(key);
    });
    for key in keys.off {
        must_be_off(reader, key, "this part is not read")?;
    }
    for (key, word) in keys.words {
        if let Some(found) = reader
            .value(key)
            .filter(|found| found.as_str() != Some(word))
        {
            let problem = format!("expected {word:?}, found {found}");
            return Err(Error::config(reader.path(), *key, problem));
        }
    }
    let block = Block {
        tensors,
        names: like.names,
        d_model,
        d_keys: n_kv_heads * d_head,
        d_mlp,
        norm,
        activation: if has_fused_gate {
            reader.value(keys.activation);
            reader.note(
                "activation",
                "silu",
                Origin::Derived("use_swiglu_ffn".to_owned()),
            );
            Activation::Silu
        } else {
            activation(reader, keys.activation, like.activation)?
        },
        has_qkv_bias: match like.names.biases {
            Biases::Switch(key) => reader.flag_or("qkv_bias", key, true)?,
            Biases::All | Biases::Stored => true,
        },
        has_fused_gate,
    };
    let is_causal = matches!(like.reads, Reads::Text(text) if text.is_causal);
    let mut attention = AttentionSpec::plain(n_heads, n_kv_heads, d_head, is_causal);
    let first = format!("{}.0.{}.weight", like.names.layers, like.names.norms[0]);
    let probe = match like.reads {
        Reads::Pictures(pictures) => pictures.kernel,
        Reads::Rows(_) => &first,
        Reads::Text(_) => WORDS,
        Reads::Sound(_) => PATCHES,
    };
    let base = super::prefix_of_encoder(tensors, like.bases, probe);
    let (embed, n_ctx) = match like.reads {
        Reads::Pictures(pictures) => {
            let place = Place {
                base,
                d_model,
                norm,
                n_channels: keys.n_channels,
            };
            let (embed, n_ctx) = of_pictures(checkpoint, reader, pictures, place)?;
            let n_first = embed
                .patches
                .as_ref()
                .map_or(0, |patches| patches.n_first());
            attention.rope = pictures.rope(reader, n_first, d_head)?;
            (embed, n_ctx)
        }
        Reads::Text(text) => of_text(reader, text, base, d_model)?,
        Reads::Sound(embed) => (embed(checkpoint, reader, (base, d_model))?, None),
        Reads::Rows(made_by) => {
            given_rows::remark(reader, made_by);
            (given_rows::embed(format!("{base}{first}"), d_model), None)
        }
    };
    note_attention(reader, &attention, Origin::Family);
    let layers = like.names.layers;
    let dot = if layers.is_empty() { "" } else { "." };
    let blocks = (0..n_layers)
        .map(|layer_idx| block.read(&format!("{base}{layers}{dot}{layer_idx}"), &attention))
        .collect();
    let last = like
        .last_norm
        .map(|name| norm.named(tensors, &format!("{base}{name}"), d_model));
    Ok(ModelSpec {
        d_model,
        n_ctx,
        ..ModelSpec::of_one_stack(family, StackSpec::only(embed, blocks, last), None)
    })
}

/// The width of a feed-forward block stated as a multiple of d_model.
fn widened(reader: &mut Reader<'_>, d_model: usize, key: &str, is_gated: bool) -> Result<usize> {
    let ratio = reader.number_or("mlp_ratio", key, 4.0)?;
    let wide = (d_model as f64 * ratio) as usize;
    let d_mlp = if is_gated {
        // Two thirds, rounded up to a multiple of 8.
        ((wide as f64 * 2.0 / 3.0) as usize).div_ceil(8) * 8
    } else {
        wide
    };
    if d_mlp == 0 {
        let problem = format!("expected a number that leaves a width above 0, found {ratio}");
        return Err(Error::config(reader.path(), key, problem));
    }
    reader.note("d_mlp", d_mlp, Origin::Derived(key.to_owned()));
    Ok(d_mlp)
}

/// The kernel that patches of a spectrogram pass through.
const PATCHES: &str = "embeddings.patch_embeddings.projection.weight";

/// The token table of a caption encoder.
const WORDS: &str = "embeddings.token_embedding.weight";

fn of_text(
    reader: &mut Reader<'_>,
    text: Text,
    base: &str,
    d_model: usize,
) -> Result<(EmbedSpec, Option<usize>)> {
    let default = |key: &str| Origin::Default(key.to_owned());
    const ROWS: &str = "max_position_embeddings";
    let d_vocab = reader.size_or("d_vocab", "vocab_size", text.d_vocab, default("vocab_size"))?;
    let n_ctx = reader.size_or("n_ctx", ROWS, text.n_ctx, default(ROWS))?;
    let table = |name: String, n_rows| TableSource {
        tensor: name,
        n_rows,
        width: d_model,
    };
    let positions = format!("{base}embeddings.position_embedding.weight");
    let embed = EmbedSpec {
        positions: Some(PositionTable::Stored(table(positions, n_ctx))),
        ..EmbedSpec::plain(table(format!("{base}{WORDS}"), d_vocab))
    };
    Ok((embed, Some(n_ctx)))
}
