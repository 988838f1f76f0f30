//! MPT: ALiBi, layer norms without bias, no biases anywhere.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{Alibi, AttentionSpec, Bias, Scale};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec, ProjectionSpec,
    StackSpec, TableSource,
};

use super::Family;
use super::reading::{
    even_heads, layer_norm_bias_if_stored, linear_bias_if_stored, note_attention, note_bias,
    prefix, stacked, tied_head,
};

pub const FAMILY: Family = Family::own("mpt", "Mpt", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("n_layers")?;
    let n_heads = reader.size("n_heads", "n_heads")?;
    let d_model = reader.size("d_model", "d_model")?;
    let d_head = even_heads(reader, "n_heads", d_model, n_heads)?;
    // transformers makes the feed-forward block four times as wide, whatever expansion_ratio says.
    reader.value("expansion_ratio");
    reader.note(
        "d_mlp",
        4 * d_model,
        Origin::Derived("4 d_model".to_owned()),
    );
    let n_ctx = reader.size("n_ctx", "max_seq_len")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_epsilon", 1e-5)?;
    let inside = reader.value("attn_config");
    let number = |key: &str| match inside.and_then(|config| config.get(key)) {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(value) => value
            .as_f64()
            .filter(|v| v.is_finite())
            .map(Some)
            .ok_or_else(|| {
                let key = format!("attn_config.{key}");
                let problem = format!("expected a number or null, found {value}");
                Error::config(checkpoint.config.path(), key, problem)
            }),
    };
    let (scale, scale_origin) = match number("softmax_scale")? {
        Some(scale) => (
            Scale::Factor(scale as f32),
            Origin::Key("attn_config.softmax_scale".to_owned()),
        ),
        None => (Scale::InvSqrtD, Origin::Family),
    };
    let clip = number("clip_qkv")?;
    if let Some(clip) = clip.filter(|clip| *clip <= 0.0) {
        let problem = format!("expected a number above 0 or null, found {clip}");
        let key = "attn_config.clip_qkv";
        return Err(Error::config(checkpoint.config.path(), key, problem));
    }
    // No version that transformers runs reads the rest of attn_config (alibi, alibi_bias_max, qk_ln, …).
    // ALiBi is computed for this many positions; with a single one there is no distance, so all keys get the same bias.
    let bias = if n_ctx == 1 {
        Bias::None
    } else {
        Bias::Alibi(Alibi::new(n_heads, 8.0))
    };
    let attention = AttentionSpec {
        scale,
        bias,
        ..AttentionSpec::plain(n_heads, n_heads, d_head, true)
    };
    note_attention(reader, &attention, scale_origin);
    note_bias(reader, if n_ctx == 1 { "none" } else { "alibi" });
    reader.note("activation", "gelu", Origin::Family);

    let base = prefix(tensors, &["transformer.", ""], "wte.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}blocks.{layer_idx}");
        let one = |name: &str, n_in, n_out| {
            linear_bias_if_stored(tensors, &format!("{at}.{name}"), n_in, n_out)
        };
        let [q, k, v] = stacked(&one("attn.Wqkv", d_model, 3 * d_model), [d_model; 3]);
        let projections = ProjectionSpec {
            clip: clip.map(|clip| clip as f32),
            ..ProjectionSpec::plain(q, k, v, one("attn.out_proj", d_model, d_model))
        };
        let mlp = MlpSpec::plain(
            one("ffn.up_proj", d_model, 4 * d_model),
            one("ffn.down_proj", 4 * d_model, d_model),
            Activation::Gelu,
        );
        let norm = |name: &str| {
            Some(layer_norm_bias_if_stored(
                tensors,
                &format!("{at}.{name}"),
                d_model,
                eps,
            ))
        };
        BlockSpec {
            attn_pre: norm("norm_1"),
            mlp_pre: norm("norm_2"),
            ..BlockSpec::plain(
                attention.clone(),
                projections,
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let tokens = TableSource {
        tensor: format!("{base}wte.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens.tensor, true)?;
    let final_norm = layer_norm_bias_if_stored(tensors, &format!("{base}norm_f"), d_model, eps);
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec::only(EmbedSpec::plain(tokens), blocks, Some(final_norm));
    let head = HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab));
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, Some(head))
    })
}
