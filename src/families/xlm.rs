//! XLM: learned positions on normed embeddings, norms after the branches; in one direction where a switch says so.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, EmbedSpec, HeadSpec, LinearSource, MlpSpec, ModelSpec, PositionTable,
    ProjectionSpec, StackSpec, TableSource,
};

use super::Family;
use super::reading::{
    even_heads, layer_norm, linear, must_be_off, note_attention, prefix, tied_head,
};

pub const FAMILY: Family = Family::own("xlm", "XLM", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("n_layers")?;
    let n_heads = reader.size("n_heads", "n_heads")?;
    let d_model = reader.size("d_model", "emb_dim")?;
    let d_head = even_heads(reader, "n_heads", d_model, n_heads)?;
    let d_mlp = 4 * d_model;
    reader.note("d_mlp", d_mlp, Origin::Derived("4 d_model".to_owned()));
    let default = Origin::Default("max_position_embeddings".to_owned());
    let n_ctx = reader.size_or("n_ctx", "max_position_embeddings", 512, default)?;
    let d_vocab = reader.either_size("d_vocab", ["vocab_size", "n_words"])?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-12)?;
    let is_causal = reader.flag_or("causal", "causal", false)?;
    let activation = if reader.flag_or("gelu", "gelu_activation", true)? {
        Activation::Gelu
    } else {
        Activation::Relu
    };
    must_be_off(
        reader,
        "asm",
        "an adaptive softmax has no logits of its own",
    )?;
    const ENCODER: &str = "is_encoder";
    if !reader.flag_or(ENCODER, ENCODER, true)? {
        let problem = "expected true: transformers runs no decoder of this family, found false";
        return Err(Error::config(reader.path(), ENCODER, problem));
    }
    if is_causal {
        reader.remark(
            "padding before a text is hidden here; in transformers the tokens of this model see it where it reads in one direction".to_owned(),
        );
    }
    // The table is stored in either case; this key only says how it was initialised.
    reader.value("sinusoidal_embeddings");
    reader.note("positions", format!("learned, {n_ctx}"), Origin::Family);
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, is_causal);
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(tensors, &["transformer.", ""], "embeddings.weight");
    let norm = |name: &str| Some(layer_norm(tensors, &format!("{base}{name}"), d_model, eps));
    let block = |idx: usize| {
        let map = |name: &str, n_in, n_out| linear(&format!("{base}{name}"), n_in, n_out, true);
        let own = |name: &str| map(&format!("attentions.{idx}.{name}"), d_model, d_model);
        let projections =
            ProjectionSpec::plain(own("q_lin"), own("k_lin"), own("v_lin"), own("out_lin"));
        let mlp = MlpSpec::plain(
            map(&format!("ffns.{idx}.lin1"), d_model, d_mlp),
            map(&format!("ffns.{idx}.lin2"), d_mlp, d_model),
            activation,
        );
        let norms = ["layer_norm1", "layer_norm2"].map(|name| norm(&format!("{name}.{idx}")));
        BlockSpec::post_norm(attention.clone(), projections, mlp, norms)
    };
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{base}{name}.weight"),
        n_rows,
        width: d_model,
    };
    let tokens = table("embeddings", d_vocab);
    if tensors.contains(&format!("{base}lang_embeddings.weight")) {
        reader.remark(
            "embeddings of languages are added only where a language is named for each token: none is here".to_owned(),
        );
    }
    for key in ["n_langs", "use_lang_emb", "lang_id"] {
        reader.value(key);
    }
    let bias = "pred_layer.proj.bias".to_owned();
    let head = if tensors.contains(&bias) {
        let own = "pred_layer.proj.weight";
        let unembed = tied_head(reader, tensors, &[own], &tokens.tensor, true)?;
        Some(HeadSpec::plain(LinearSource::whole(
            unembed,
            Some(bias),
            d_model,
            d_vocab,
        )))
    } else {
        None
    };
    let embed = EmbedSpec {
        positions: Some(PositionTable::Stored(table("position_embeddings", n_ctx))),
        norm: norm("layer_norm_emb"),
        ..EmbedSpec::plain(tokens)
    };
    let blocks = (0..n_layers).map(block).collect();
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: is_causal && head.is_some(),
        ..ModelSpec::of_one_stack(
            FAMILY.model_type,
            StackSpec::only(embed, blocks, None),
            head,
        )
    })
}
