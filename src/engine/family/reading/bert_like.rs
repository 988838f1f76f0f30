//! The families that keep BERT's names: its embeddings, its blocks, and a masked-language head under names of their own.

use super::{
    activation, either, even_heads, layer_norm, linear, must_be_off, note_attention, prefix,
};
use crate::attention::AttentionSpec;
use crate::checkpoint::{Checkpoint, Origin, Reader, Tensors};
use crate::error::{Error, Result};
use crate::model::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec, PositionTable,
    ProjectionSpec, StackSpec, TableSource, TransformSpec,
};
use crate::ops::Activation;
use crate::prompt::PositionRule;

/// What a family of this kind changes.
#[derive(Debug, Clone, Copy)]
pub struct BertLike {
    pub family: &'static str,
    /// What the names of its tensors begin with, where its base is saved inside a larger model.
    pub base: &'static str,
    pub head: MaskedHead,
    /// Positions are counted over tokens other than this padding token, from the one after it.
    pub counts_not_pad: bool,
    /// Embeddings may be narrower than the residual, which this map then widens.
    pub widens: Option<&'static str>,
}

/// Names of a masked-language head.
#[derive(Debug, Clone, Copy)]
pub struct MaskedHead {
    pub dense: &'static str,
    pub norm: &'static str,
    pub decoder: &'static str,
    /// Where the decoder's bias is kept when it is not with it.
    pub bias: &'static str,
    /// `None` for that of the feed-forward layers.
    pub activation: Option<Activation>,
}

/// Reads a family of this kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>, like: BertLike) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_rows = reader.size("n_positions", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let default = Origin::Default("type_vocab_size".to_owned());
    let n_types = reader.size_or("n_token_types", "type_vocab_size", 2, default)?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-12)?;
    let activation = activation(reader, "hidden_act", "gelu")?;
    absolute_positions(reader)?;
    let (rule, n_ctx) = if like.counts_not_pad {
        let pad = reader.count_or("pad_token", "pad_token_id", 1)?;
        let n_ctx = n_rows
            .checked_sub(pad + 1)
            .filter(|n| *n > 0)
            .ok_or_else(|| {
                let problem = format!("expected more rows than the {} before position 0", pad + 1);
                Error::config(reader.path(), "max_position_embeddings", problem)
            })?;
        (PositionRule::NotPad { pad: pad as u32 }, n_ctx)
    } else {
        (PositionRule::Index, n_rows)
    };
    let is_causal = reader.flag_or("is_decoder", "is_decoder", false)?;
    must_be_off(
        reader,
        "add_cross_attention",
        "this model cannot be run without its encoder",
    )?;
    let d_embed = match like.widens {
        Some(_) => {
            let same = Origin::Derived("d_model, no embedding_size".to_owned());
            reader.size_or("d_embed", "embedding_size", d_model, same)?
        }
        None => d_model,
    };
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, is_causal);
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(
        tensors,
        &[like.base, ""],
        "embeddings.word_embeddings.weight",
    );
    let block = |layer_idx: usize| {
        let at = format!("{base}encoder.layer.{layer_idx}");
        let one = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, eps));
        let projections = ProjectionSpec::plain(
            one("attention.self.query", d_model, d_model),
            one("attention.self.key", d_model, d_model),
            one("attention.self.value", d_model, d_model),
            one("attention.output.dense", d_model, d_model),
        );
        let mlp = MlpSpec::plain(
            one("intermediate.dense", d_model, d_mlp),
            one("output.dense", d_mlp, d_model),
            activation,
        );
        BlockSpec {
            attn_post: norm("attention.output.LayerNorm"),
            mlp_post: norm("output.LayerNorm"),
            ..BlockSpec::plain(
                attention.clone(),
                projections,
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{base}embeddings.{name}.weight"),
        n_rows,
        width: d_embed,
    };
    let tokens = table("word_embeddings", d_vocab);
    let head = masked_head(
        reader, tensors, like.head, &tokens, d_model, activation, eps,
    );
    note_head(reader, head.is_some());
    let projection = like.widens.filter(|_| d_embed != d_model);
    let embed = EmbedSpec {
        positions: Some(PositionTable::Stored(table("position_embeddings", n_rows))),
        token_types: Some(table("token_type_embeddings", n_types)),
        norm: Some(layer_norm(
            tensors,
            &format!("{base}embeddings.LayerNorm"),
            d_embed,
            eps,
        )),
        projection: projection.map(|name| linear(&format!("{base}{name}"), d_embed, d_model, true)),
        ..EmbedSpec::plain(tokens)
    };
    let stack = StackSpec::only(embed, (0..n_layers).map(block).collect(), None);
    Ok(ModelSpec {
        d_model,
        n_ctx: Some(n_ctx),
        positions: rule,
        is_causal_lm: is_causal && head.is_some(),
        ..ModelSpec::of_one_stack(like.family, stack, head)
    })
}

/// Refuses positions that are not simply added to embeddings.
///
/// # Errors
/// When the configuration asks for others.
pub fn absolute_positions(reader: &mut Reader<'_>) -> Result<()> {
    const KEY: &str = "position_embedding_type";
    let positions = reader.word_or("positions", KEY, "absolute")?;
    // Those that a person leaves out are taken away later.
    if ["absolute", "none"].contains(&positions.as_str()) {
        return Ok(());
    }
    let problem = format!("expected \"absolute\", found {positions:?}, which is not known");
    Err(Error::config(reader.path(), KEY, problem))
}

/// Notes whether there is a masked-language head; whether it is tied shows in its tensors.
pub fn note_head(reader: &mut Reader<'_>, has_head: bool) {
    let what = if has_head {
        "masked language model"
    } else {
        "none stored"
    };
    reader.note("head", what, Origin::Family);
    reader.value("tie_word_embeddings");
}

/// The masked-language head, when its dense layer is stored. The last matrix is often the embedding itself.
pub fn masked_head(
    reader: &mut Reader<'_>,
    tensors: &Tensors,
    names: MaskedHead,
    tokens: &TableSource,
    d_model: usize,
    activation: Activation,
    eps: f64,
) -> Option<HeadSpec> {
    if !tensors.contains(&format!("{}.weight", names.dense)) {
        return None;
    }
    let width = tokens.width;
    let decoder = names.decoder;
    let own = format!("{decoder}.weight");
    // Untied and not stored is a lack, not an embedding.
    let weight = match reader.value("tie_word_embeddings") {
        Some(serde_json::Value::Bool(false)) => own,
        _ => either(tensors, [own, tokens.tensor.clone()]),
    };
    // A stored decoder bias wins: transformers ignores the other one then.
    let bias = either(tensors, [format!("{decoder}.bias"), names.bias.to_owned()]);
    Some(HeadSpec {
        transform: Some(TransformSpec {
            dense: linear(names.dense, d_model, width, true),
            activation: Some(names.activation.unwrap_or(activation)),
            norm: Some(layer_norm(tensors, names.norm, width, eps)),
        }),
        ..HeadSpec::plain(LinearSource::whole(
            weight,
            Some(bias),
            width,
            tokens.n_rows,
        ))
    })
}
