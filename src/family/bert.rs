//! BERT: learned positions and segments, norms after each addition, a masked-language head where one is stored.

use super::Family;
use super::reading::{activation, either, even_heads, layer_norm, note_attention, prefix};
use crate::attention::AttentionSpec;
use crate::checkpoint::{Checkpoint, Origin, Reader, Tensors};
use crate::error::{Error, Result};
use crate::model::{
    BlockSpec, EmbedSpec, HeadSpec, LinearSource, MlpSpec, ModelSpec, Stack, StackSpec, TableSource,
};
use crate::ops::Activation;

pub const FAMILY: Family = Family {
    model_type: "bert",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let n_types = reader.size_or(
        "n_token_types",
        "type_vocab_size",
        2,
        Origin::Default("type_vocab_size".to_owned()),
    )?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-12)?;
    let activation = activation(reader, "hidden_act", "gelu")?;
    let positions = reader.word_or("positions", "position_embedding_type", "absolute")?;
    if positions != "absolute" {
        let problem = format!("expected \"absolute\", found {positions:?}, which is not known");
        return Err(Error::config(
            reader.path(),
            "position_embedding_type",
            problem,
        ));
    }
    let is_causal = reader.flag_or("is_decoder", "is_decoder", false)?;
    if reader.flag_or("cross_attention", "add_cross_attention", false)? {
        let problem =
            "expected false: a bert with cross-attention cannot be run on its own, found true";
        return Err(Error::config(reader.path(), "add_cross_attention", problem));
    }
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, is_causal);
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(tensors, &["bert.", ""], "embeddings.word_embeddings.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}encoder.layer.{layer_idx}");
        let linear = |name: &str, n_in, n_out| {
            LinearSource::whole(
                format!("{at}.{name}.weight"),
                Some(format!("{at}.{name}.bias")),
                n_in,
                n_out,
            )
        };
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, eps));
        BlockSpec {
            attention: attention.clone(),
            q: linear("attention.self.query", d_model, d_model),
            k: linear("attention.self.key", d_model, d_model),
            v: linear("attention.self.value", d_model, d_model),
            o: linear("attention.output.dense", d_model, d_model),
            attn_pre: None,
            attn_out: None,
            attn_post: norm("attention.output.LayerNorm"),
            mlp: MlpSpec {
                up: linear("intermediate.dense", d_model, d_mlp),
                gate: None,
                down: linear("output.dense", d_mlp, d_model),
                activation,
            },
            mlp_pre: None,
            mlp_out: None,
            mlp_post: norm("output.LayerNorm"),
            is_parallel: false,
        }
    };
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{base}embeddings.{name}.weight"),
        n_rows,
        offset: 0,
    };
    let embed = EmbedSpec {
        tokens: table("word_embeddings", d_vocab),
        positions: Some(table("position_embeddings", n_ctx)),
        token_types: Some(table("token_type_embeddings", n_types)),
        norm: Some(layer_norm(
            tensors,
            &format!("{base}embeddings.LayerNorm"),
            d_model,
            eps,
        )),
    };
    let head = head(
        tensors,
        &embed.tokens.tensor,
        d_model,
        d_vocab,
        activation,
        eps,
    );
    reader.note(
        "head",
        if head.is_some() {
            "masked language model"
        } else {
            "none stored"
        },
        Origin::Family,
    );
    reader.value("tie_word_embeddings");
    let stack = StackSpec {
        stack: Stack::Only,
        embed,
        blocks: (0..n_layers).map(block).collect(),
        final_norm: None,
    };
    Ok(ModelSpec {
        family: FAMILY.model_type,
        d_model,
        d_vocab,
        n_ctx: Some(n_ctx),
        stacks: vec![stack],
        is_causal_lm: is_causal && head.is_some(),
        head,
        knobs: Vec::new(),
        unread_keys: Vec::new(),
    })
}

/// The masked-language head, when its dense layer is stored. The last matrix is often the embedding itself.
fn head(
    tensors: &Tensors,
    embedding: &str,
    d_model: usize,
    d_vocab: usize,
    activation: Activation,
    eps: f64,
) -> Option<HeadSpec> {
    const AT: &str = "cls.predictions";
    if !tensors.contains(&format!("{AT}.transform.dense.weight")) {
        return None;
    }
    let dense = LinearSource::whole(
        format!("{AT}.transform.dense.weight"),
        Some(format!("{AT}.transform.dense.bias")),
        d_model,
        d_model,
    );
    let norm = layer_norm(tensors, &format!("{AT}.transform.LayerNorm"), d_model, eps);
    let weight = either(
        tensors,
        [format!("{AT}.decoder.weight"), embedding.to_owned()],
    );
    // A stored decoder bias wins: transformers ignores the other one then.
    let bias = either(
        tensors,
        [format!("{AT}.decoder.bias"), format!("{AT}.bias")],
    );
    let unembed = LinearSource::whole(weight, Some(bias), d_model, d_vocab);
    Some(HeadSpec {
        transform: Some((dense, activation, norm)),
        unembed,
    })
}
