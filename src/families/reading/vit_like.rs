//! Encoders of pictures and of their captions: pre-norm blocks, a convolution that turns patches into rows, a grid of learned
//! positions.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::Firsts;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, GridPositions, LearnedTokens, LinearSource, MlpSpec,
    ModelSpec, PatchSpec, PositionTable, ProjectionSpec, Resampling, StackSpec, TableSource,
};

use super::processor::{Processor, preprocessing};
use super::{activation, even_heads, layer_norm, linear, note_attention, stacked};

/// How a family of this kind differs from the others.
#[derive(Debug, Clone, Copy)]
pub struct VitLike {
    /// Possible prefixes; the first one under which the embeddings exist is used.
    pub bases: &'static [&'static str],
    pub sizes: Sizes,
    pub eps: f64,
    pub activation: &'static str,
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
    /// A switch; if it is off, queries, keys and values have no biases.
    pub qkv_bias: Option<&'static str>,
    /// Factors of the output of each branch.
    pub factors: Option<[&'static str; 2]>,
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
    qkv_bias: Some("qkv_bias"),
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
    qkv_bias: None,
    factors: None,
};

/// The input, and how it becomes rows.
#[derive(Debug, Clone, Copy)]
pub enum Reads {
    Pictures(Pictures),
    Text(Text),
}

/// Pictures, as rows of patches.
#[derive(Debug, Clone, Copy)]
pub struct Pictures {
    pub kernel: &'static str,
    /// Whether the kernel has a bias.
    pub has_bias: bool,
    /// Tensors of the learned tokens before the patches, in order.
    pub class: Option<&'static str>,
    pub distillation: Option<&'static str>,
    /// The tensor of registers, the key of their number, and its default.
    pub registers: Option<(&'static str, &'static str, usize)>,
    /// The tensor of positions; `None` if places are told otherwise.
    pub positions: Option<&'static str>,
    /// How positions are resampled if a picture has another grid.
    pub resampled: Option<Resampling>,
    /// A norm after adding positions.
    pub norm: Option<&'static str>,
    /// Sides of pictures and of patches, if the configuration does not state them.
    pub size: usize,
    pub patch: usize,
    pub processor: Processor,
}

/// Text, as rows of a token table.
#[derive(Debug, Clone, Copy)]
pub struct Text {
    pub d_vocab: usize,
    pub n_ctx: usize,
    pub is_causal: bool,
}

/// Builder of a block's projections.
struct Block<'a> {
    tensors: &'a Tensors,
    names: Names,
    d_model: usize,
    d_mlp: usize,
    eps: f64,
    activation: Activation,
    has_qkv_bias: bool,
    is_gated: bool,
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
    let tensors = &checkpoint.tensors;
    let size = |reader: &mut Reader<'_>, knob, key: &str, default| {
        reader.size_or(knob, key, default, Origin::Default(key.to_owned()))
    };
    let n_layers = match reader.value("num_hidden_layers") {
        Some(_) => reader.layers("num_hidden_layers")?,
        None => size(reader, "n_layers", "num_hidden_layers", like.sizes.n_layers)?,
    };
    let d_model = size(reader, "d_model", "hidden_size", like.sizes.d_model)?;
    let n_heads = size(reader, "n_heads", "num_attention_heads", like.sizes.n_heads)?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let (d_mlp, is_gated) = match like.names.factors {
        Some(_) => widened(reader, d_model)?,
        None => {
            let d_mlp = size(reader, "d_mlp", "intermediate_size", like.sizes.d_mlp)?;
            (d_mlp, false)
        }
    };
    let eps = reader.number_or("norm_eps", "layer_norm_eps", like.eps)?;
    let block = Block {
        tensors,
        names: like.names,
        d_model,
        d_mlp,
        eps,
        activation: if is_gated {
            reader.value("hidden_act");
            reader.note(
                "activation",
                "silu",
                Origin::Derived("use_swiglu_ffn".to_owned()),
            );
            Activation::Silu
        } else {
            activation(reader, "hidden_act", like.activation)?
        },
        has_qkv_bias: match like.names.qkv_bias {
            Some(key) => reader.flag_or("qkv_bias", key, true)?,
            None => true,
        },
        is_gated,
    };
    let is_causal = matches!(like.reads, Reads::Text(text) if text.is_causal);
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, is_causal);
    note_attention(reader, &attention, Origin::Family);
    let probe = match like.reads {
        Reads::Pictures(pictures) => pictures.kernel,
        Reads::Text(_) => WORDS,
    };
    let base = super::prefix(tensors, like.bases, probe);
    let (embed, n_ctx) = match like.reads {
        Reads::Pictures(pictures) => {
            of_pictures(checkpoint, reader, pictures, (base, d_model, eps))?
        }
        Reads::Text(text) => of_text(reader, text, base, d_model)?,
    };
    let blocks = (0..n_layers)
        .map(|layer_idx| {
            block.read(
                &format!("{base}{}.{layer_idx}", like.names.layers),
                &attention,
            )
        })
        .collect();
    let last = like
        .last_norm
        .map(|name| layer_norm(tensors, &format!("{base}{name}"), d_model, eps));
    Ok(ModelSpec {
        d_model,
        n_ctx,
        ..ModelSpec::of_one_stack(family, StackSpec::only(embed, blocks, last), None)
    })
}

/// The width of a feed-forward block stated as a multiple of d_model, and whether the block has a gate.
fn widened(reader: &mut Reader<'_>, d_model: usize) -> Result<(usize, bool)> {
    let ratio = reader.number_or("mlp_ratio", "mlp_ratio", 4.0)?;
    let wide = (d_model as f64 * ratio) as usize;
    let is_gated = reader.flag_or("gated_mlp", "use_swiglu_ffn", false)?;
    let d_mlp = if is_gated {
        // Two thirds, rounded up to a multiple of 8.
        ((wide as f64 * 2.0 / 3.0) as usize).div_ceil(8) * 8
    } else {
        wide
    };
    if d_mlp == 0 {
        let problem = format!("expected a number that leaves a width above 0, found {ratio}");
        return Err(Error::config(reader.path(), "mlp_ratio", problem));
    }
    reader.note("d_mlp", d_mlp, Origin::Derived("mlp_ratio".to_owned()));
    Ok((d_mlp, is_gated))
}

impl Block<'_> {
    fn read(&self, at: &str, attention: &AttentionSpec) -> BlockSpec {
        let (names, d_model) = (self.names, self.d_model);
        let map = |name: &str| format!("{at}.{name}");
        let one = |name: &str| linear(&map(name), d_model, d_model, self.has_qkv_bias);
        let scaled = |linear: LinearSource, nth: usize| match names.factors {
            Some(factors) => linear.times(map(factors[nth])),
            None => linear,
        };
        let o = scaled(linear(&map(names.o), d_model, d_model, true), 0);
        let [q, k, v] = match names.qkv {
            Some(name) => {
                let fused = linear(&map(name), d_model, 3 * d_model, self.has_qkv_bias);
                stacked(&fused, [d_model; 3])
            }
            None => [one(names.q), one(names.k), one(names.v)],
        };
        let projections = ProjectionSpec::plain(q, k, v, o);
        let [first, second] = names
            .norms
            .map(|name| Some(layer_norm(self.tensors, &map(name), d_model, self.eps)));
        BlockSpec {
            attn_pre: first,
            mlp_pre: second,
            ..BlockSpec::plain(
                attention.clone(),
                projections,
                FeedForward::Dense(Box::new(self.mlp(at, &scaled))),
            )
        }
    }

    fn mlp(&self, at: &str, scaled: &dyn Fn(LinearSource, usize) -> LinearSource) -> MlpSpec {
        let (d_model, d_mlp) = (self.d_model, self.d_mlp);
        let map = |name: &str| format!("{at}.{name}");
        if !self.is_gated {
            let up = linear(&map(self.names.up), d_model, d_mlp, true);
            let down = scaled(linear(&map(self.names.down), d_mlp, d_model, true), 1);
            return MlpSpec::plain(up, down, self.activation);
        }
        // One matrix holds the gate first, then up.
        let both = linear(&map("mlp.weights_in"), d_model, 2 * d_mlp, true);
        let half = |nth: usize| {
            both.clone().part(attnscope_spec::Part {
                group: 2 * d_mlp,
                offset: nth * d_mlp,
                len: d_mlp,
            })
        };
        let down = scaled(linear(&map("mlp.weights_out"), d_mlp, d_model, true), 1);
        MlpSpec {
            gate: Some(half(0)),
            ..MlpSpec::plain(half(1), down, self.activation)
        }
    }
}

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

fn of_pictures(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    pictures: Pictures,
    (base, d_model, eps): (&str, usize, f64),
) -> Result<(EmbedSpec, Option<usize>)> {
    let tensors = &checkpoint.tensors;
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_channels = reader.size_or("n_channels", "num_channels", 3, default("num_channels"))?;
    if ![1, 3].contains(&n_channels) {
        let problem = format!("expected 1 channel, grey, or 3 colours, found {n_channels}");
        return Err(Error::config(reader.path(), "num_channels", problem));
    }
    let patch = sides(reader, "patch_size", pictures.patch)?;
    let size = sides(reader, "image_size", pictures.size)?;
    let grid = [size[0] / patch[0], size[1] / patch[1]];
    if grid.contains(&0) {
        let problem = format!(
            "expected at least one patch, found {} × {}",
            grid[0], grid[1]
        );
        return Err(Error::config(reader.path(), "image_size", problem));
    }
    let n_registers = match pictures.registers {
        Some((_, key, default)) => reader.count_or("n_registers", key, default)?,
        None => 0,
    };
    let firsts = Firsts {
        has_class: pictures.class.is_some(),
        has_distillation: pictures.distillation.is_some(),
        n_registers,
    };
    let preprocessing = preprocessing(
        checkpoint,
        reader,
        pictures.processor,
        attnscope_prompt::PicturePreprocessing {
            n_channels,
            resize: None,
            crop: None,
            rescale: 1.0 / 255.0,
            mean: [0.0; 3],
            std: [1.0; 3],
            patch,
            takes: pictures.resampled.is_none().then_some(size),
            firsts,
        },
        size,
    )?;
    let learned = |name: &str, n: usize, has_positions: bool| LearnedTokens {
        tensor: format!("{base}{name}"),
        shape: shape_of(tensors, &format!("{base}{name}"), n, d_model),
        n,
        has_positions,
    };
    let mut learned_tokens = Vec::new();
    learned_tokens.extend(pictures.class.map(|name| learned(name, 1, true)));
    learned_tokens.extend(pictures.distillation.map(|name| learned(name, 1, true)));
    let registers = pictures.registers.filter(|_| n_registers > 0);
    learned_tokens.extend(registers.map(|(name, ..)| learned(name, n_registers, false)));
    let n_first = usize::from(firsts.has_class) + usize::from(firsts.has_distillation);
    let n_rows = n_first + grid[0] * grid[1];
    let positions = pictures.positions.map(|name| format!("{base}{name}"));
    let kernel = format!("{base}{}", pictures.kernel);
    let bias = pictures
        .has_bias
        .then(|| format!("{}.bias", kernel.trim_end_matches(".weight")));
    let n_tokens = match preprocessing.fixed_size() {
        Some([height, width]) => (height / patch[0]) * (width / patch[1]),
        None => grid[0] * grid[1],
    } + firsts.len();
    reader.note(
        "n_tokens",
        n_tokens,
        Origin::Derived("the size of pictures".to_owned()),
    );
    let tokens = TableSource {
        tensor: kernel.clone(),
        n_rows: n_tokens,
        width: d_model,
    };
    let spec = PatchSpec {
        preprocessing,
        projection: LinearSource::of_patch(kernel, bias, [n_channels, patch[0], patch[1]], d_model),
        firsts: learned_tokens,
        positions: positions.map(|tensor| GridPositions {
            shape: shape_of(tensors, &tensor, n_rows, d_model),
            tensor,
            n_first,
            grid,
            resampled: pictures.resampled,
        }),
    };
    let norm = pictures.norm;
    let embed = EmbedSpec {
        patches: Some(Box::new(spec)),
        norm: norm.map(|name| layer_norm(tensors, &format!("{base}{name}"), d_model, eps)),
        ..EmbedSpec::plain(tokens)
    };
    Ok((embed, pictures.resampled.is_none().then_some(n_tokens)))
}

/// The shape of stored rows: they may have a leading axis of length 1, or a single row may have one axis.
fn shape_of(tensors: &Tensors, name: &str, n_rows: usize, width: usize) -> Vec<usize> {
    let forms = [vec![1, n_rows, width], vec![n_rows, width], vec![width]];
    let stored = tensors.info(name).map(|info| &info.shape);
    let is_one = |form: &&Vec<usize>| form.iter().product::<usize>() == n_rows * width;
    let found = forms
        .iter()
        .filter(is_one)
        .find(|form| Some(*form) == stored);
    found.unwrap_or(&forms[1]).clone()
}

/// Rows and columns; a key may give one number for both.
fn sides(reader: &mut Reader<'_>, key: &'static str, default: usize) -> Result<[usize; 2]> {
    if reader.value(key).is_some_and(serde_json::Value::is_array) {
        let numbers = reader.numbers(key)?.unwrap_or_default();
        let is_size = |n: &u64| (1..=1 << 16).contains(n);
        return match numbers.as_slice() {
            [rows, columns] if numbers.iter().all(is_size) => {
                let shown = format!("{rows} × {columns}");
                reader.note(key, shown, Origin::Key(key.to_owned()));
                Ok([*rows as usize, *columns as usize])
            }
            _ => {
                let problem = format!("expected rows and columns, found {numbers:?}");
                Err(Error::config(reader.path(), key, problem))
            }
        };
    }
    let side = reader.size_or(key, key, default, Origin::Default(key.to_owned()))?;
    Ok([side, side])
}
