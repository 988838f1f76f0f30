//! Families that use BART's names: an encoder, a decoder with cross-attention, learned or sinusoidal positions.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::{PositionRule, Prefix};
use attnscope_spec::{
    BlockSpec, CrossSpec, DecoderInput, DecoderStart, EmbedSpec, FeedForward, Forced, HeadSpec,
    LinearSource, MlpSpec, ModelSpec, NormSource, PositionTable, ProjectionSpec, Sines, Stack,
    StackSpec, TableSource,
};

pub use super::bart_recipe::{BartLike, LayerNames, Positions, SharedWords};
use super::windows::windows_around;
use super::{
    activation, either, even_heads, layer_norm, linear, norm_before_or_after, note_attention,
    prefix,
};

/// Fixed; no configuration states it.
const EPS: f64 = 1e-5;

/// Usual names of queries, keys, values and output.
const USUAL: [&str; 4] = ["q_proj", "k_proj", "v_proj", "out_proj"];

/// Sizes and switches of the encoder or the decoder.
struct Side<'a> {
    tensors: &'a Tensors,
    like: BartLike,
    base: String,
    stack: Stack,
    n_layers: usize,
    n_heads: usize,
    d_model: usize,
    d_head: usize,
    d_mlp: usize,
    n_ctx: usize,
    activation: Activation,
    attention_bias: bool,
    scale: f32,
    tokens: TableSource,
    /// One entry per layer.
    windows: Vec<Option<Window>>,
}

/// Reads a family of this kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: BartLike,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let d_model = reader.size("d_model", "d_model")?;
    let n_ctx = reader.size("n_ctx", like.n_ctx[0])?;
    let n_ctx_of_decoder = if like.n_ctx[0] == like.n_ctx[1] {
        n_ctx
    } else {
        reader.size("decoder n_ctx", like.n_ctx[1])?
    };
    let [of_source, of_target] = like.vocabulary;
    let d_vocab = reader.size("d_vocab", of_source)?;
    let shares = match like.shared_words {
        SharedWords::Unless(key) => reader.flag_or("shared_embedding", key, true)?,
        SharedWords::Always => true,
        SharedWords::Never => false,
    };
    let d_target = if shares {
        let other = reader.value(of_target).and_then(|v| v.as_u64());
        if let Some(other) = other.filter(|other| *other != d_vocab as u64) {
            let problem = format!("expected the encoder's {d_vocab}, found {other}");
            return Err(Error::config(reader.path(), of_target, problem));
        }
        d_vocab
    } else {
        let same = Origin::Derived("the encoder's".to_owned());
        reader.size_or("decoder d_vocab", of_target, d_vocab, same)?
    };
    let activation = activation(reader, "activation_function", like.activation)?;
    let scales = match like.scales {
        Some(default) => reader.flag_or("scales_embedding", "scale_embedding", default)?,
        None => false,
    };
    let root = (d_model as f64).sqrt() as f32;
    let scale = if scales { root } else { 1.0 };
    let attention_bias = match like.attention_bias {
        Some(key) => reader.flag_or("qkv_bias", key, false)?,
        None => true,
    };
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    let bases = [like.base, ""];
    let probe = |side: &str| format!("{side}.layers.0.{}", like.names.probe);
    let base = prefix(tensors, &bases, &probe("decoder"));
    let base = if tensors.contains(&format!("{base}{}", probe("decoder"))) {
        base
    } else {
        prefix(tensors, &bases, &probe("encoder"))
    };
    let has_side = |side: &str| tensors.contains(&format!("{base}{}", probe(side)));
    let half = match (has_side("encoder"), has_side("decoder")) {
        (true, false) => Some(Stack::Encoder),
        (false, true) => Some(Stack::Decoder),
        _ if !like.encodes => Some(Stack::Decoder),
        _ => None,
    };
    let shared = format!("{base}shared.weight");
    let tokens_of = |side: &str| {
        let of = |side: &str| format!("{base}{side}.embed_tokens.weight");
        let other = if side == "decoder" {
            "encoder"
        } else {
            "decoder"
        };
        TableSource {
            // Where all tables are tied, one of them is stored.
            tensor: match (shares, tensors.contains(&of(side))) {
                (true, false) => shared.clone(),
                (false, false) if d_target == d_vocab => either(tensors, [of(side), of(other)]),
                _ => of(side),
            },
            n_rows: if side == "decoder" { d_target } else { d_vocab },
            width: d_model,
        }
    };
    let mut side = |name: &'static str,
                    stack: Stack,
                    knobs: [&'static str; 2],
                    keys: [String; 3]|
     -> Result<Side<'_>> {
        let n_layers = reader.layers(&keys[0])?;
        let n_heads = reader.size(knobs[0], &keys[1])?;
        let d_head = even_heads(reader, &keys[1], d_model, n_heads)?;
        let windows = match like.window.filter(|_| stack == Stack::Encoder) {
            Some(key) => windows_around(reader, key, n_layers)?,
            None => vec![None; n_layers],
        };
        Ok(Side {
            windows,
            tensors,
            like,
            base: format!("{base}{name}"),
            stack,
            n_layers,
            n_heads,
            d_model,
            d_head,
            d_mlp: reader.size(knobs[1], &keys[2])?,
            n_ctx: if stack == Stack::Encoder {
                n_ctx
            } else {
                n_ctx_of_decoder
            },
            activation,
            attention_bias,
            scale,
            tokens: tokens_of(name),
        })
    };
    let keys = |of: &str| ["layers", "attention_heads", "ffn_dim"].map(|key| format!("{of}_{key}"));
    let encoder = side(
        "encoder",
        Stack::Encoder,
        ["encoder n_heads", "encoder d_mlp"],
        keys(if like.encodes { "encoder" } else { "decoder" }),
    )?;
    let decoder = side(
        "decoder",
        Stack::Decoder,
        ["decoder n_heads", "decoder d_mlp"],
        keys("decoder"),
    )?;
    if !like.encodes {
        reader.forget(&["encoder n_heads", "encoder d_mlp"]);
    }
    let of_decoder = AttentionSpec::plain(decoder.n_heads, decoder.n_heads, decoder.d_head, true);
    note_attention(reader, &of_decoder, Origin::Family);
    let positions = match like.positions {
        Positions::Learned { .. } => format!("learned, {n_ctx}"),
        _ => "sines and cosines".to_owned(),
    };
    reader.note("positions", positions, Origin::Family);
    let pad = match like.positions {
        Positions::SinusoidNotPad => reader.count_or("pad_token", "pad_token_id", 1)? as u32,
        _ => 0,
    };
    // An encoder or decoder saved alone is a model of one stack.
    let start = match half {
        None => Some(DecoderStart {
            // Ids of one side mean nothing to the other if they do not share a vocabulary.
            reads_again: if shares {
                like.reads_again
            } else {
                DecoderInput::Never
            },
            has_own_vocabulary: !shares,
            ..decoder_start(reader, like.start_token, d_target)?
        }),
        Some(_) => None,
    };
    let is_tied = reader.value("tie_word_embeddings") != Some(&serde_json::Value::Bool(false));
    // The head may be part of the decoder, below the model's prefix.
    let own_head = either(
        tensors,
        [like.head.to_owned(), format!("{base}{}", like.head)],
    );
    let has_head = (is_tied && like.tied_alone)
        || tensors.contains(&own_head)
        || tensors.contains("final_logits_bias")
        || (half == Some(Stack::Decoder) && is_tied);
    let head = has_head.then(|| {
        let stored = tensors.contains(&own_head);
        let weight = if stored || !is_tied {
            own_head.clone()
        } else {
            decoder.tokens.tensor.clone()
        };
        let bias = "final_logits_bias".to_owned();
        HeadSpec {
            extra_bias: Some(bias).filter(|bias| tensors.contains(bias)),
            ..HeadSpec::plain(LinearSource::whole(weight, None, d_model, d_target))
        }
    });
    let stacks = match half {
        None => vec![encoder.stack(), decoder.stack()],
        Some(half) => {
            let side = if half == Stack::Encoder {
                &encoder
            } else {
                &decoder
            };
            reader.note(
                "half",
                format!("{half:?} alone").to_lowercase(),
                Origin::Derived("tensor names".to_owned()),
            );
            let cross = format!("{}.layers.0.{}.k_proj.weight", side.base, like.names.cross);
            if tensors.contains(&cross) && !like.is_behind {
                reader.remark("its attention to an encoder is left out".to_owned());
            }
            vec![side.alone()]
        }
    };
    let head = head.filter(|_| half != Some(Stack::Encoder));
    Ok(ModelSpec {
        d_model,
        d_vocab: if half == Some(Stack::Encoder) {
            d_vocab
        } else {
            d_target
        },
        n_ctx: Some(n_ctx),
        positions: match like.positions {
            Positions::Learned { n_rows_before } => PositionRule::Shifted { by: n_rows_before },
            Positions::Sinusoid => PositionRule::Index,
            Positions::SinusoidNotPad => PositionRule::NotPad { pad },
        },
        stacks,
        is_causal_lm: head.is_some(),
        decoder_start: start,
        ..ModelSpec::of_one_stack(family, encoder.stack(), head)
    })
}

/// Reads the token that a target begins with, and those that end it.
///
/// # Errors
/// When the configuration names none, or a value is not a token.
pub fn decoder_start(
    reader: &mut Reader<'_>,
    otherwise: Option<&str>,
    d_vocab: usize,
) -> Result<DecoderStart> {
    const KEY: &str = "decoder_start_token_id";
    let key = match (reader.value(KEY), otherwise) {
        (None, Some(other)) => other,
        _ => KEY,
    };
    let Some(start) = reader.token("start_token", key, d_vocab)? else {
        let problem =
            "missing: a target has to begin with some token; --set start_token=ID says with which";
        return Err(Error::config(reader.path(), KEY, problem));
    };
    let mut end_tokens = reader.tokens("end_token", "eos_token_id");
    end_tokens.extend(reader.tokens("forced_end_token", "forced_eos_token_id"));
    let forced = reader.value("forced_bos_token_id").and_then(|v| v.as_u64());
    // Suppressed tokens only matter for generation; reading the key marks it as known.
    reader.value("bad_words_ids");
    Ok(DecoderStart {
        prefixes: [Prefix::NONE; 2],
        forced: forced
            .map(|id| Forced::Token(id as u32))
            .into_iter()
            .collect(),
        never_written: Vec::new(),
        never_first: Vec::new(),
        reads_again: DecoderInput::ShiftedForLabels,
        has_own_vocabulary: false,
        start_token: start,
        end_tokens,
    })
}

impl Side<'_> {
    fn norm(&self, name: &str) -> NormSource {
        layer_norm(
            self.tensors,
            &format!("{}.{name}", self.base),
            self.d_model,
            EPS,
        )
    }

    fn linear(&self, name: &str, n_in: usize, n_out: usize) -> LinearSource {
        linear(&format!("{}.{name}", self.base), n_in, n_out, true)
    }

    fn projections(&self, at: &str, names: [&str; 4]) -> ProjectionSpec {
        let d = self.d_model;
        let [q, k, v, o] = names.map(|name| {
            let name = format!("{}.{at}.{name}", self.base);
            linear(&name, d, d, self.attention_bias)
        });
        ProjectionSpec::plain(q, k, v, o)
    }

    fn block(&self, layer_idx: usize) -> BlockSpec {
        let at = format!("layers.{layer_idx}");
        let is_decoder = self.stack == Stack::Decoder;
        let mut attention =
            AttentionSpec::plain(self.n_heads, self.n_heads, self.d_head, is_decoder);
        attention.mask.window = self.windows[layer_idx];
        let names = self.like.names;
        let mlp = MlpSpec::plain(
            self.linear(&format!("{at}.{}fc1", names.mlp), self.d_model, self.d_mlp),
            self.linear(&format!("{at}.{}fc2", names.mlp), self.d_mlp, self.d_model),
            self.activation,
        );
        // The norm has the same name before and after its branch.
        let placed = |name: &str| {
            norm_before_or_after(self.norm(&format!("{at}.{name}")), self.like.norms_before)
        };
        let (attn_pre, attn_post) = placed("self_attn_layer_norm");
        let (mlp_pre, mlp_post) = placed(names.mlp_norm);
        let cross = is_decoder.then(|| {
            let (pre, post) = placed(names.cross_norm);
            let attention = AttentionSpec {
                is_cross: true,
                ..AttentionSpec::plain(self.n_heads, self.n_heads, self.d_head, false)
            };
            Box::new(CrossSpec {
                pre,
                post,
                ..CrossSpec::plain(
                    attention,
                    self.projections(&format!("{at}.{}", names.cross), USUAL),
                )
            })
        });
        let own_names = self.like.of_encoder.filter(|_| !is_decoder);
        let projections = self.projections(&format!("{at}.self_attn"), own_names.unwrap_or(USUAL));
        BlockSpec {
            attn_pre,
            attn_post,
            cross,
            mlp_pre,
            mlp_post,
            ..BlockSpec::plain(attention, projections, FeedForward::Dense(Box::new(mlp)))
        }
    }

    /// The stack of an encoder or decoder that is a model by itself: without cross-attention, unless an encoder of another kind stands
    /// before it.
    fn alone(&self) -> StackSpec {
        let mut stack = self.stack();
        if !self.like.is_behind {
            let blocks = stack.blocks_mut().iter_mut();
            blocks.for_each(|block| block.cross = None);
        }
        StackSpec {
            stack: Stack::Only,
            ..stack
        }
    }

    fn stack(&self) -> StackSpec {
        let table = format!("{}.embed_positions.weight", self.base);
        let positions = match self.like.positions {
            Positions::Learned { n_rows_before } => PositionTable::Stored(TableSource {
                tensor: table,
                n_rows: self.n_ctx + n_rows_before,
                width: self.d_model,
            }),
            Positions::Sinusoid if self.tensors.contains(&table) => {
                PositionTable::Stored(TableSource {
                    tensor: table,
                    n_rows: self.n_ctx,
                    width: self.d_model,
                })
            }
            Positions::Sinusoid => PositionTable::Sinusoid(Sines::Halves),
            Positions::SinusoidNotPad => {
                match self.tensors.info(&table).map(|info| &info.shape[..]) {
                    Some(&[n_rows, width]) if width == self.d_model => {
                        PositionTable::Stored(TableSource {
                            tensor: table,
                            n_rows,
                            width,
                        })
                    }
                    _ => PositionTable::Sinusoid(Sines::HalvesToEnd),
                }
            }
        };
        let like = self.like;
        let embed = EmbedSpec {
            // The norm before the positions undoes the scale, except for epsilon: the decoder has none.
            scale: if like.norms_before_positions && self.stack == Stack::Decoder {
                1.0
            } else {
                self.scale
            },
            positions: Some(positions),
            norms_before_positions: like.norms_before_positions && self.stack == Stack::Decoder,
            norm: like
                .norms_embedding
                .then(|| self.norm("layernorm_embedding")),
            ..EmbedSpec::plain(self.tokens.clone())
        };
        let blocks = (0..self.n_layers)
            .map(|layer_idx| self.block(layer_idx))
            .collect();
        StackSpec {
            stack: self.stack,
            ..StackSpec::only(
                embed,
                blocks,
                like.norms_before.then(|| self.norm(like.last_norm)),
            )
        }
    }
}
