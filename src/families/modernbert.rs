//! ModernBERT: rotary positions, windows to both sides on two layers of three, norms before the branches.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, GateRule, HeadSpec, LinearSource, MlpSpec, ModelSpec,
    ProjectionSpec, StackSpec, TableSource, TransformSpec,
};

use super::Family;
use super::reading::masked_head::note_head;
use super::reading::rope::{RopeRule, rope};
use super::reading::{
    activation, either, even_heads, layer_norm_bias_if_stored, linear, note_attention, prefix,
    stacked,
};

pub const FAMILY: Family = Family::own("modernbert", "ModernBert", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "norm_eps", 1e-5)?;
    let of_mlp = activation(reader, "hidden_activation", "gelu")?;
    let of_head = activation(reader, "classifier_activation", "gelu")?;
    let attention_bias = reader.flag_or("attention_bias", "attention_bias", false)?;
    let mlp_bias = reader.flag_or("mlp_bias", "mlp_bias", false)?;
    let has_norm_bias = reader.flag_or("norm_bias", "norm_bias", false)?;
    let is_windowed = windowed_layers(reader, n_layers)?;
    let default = Origin::Default("local_attention".to_owned());
    // `sliding_window` states half of the width in transformers, and takes precedence.
    let width = match reader.value("sliding_window") {
        Some(_) => 2 * reader.size("window_each_side", "sliding_window")?,
        None => reader.size_or("window_both_sides", "local_attention", 128, default)?,
    };
    let ropes = [
        ("full_attention", "global_rope_theta", 160_000.0),
        ("sliding_attention", "local_rope_theta", 10_000.0),
    ];
    let [global, local] = ropes.map(|(kind, theta_key, theta)| {
        let rule = RopeRule {
            theta,
            theta_key,
            layer_type: Some(kind),
            ..RopeRule::plain(d_head, n_ctx)
        };
        rope(reader, rule)
    });
    let (global, local) = (global?, local?);
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, false);
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(tensors, &["model.", ""], "embeddings.tok_embeddings.weight");
    let norm = |name: &str| {
        let mut norm = layer_norm_bias_if_stored(tensors, &format!("{base}{name}"), d_model, eps);
        norm.bias = has_norm_bias.then(|| format!("{base}{name}.bias"));
        norm
    };
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let one = |name: &str, n_in, n_out, has_bias| {
            linear(&format!("{at}.{name}"), n_in, n_out, has_bias)
        };
        let fused = one("attn.Wqkv", d_model, 3 * d_model, attention_bias);
        let [q, k, v] = stacked(&fused, [d_model; 3]);
        let o = one("attn.Wo", d_model, d_model, attention_bias);
        // The activated half comes first, then the half that it gates.
        let [gate, up, _] = stacked(
            &one("mlp.Wi", d_model, 2 * d_mlp, mlp_bias),
            [d_mlp, d_mlp, 0],
        );
        let mlp = MlpSpec {
            up,
            gate: Some(gate),
            down: one("mlp.Wo", d_mlp, d_model, mlp_bias),
            activation: of_mlp,
            gate_rule: GateRule::Product,
            learned: None,
            sparsity: None,
        };
        let mut spec = attention.clone();
        spec.mask.window = is_windowed[layer_idx].then_some(Window::Around(width / 2));
        spec.rope = Some(
            if is_windowed[layer_idx] {
                &local
            } else {
                &global
            }
            .clone(),
        );
        // The first layer uses the norm of the embedding.
        let attn_pre = (layer_idx > 0).then(|| norm(&format!("layers.{layer_idx}.attn_norm")));
        BlockSpec {
            attn_pre,
            mlp_pre: Some(norm(&format!("layers.{layer_idx}.mlp_norm"))),
            ..BlockSpec::plain(
                spec,
                ProjectionSpec::plain(q, k, v, o),
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let tokens = TableSource {
        tensor: format!("{base}embeddings.tok_embeddings.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    // A stored bias is ignored if the configuration switches it off.
    let has_bias = reader.value("decoder_bias") != Some(&serde_json::Value::Bool(false));
    let head = tensors.contains("head.dense.weight").then(|| {
        let stored = |name: &str| Some(name.to_owned()).filter(|name| tensors.contains(name));
        let weight = either(
            tensors,
            ["decoder.weight".to_owned(), tokens.tensor.clone()],
        );
        let mut of_norm = layer_norm_bias_if_stored(tensors, "head.norm", d_model, eps);
        of_norm.bias = has_norm_bias.then(|| "head.norm.bias".to_owned());
        HeadSpec {
            transform: Some(TransformSpec {
                dense: LinearSource::whole(
                    "head.dense.weight".to_owned(),
                    stored("head.dense.bias"),
                    d_model,
                    d_model,
                ),
                activation: Some(of_head),
                norm: Some(of_norm),
            }),
            ..HeadSpec::plain(LinearSource::whole(
                weight,
                stored("decoder.bias").filter(|_| has_bias),
                d_model,
                d_vocab,
            ))
        }
    });
    note_head(reader, head.is_some());
    let embed = EmbedSpec {
        norm: Some(norm("embeddings.norm")),
        ..EmbedSpec::plain(tokens)
    };
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec::only(embed, blocks, Some(norm("final_norm")));
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, head)
    })
}

/// Which layers have a window: those in a list, or all but every n-th.
fn windowed_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    if let Some(types) = reader.words_by_layer("layer_types", n_layers)? {
        let is_windowed = types.iter().map(|kind| match kind.as_str() {
            "sliding_attention" => Ok(true),
            "full_attention" => Ok(false),
            other => {
                let problem =
                    format!("expected full_attention or sliding_attention, found {other:?}");
                Err(Error::config(reader.path(), "layer_types", problem))
            }
        });
        return is_windowed.collect();
    }
    let key = "global_attn_every_n_layers";
    let every = reader.size_or("full_every", key, 3, Origin::Default(key.to_owned()))?;
    Ok((0..n_layers).map(|i| i % every != 0).collect())
}
