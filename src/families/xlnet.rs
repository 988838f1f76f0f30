//! XLNet: scores of content and of distance, with biases of queries for each, and norms after the branches.
//! The second stream, which predicts in the order of a permutation, is not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Bias, Relative};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, DistanceRows, EmbedSpec, HeadAxes, HeadSpec, LinearSource, MlpSpec, ModelSpec,
    ProjectionSpec, QueryBiases, RelativeSource, Sines, StackSpec, TableSource,
};

use super::Family;
use super::reading::{
    activation, even_heads, layer_norm, linear, must_be_off, note_attention, note_bias, prefix,
    tied_head,
};

pub const FAMILY: Family = Family::own("xlnet", "XLNet", read).leaving_unread(&[
    "mask_emb",
    "rel_attn.seg_embed",
    "rel_attn.r_s_bias",
]);

/// Positions of the texts that XLNet was trained on. The configuration states no limit.
const TRAINED_ON: usize = 512;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("n_layer")?;
    let n_heads = reader.size("n_heads", "n_head")?;
    let d_model = reader.size("d_model", "d_model")?;
    let d_head = even_heads(reader, "n_head", d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "d_inner")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-12)?;
    let activation = activation(reader, "ff_activation", "gelu")?;
    let is_causal = sees_back_alone(reader)?;
    refuse_others(reader)?;
    let span = reader.size_or(
        "n_ctx",
        "max_position_embeddings",
        TRAINED_ON,
        Origin::Family,
    )?;
    note_bias(reader, "sines of the distance, mapped by each layer");
    let attention = AttentionSpec {
        bias: Bias::Relative(Relative {
            span,
            log_until: None,
        }),
        ..AttentionSpec::plain(n_heads, n_heads, d_head, is_causal)
    };
    note_attention(reader, &attention, Origin::Family);
    reader.remark(
        "run without token types, whose share in scores is left out, and without the stream that predicts by permutation"
            .to_owned(),
    );

    let base = prefix(tensors, &["transformer.", ""], "word_embedding.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}layer.{layer_idx}");
        let own = |name: &str| format!("{at}.rel_attn.{name}");
        let axes = |are_inputs| HeadAxes {
            n_heads,
            d_head,
            are_inputs,
        };
        let map = |name: &str, bias: Option<&str>| {
            LinearSource::whole(own(name), bias.map(own), d_model, d_model)
                .input_major()
                .by_heads(axes(false))
        };
        let o = LinearSource::whole(own("o"), None, d_model, d_model).by_heads(axes(true));
        let relative = RelativeSource {
            embeddings: DistanceRows::Sines {
                n_rows: 2 * span,
                width: d_model,
                order: Sines::Halves,
            },
            norm: None,
            key: Some(map("r", None)),
            query: None,
            biases: Some(QueryBiases {
                of_keys: Some(own("r_w_bias")),
                of_distances: own("r_r_bias"),
                n_heads,
                d_head,
            }),
        };
        let projections = ProjectionSpec {
            relative: Some(Box::new(relative)),
            ..ProjectionSpec::plain(
                map("q", Some("r_w_bias")),
                map("k", None),
                map("v", None),
                o,
            )
        };
        let mlp = MlpSpec::plain(
            linear(&format!("{at}.ff.layer_1"), d_model, d_mlp, true),
            linear(&format!("{at}.ff.layer_2"), d_mlp, d_model, true),
            activation,
        );
        let norms = ["rel_attn.layer_norm", "ff.layer_norm"];
        let norms =
            norms.map(|name| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, eps)));
        BlockSpec::post_norm(attention.clone(), projections, mlp, norms)
    };
    let tokens = TableSource {
        tensor: format!("{base}word_embedding.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    let head = if tensors.contains("lm_loss.bias") {
        let unembed = tied_head(reader, tensors, &["lm_loss.weight"], &tokens.tensor, true)?;
        let bias = Some("lm_loss.bias".to_owned());
        Some(HeadSpec::plain(LinearSource::whole(
            unembed, bias, d_model, d_vocab,
        )))
    } else {
        None
    };
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec::only(EmbedSpec::plain(tokens), blocks, None);
    Ok(ModelSpec {
        n_ctx: Some(span),
        is_causal_lm: is_causal && head.is_some(),
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, head)
    })
}

/// Whether attention is causal.
fn sees_back_alone(reader: &mut Reader<'_>) -> Result<bool> {
    const KEY: &str = "attn_type";
    let kind = reader.word_or("attention_type", KEY, "bi")?;
    match kind.as_str() {
        "bi" => Ok(false),
        "uni" => Ok(true),
        other => {
            let problem = format!("expected bi or uni, found {other:?}");
            Err(Error::config(reader.path(), KEY, problem))
        }
    }
}

/// Refuses settings that change the computation and are not read.
fn refuse_others(reader: &mut Reader<'_>) -> Result<()> {
    must_be_off(reader, "bi_data", "batches of both directions are not read")?;
    must_be_off(reader, "same_length", "masks of equal length are not read")?;
    const CLAMP: &str = "clamp_len";
    let limit = reader.value(CLAMP).and_then(|limit| limit.as_f64());
    if let Some(limit) = limit.filter(|limit| *limit > 0.0) {
        let problem = format!("expected -1: distances with a limit are not read, found {limit}");
        return Err(Error::config(reader.path(), CLAMP, problem));
    }
    // Memories of earlier texts begin empty.
    for key in [
        "mem_len",
        "reuse_len",
        "use_mems_eval",
        "use_mems_train",
        "d_head",
    ] {
        reader.value(key);
    }
    Ok(())
}
