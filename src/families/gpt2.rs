//! GPT-2: learned positions, norms before each branch, fused projections stored input-major.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Scale};
use attnscope_compute::error::Result;
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec, PositionTable,
    ProjectionSpec, StackSpec, TableSource,
};
use serde_json::Value;

use super::Family;
use super::layouts::Keys;
use super::reading::{
    activation, activation_named, either, even_heads, grouped, layer_norm,
    layer_norm_bias_if_stored, must_be_off, note_attention, prefix, rms_norm, stacked, tied_head,
};

pub const FAMILY: Family = Family::own("gpt2", "GPT2", read).with_keys(Keys::Gpt2);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let store = Store {
        is_input_major: true,
        activation: "gelu_new",
        fused: Fused::AllOfEach,
        may_lack_biases: false,
        norms_after: false,
        norms: NormKind::LayerNorm,
    };
    read_stored(checkpoint, reader, FAMILY.model_type, store)
}

/// Differences between checkpoints that use GPT-2's names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Store {
    /// Weights are stored as [n_in, n_out].
    pub is_input_major: bool,
    /// The activation if the configuration names none.
    pub activation: &'static str,
    pub fused: Fused,
    /// Maps and norms have a bias only if one is stored.
    pub may_lack_biases: bool,
    /// Post-norm, under the first GPT's names.
    pub norms_after: bool,
    pub norms: NormKind,
}

/// The order of queries, keys and values in their fused tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fused {
    /// All queries, then all keys, then all values.
    AllOfEach,
    /// All queries, then one key and one value shared by all heads.
    OneKey,
    /// Query, key and value head by head.
    PerHead,
}

/// Reads a checkpoint with GPT-2's names.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_stored(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    family: &'static str,
    store: Store,
) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("n_layer")?;
    let n_heads = reader.size("n_heads", "n_head")?;
    let d_model = reader.size("d_model", "n_embd")?;
    let d_head = even_heads(reader, "n_head", d_model, n_heads)?;
    let n_kv_heads = match store.fused {
        Fused::OneKey => 1,
        _ => n_heads,
    };
    reader.note("n_kv_heads", n_kv_heads, Origin::Family);
    let four = Origin::Derived("4 d_model, no n_inner".to_owned());
    let d_mlp = reader.size_or("d_mlp", "n_inner", 4 * d_model, four)?;
    let n_ctx = reader.size("n_ctx", "n_positions")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_epsilon", 1e-5)?;
    let activation = if store.norms_after {
        first_activation(reader)?
    } else {
        activation(reader, "activation_function", store.activation)?
    };
    must_be_off(
        reader,
        "add_cross_attention",
        "this model cannot be run without its encoder",
    )?;
    let is_scaled = reader.flag_or("scaled_scores", "scale_attn_weights", true)?;
    let by_layer = reader.flag_or("scaled_by_layer", "scale_attn_by_inverse_layer_idx", false)?;

    let attention = AttentionSpec {
        scale: if is_scaled {
            Scale::InvSqrtD
        } else {
            Scale::One
        },
        ..AttentionSpec::plain(n_heads, n_kv_heads, d_head, true)
    };
    let scale_origin = match (is_scaled, by_layer) {
        (_, true) => Origin::Derived("layer 0 of scale / (layer + 1)".to_owned()),
        (false, _) => Origin::Key("scale_attn_weights".to_owned()),
        (true, _) => Origin::Family,
    };
    note_attention(reader, &attention, scale_origin);
    let scale = |layer_idx: usize| {
        if by_layer {
            Scale::Factor(attention.scale.factor(d_head) / (layer_idx + 1) as f32)
        } else {
            attention.scale
        }
    };

    let [words, positions] = if store.norms_after {
        ["tokens_embed", "positions_embed"]
    } else {
        ["wte", "wpe"]
    };
    let base = prefix(tensors, &["transformer.", ""], &format!("{words}.weight"));
    let has_bias = |name: &str| !store.may_lack_biases || tensors.contains(name);
    let norm = |name: &str| {
        if store.norms == NormKind::RmsNorm {
            rms_norm(format!("{name}.weight"), d_model, eps)
        } else if store.may_lack_biases {
            layer_norm_bias_if_stored(tensors, name, d_model, eps)
        } else {
            layer_norm(tensors, name, d_model, eps)
        }
    };
    let block = |layer_idx: usize| {
        let at = format!("{base}h.{layer_idx}");
        let linear = |name: &str, n_in, n_out| {
            let bias = Some(format!("{at}.{name}.bias")).filter(|bias| has_bias(bias));
            let linear = LinearSource::whole(format!("{at}.{name}.weight"), bias, n_in, n_out);
            if store.is_input_major {
                linear.input_major()
            } else {
                linear
            }
        };
        let widths = [n_heads, n_kv_heads, n_kv_heads].map(|n| n * d_head);
        let fused = linear("attn.c_attn", d_model, widths.iter().sum());
        let [q, k, v] = match store.fused {
            Fused::PerHead => grouped(&fused, 1, d_head),
            _ => stacked(&fused, widths),
        };
        let o = linear("attn.c_proj", d_model, d_model);
        let mlp = MlpSpec::plain(
            linear("mlp.c_fc", d_model, d_mlp),
            linear("mlp.c_proj", d_mlp, d_model),
            activation,
        );
        let attention = AttentionSpec {
            scale: scale(layer_idx),
            ..attention.clone()
        };
        let norm = |name: &str| Some(norm(&format!("{at}.{name}")));
        let mut block = BlockSpec::plain(
            attention,
            ProjectionSpec::plain(q, k, v, o),
            FeedForward::Dense(Box::new(mlp)),
        );
        if store.norms_after {
            (block.attn_post, block.mlp_post) = (norm("ln_1"), norm("ln_2"));
        } else {
            (block.attn_pre, block.mlp_pre) = (norm("ln_1"), norm("ln_2"));
        }
        block
    };
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{base}{name}.weight"),
        n_rows,
        width: d_model,
    };
    let mut tokens = table(words, d_vocab);
    let is_tied = reader.value("tie_word_embeddings") != Some(&Value::Bool(false));
    if store.norms_after && is_tied {
        // The first GPT with two heads stores tied weights only under the head's name.
        tokens.tensor = either(tensors, [tokens.tensor, "lm_head.weight".to_owned()]);
    }
    let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens.tensor, true)?;
    let embed = EmbedSpec {
        positions: Some(PositionTable::Stored(table(positions, n_ctx))),
        ..EmbedSpec::plain(tokens)
    };
    reader.note("positions", format!("learned, {n_ctx}"), Origin::Family);
    let final_norm = (!store.norms_after).then(|| norm(&format!("{base}ln_f")));
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec::only(embed, blocks, final_norm);
    let head = HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab));
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(family, stack, Some(head))
    })
}

/// The first GPT's activation, under its own names; its `gelu` is the tanh form.
fn first_activation(reader: &mut Reader<'_>) -> Result<Activation> {
    const KEY: &str = "afn";
    let name = reader.word_or("activation", KEY, "gelu")?;
    match name.as_str() {
        "gelu" => Ok(Activation::GeluTanh),
        other => activation_named(reader, KEY, other),
    }
}
