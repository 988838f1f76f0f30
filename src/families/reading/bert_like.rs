//! Families derived from BERT: its embeddings, its blocks and a masked-language head, with their own names and switches.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, Bias, Buckets};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::PositionRule;
use attnscope_spec::{
    BlockSpec, CrossSpec, DroppedToken, EmbedSpec, FeedForward, MlpSpec, ModelSpec, NormSource,
    PositionTable, ProjectionSpec, StackSpec, TableSource,
};

pub use super::bert_recipe::{BertLike, Names, Norms, Positions, Widening};

use super::masked_head::{absolute_positions, masked_head, note_head};
use super::rope::{RopeRule, plain_rope, rope};
use super::windows::windows_around;
use super::{
    activation, even_heads, layer_norm, linear, must_be_off, note_attention, note_bias, prefix,
};

/// Reads a family of this kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: BertLike,
) -> Result<ModelSpec> {
    let alone = Part {
        at: "",
        may_cross: false,
    };
    read_part(family, checkpoint, reader, like, alone)
}

/// Where a model of this kind is part of another model.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// Prefix of its tensors.
    pub at: &'a str,
    /// Whether there is an encoder that its blocks may attend to.
    pub may_cross: bool,
}

/// Reads a model of this kind that may be part of another.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read_part(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: BertLike,
    part: Part<'_>,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    for (key, why) in like.must_be_off {
        must_be_off(reader, key, why)?;
    }
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_rows = reader.size("n_positions", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", like.eps)?;
    let activation = activation_of(reader, like)?;
    let is_causal = if like.always_decodes {
        reader.value("is_decoder");
        reader.note("is_decoder", true, Origin::Family);
        true
    } else if like.may_decode {
        reader.flag_or("is_decoder", "is_decoder", false)?
    } else {
        reader.value("is_decoder");
        reader.note("is_decoder", false, Origin::Family);
        false
    };
    let crosses = part.may_cross && reader.flag_quietly("add_cross_attention")?;
    if !part.may_cross {
        must_be_off(
            reader,
            "add_cross_attention",
            "this model cannot be run without its encoder",
        )?;
    }
    let (d_embed, d_words) = embedding_widths(reader, like, d_model)?;
    let mut attention = AttentionSpec::plain(n_heads, n_heads, d_head, is_causal);
    let has_table = position(reader, like, n_rows, &mut attention)?;
    let (rule, n_ctx) = counted(reader, like, n_rows, has_table)?;
    let windows = match like.window {
        Some(key) => windows_around(reader, key, n_layers)?,
        None => vec![None; n_layers],
    };
    note_attention(reader, &attention, Origin::Family);
    let has_bias = match like.qkv_bias {
        Some(key) => reader.flag_or("qkv_bias", key, true)?,
        None => true,
    };

    // A tower of captions stands beside one of pictures.
    let bases = [like.base, "", "text_model."].map(|base| format!("{}{base}", part.at));
    let base = prefix(
        tensors,
        &[&bases[0], &bases[1], &bases[2]],
        "embeddings.word_embeddings.weight",
    );
    let block = |layer_idx: usize| {
        let names = like.names;
        let at = format!("{base}{}.{layer_idx}", names.layers);
        let map = |name: &str| format!("{at}.{name}");
        let one = |name: &str| linear(&map(name), d_model, d_model, has_bias);
        let norm = |name: &str| Some(layer_norm(tensors, &map(name), d_model, eps));
        let o = linear(&map(names.o), d_model, d_model, true);
        let projections = ProjectionSpec::plain(one(names.q), one(names.k), one(names.v), o);
        let mlp = MlpSpec::plain(
            linear(&map(names.up), d_model, d_mlp, true),
            linear(&map(names.down), d_mlp, d_model, true),
            activation,
        );
        let mut own = attention.clone();
        own.mask.window = windows[layer_idx];
        let cross = crosses.then(|| {
            let one = |name: &str| linear(&map(&format!("cross{name}")), d_model, d_model, true);
            let norm = |name: &str| norm(&format!("cross{name}"));
            let attention = AttentionSpec {
                is_cross: true,
                ..AttentionSpec::plain(n_heads, n_heads, d_head, false)
            };
            let maps =
                ProjectionSpec::plain(one(names.q), one(names.k), one(names.v), one(names.o));
            let plain = CrossSpec::plain(attention, maps);
            Box::new(match like.norms {
                Norms::After => CrossSpec {
                    post: norm(names.attn_norm),
                    ..plain
                },
                Norms::Before { attention, .. } => CrossSpec {
                    pre: norm(attention),
                    ..plain
                },
            })
        });
        let plain = BlockSpec {
            cross,
            ..BlockSpec::plain(own, projections, FeedForward::Dense(Box::new(mlp)))
        };
        match like.norms {
            Norms::After => BlockSpec {
                attn_post: norm(names.attn_norm),
                mlp_post: norm(names.mlp_norm),
                ..plain
            },
            Norms::Before { attention, mlp, .. } => BlockSpec {
                attn_pre: norm(attention),
                mlp_pre: norm(mlp),
                ..plain
            },
        }
    };
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{base}embeddings.{name}.weight"),
        n_rows,
        width: d_embed,
    };
    let tokens = table("word_embeddings", d_vocab);
    let widths = (d_model, d_words);
    let head = masked_head(
        reader,
        tensors,
        (part.at, like.head),
        &tokens,
        widths,
        activation,
        eps,
    );
    note_head(reader, head.is_some());
    let map = like
        .widens
        .filter(|widens| widens.is_always || d_embed != d_model);
    let token_types = if like.has_token_types {
        let default = Origin::Default("type_vocab_size".to_owned());
        let n = reader.size_or("n_token_types", "type_vocab_size", 2, default)?;
        Some(table("token_type_embeddings", n))
    } else {
        None
    };
    let is_normed = match like.embed_norm_if {
        Some(key) => reader.flag_or("embed_norm", key, false)?,
        None => true,
    };
    let embed_norm = like.embed_norm.filter(|_| is_normed);
    let rescales = match like.rescales {
        Some(key) => reader.flag_or("scales_embedding", key, false)?,
        None => false,
    };
    let embed = EmbedSpec {
        scale: if rescales {
            (d_model as f64).sqrt() as f32
        } else {
            1.0
        },
        dropped: dropped(reader, like, d_vocab)?,
        positions: has_table.then(|| PositionTable::Stored(table("position_embeddings", n_rows))),
        token_types,
        norm: embed_norm.map(|name| layer_norm(tensors, &format!("{base}{name}"), d_embed, eps)),
        projection: map
            .map(|widens| linear(&format!("{base}{}", widens.map), d_embed, d_model, true)),
        ..EmbedSpec::plain(tokens)
    };
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec {
        bucket_values: buckets(like, &attention, base),
        ..StackSpec::only(embed, blocks, last_norm(tensors, like, base, d_model, eps))
    };
    Ok(ModelSpec {
        d_model,
        n_ctx,
        positions: rule,
        is_causal_lm: is_causal && head.is_some(),
        ..ModelSpec::of_one_stack(family, stack, head)
    })
}

fn activation_of(reader: &mut Reader<'_>, like: BertLike) -> Result<Activation> {
    let (key, default) = like.activation;
    match key {
        Some(key) => activation(reader, key, default),
        None => {
            reader.note("activation", default, Origin::Family);
            super::activation_named(reader, "activation", default)
        }
    }
}

/// Widths of the embeddings, and of the head's input to the token table.
fn embedding_widths(
    reader: &mut Reader<'_>,
    like: BertLike,
    d_model: usize,
) -> Result<(usize, usize)> {
    let Some(widens) = like.widens else {
        return Ok((d_model, d_model));
    };
    let same = || Origin::Derived("d_model, no width of embeddings".to_owned());
    let d_embed = reader.size_or("d_embed", widens.key, d_model, same())?;
    let d_words = match widens.head_key {
        Some(key) => reader.size_or("d_words", key, d_embed, same())?,
        None => d_embed,
    };
    Ok((d_embed, d_words))
}

/// Adds the effect of positions on scores to an attention; returns whether rows are added to embeddings.
fn position(
    reader: &mut Reader<'_>,
    like: BertLike,
    n_rows: usize,
    attention: &mut AttentionSpec,
) -> Result<bool> {
    const KIND: &str = "position_embedding_type";
    let d_head = attention.d_head;
    match like.positions {
        Positions::Learned => absolute_positions(reader)?,
        Positions::Rotary => {
            attention.rope = Some(plain_rope(reader, d_head, true, false)?);
            return Ok(false);
        }
        Positions::RotaryOf(theta) => {
            let rule = RopeRule {
                theta,
                ..RopeRule::plain(d_head, n_rows)
            };
            attention.rope = Some(rope(reader, rule)?);
            return Ok(false);
        }
        Positions::LearnedOrRotary => {
            if reader.is_null(KIND) {
                let problem = "expected \"absolute\" or \"rotary\", found null: a model without positions is not read in this family";
                return Err(Error::config(reader.path(), KIND, problem));
            }
            if reader.value(KIND).and_then(|kind| kind.as_str()) == Some("rotary") {
                attention.rope = Some(plain_rope(reader, d_head, false, true)?);
                return Ok(false);
            }
            absolute_positions(reader)?;
        }
        Positions::LearnedAndBuckets(_) => {
            const KEY: &str = "relative_attention_num_buckets";
            let default = Origin::Default(KEY.to_owned());
            let n_buckets = reader.size_or("n_buckets", KEY, 32, default)?;
            if n_buckets != N_BUCKETS {
                let problem = format!(
                    "expected {N_BUCKETS}, which this family always uses, found {n_buckets}"
                );
                return Err(Error::config(reader.path(), KEY, problem));
            }
            note_bias(reader, "learned, by buckets of distance");
            attention.bias = Bias::Buckets(Buckets::plain(n_buckets, 128, true));
        }
    }
    Ok(true)
}

/// MPNet's buckets; its configuration cannot change them.
const N_BUCKETS: usize = 32;

fn buckets(like: BertLike, attention: &AttentionSpec, base: &str) -> Option<TableSource> {
    let Positions::LearnedAndBuckets(name) = like.positions else {
        return None;
    };
    Some(TableSource {
        tensor: format!("{base}{name}.weight"),
        n_rows: N_BUCKETS,
        width: attention.n_heads,
    })
}

/// How positions are counted, and how many there are.
fn counted(
    reader: &mut Reader<'_>,
    like: BertLike,
    n_rows: usize,
    has_table: bool,
) -> Result<(PositionRule, Option<usize>)> {
    if !like.counts_not_pad || !has_table {
        return Ok((PositionRule::Index, Some(n_rows)));
    }
    let pad = match like.pad {
        Some(pad) => {
            reader.note("pad_token", pad, Origin::Family);
            pad
        }
        None => reader.count_or("pad_token", "pad_token_id", 1)?,
    };
    let n_ctx = n_rows.checked_sub(pad + 1).filter(|n| *n > 0);
    let n_ctx = n_ctx.ok_or_else(|| {
        let problem = format!("expected more rows than the {} before position 0", pad + 1);
        Error::config(reader.path(), "max_position_embeddings", problem)
    })?;
    Ok((PositionRule::NotPad { pad: pad as u32 }, Some(n_ctx)))
}

/// The token whose embedding is zeroed, if any.
fn dropped(
    reader: &mut Reader<'_>,
    like: BertLike,
    d_vocab: usize,
) -> Result<Option<DroppedToken>> {
    /// The share of tokens masked in training; the same in every configuration.
    const SHARE: f32 = 0.15 * 0.8;
    let Some(key) = like.drops_masked else {
        return Ok(None);
    };
    if !reader.flag_or("drops_masked", key, false)? {
        return Ok(None);
    }
    let token = reader.token("mask_token", "mask_token_id", d_vocab)?;
    Ok(Some(DroppedToken {
        token,
        share: SHARE,
    }))
}

fn last_norm(
    tensors: &Tensors,
    like: BertLike,
    base: &str,
    d_model: usize,
    eps: f64,
) -> Option<NormSource> {
    match like.norms {
        Norms::After => None,
        Norms::Before { last, .. } => {
            Some(layer_norm(tensors, &format!("{base}{last}"), d_model, eps))
        }
    }
}
