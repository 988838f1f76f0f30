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
    let like = ModernBertLike {
        family: FAMILY.model_type,
        is_causal: false,
        fused: Some("attn.Wqkv"),
        head: "head",
        has_width: true,
    };
    read_as(checkpoint, reader, like)
}

/// How families of ModernBERT's kind differ.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModernBertLike {
    pub family: &'static str,
    pub is_causal: bool,
    /// Name of queries, keys and values in one tensor; `None` if they are stored apart.
    pub fused: Option<&'static str>,
    /// Name of the head's dense layer and norm.
    pub head: &'static str,
    /// Whether `sliding_window` counts, and before `local_attention`.
    pub has_width: bool,
}

/// Reads a family of ModernBERT's kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: ModernBertLike,
) -> Result<ModelSpec> {
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
    const WIDTH: &str = "local_attention";
    if like.is_causal && reader.is_null(WIDTH) {
        let problem = "expected a whole number from 2, found null";
        return Err(Error::config(reader.path(), WIDTH, problem));
    }
    let default = Origin::Default(WIDTH.to_owned());
    // `sliding_window` states half of the width in transformers, and takes precedence.
    let width = match reader.value("sliding_window") {
        Some(_) if like.has_width => 2 * reader.size("window_each_side", "sliding_window")?,
        _ => reader.size_or("window_both_sides", WIDTH, 128, default)?,
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
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, like.is_causal);
    let window = if like.is_causal {
        Window::Back(width / 2)
    } else {
        Window::Around(width / 2)
    };
    note_attention(reader, &attention, Origin::Family);

    // Behind the last of these: the captions of a model that hears and sees.
    let bases = ["model.", "", "text_model."];
    let base = prefix(tensors, &bases, "embeddings.tok_embeddings.weight");
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
        let [q, k, v] = match like.fused {
            Some(name) => {
                let fused = one(name, d_model, 3 * d_model, attention_bias);
                stacked(&fused, [d_model; 3])
            }
            None => ["attn.q_proj", "attn.k_proj", "attn.v_proj"]
                .map(|name| one(name, d_model, d_model, attention_bias)),
        };
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
            convolution: None,
            hidden_norm: None,
            sparsity: None,
            out_activation: None,
        };
        let mut spec = attention.clone();
        spec.mask.window = is_windowed[layer_idx].then_some(window);
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
    let of_head_at = format!("{}.dense.weight", like.head);
    let head = tensors.contains(&of_head_at).then(|| {
        let stored = |name: &str| Some(name.to_owned()).filter(|name| tensors.contains(name));
        let weight = either(
            tensors,
            ["decoder.weight".to_owned(), tokens.tensor.clone()],
        );
        let mut of_norm =
            layer_norm_bias_if_stored(tensors, &format!("{}.norm", like.head), d_model, eps);
        of_norm.bias = has_norm_bias.then(|| format!("{}.norm.bias", like.head));
        HeadSpec {
            transform: Some(TransformSpec {
                dense: LinearSource::whole(
                    of_head_at.clone(),
                    stored(&format!("{}.dense.bias", like.head)),
                    d_model,
                    d_model,
                ),
                activation: Some(of_head),
                norm: Some(of_norm),
                then: None,
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
        is_causal_lm: like.is_causal && head.is_some(),
        ..ModelSpec::of_one_stack(like.family, stack, head)
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
