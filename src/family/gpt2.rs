//! GPT-2: learned positions, norms before each branch, fused projections stored input-major.

use super::Family;
use super::reading::{activation, even_heads, layer_norm, note_attention, prefix, tied_head};
use crate::attention::{AttentionSpec, Scale};
use crate::checkpoint::{Checkpoint, Origin, Reader};
use crate::error::{Error, Result};
use crate::model::{
    BlockSpec, EmbedSpec, HeadSpec, LinearSource, MlpSpec, ModelSpec, Part, Stack, StackSpec,
    TableSource,
};

pub const FAMILY: Family = Family {
    model_type: "gpt2",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("n_layer")?;
    let n_heads = reader.size("n_heads", "n_head")?;
    let d_model = reader.size("d_model", "n_embd")?;
    let d_head = even_heads(reader, "n_head", d_model, n_heads)?;
    let d_mlp = reader.size_or(
        "d_mlp",
        "n_inner",
        4 * d_model,
        Origin::Derived("4 d_model, no n_inner".to_owned()),
    )?;
    let n_ctx = reader.size("n_ctx", "n_positions")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_epsilon", 1e-5)?;
    let activation = activation(reader, "activation_function", "gelu_new")?;
    if reader.flag_or("cross_attention", "add_cross_attention", false)? {
        let problem =
            "expected false: a gpt2 with cross-attention cannot be run on its own, found true";
        return Err(Error::config(reader.path(), "add_cross_attention", problem));
    }
    let is_scaled = reader.flag_or("scaled_scores", "scale_attn_weights", true)?;
    let by_layer = reader.flag_or("scaled_by_layer", "scale_attn_by_inverse_layer_idx", false)?;

    let attention = AttentionSpec {
        scale: if is_scaled {
            Scale::InvSqrtD
        } else {
            Scale::One
        },
        ..AttentionSpec::plain(n_heads, n_heads, d_head, true)
    };
    let scale_origin = match (is_scaled, by_layer) {
        (_, true) => Origin::Derived("layer 0 of scale / (layer + 1)".to_owned()),
        (false, _) => Origin::Key("scale_attn_weights".to_owned()),
        (true, _) => Origin::Family,
    };
    note_attention(reader, &attention, scale_origin);
    let scale = |layer_idx: usize| match by_layer {
        false => attention.scale,
        true => Scale::Factor(attention.scale.factor(d_head) / (layer_idx + 1) as f32),
    };

    let base = prefix(tensors, &["transformer.", ""], "wte.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}h.{layer_idx}");
        let linear = |name: &str, n_in, n_out| {
            LinearSource::whole(
                format!("{at}.{name}.weight"),
                Some(format!("{at}.{name}.bias")),
                n_in,
                n_out,
            )
            .input_major()
        };
        let fused = |third: usize| {
            let part = Part {
                group: 3 * d_model,
                offset: third * d_model,
                len: d_model,
            };
            linear("attn.c_attn", d_model, 3 * d_model).part(part)
        };
        BlockSpec {
            attention: AttentionSpec {
                scale: scale(layer_idx),
                ..attention.clone()
            },
            q: fused(0),
            k: fused(1),
            v: fused(2),
            o: linear("attn.c_proj", d_model, d_model),
            attn_pre: Some(layer_norm(tensors, &format!("{at}.ln_1"), d_model, eps)),
            attn_out: None,
            attn_post: None,
            mlp: MlpSpec {
                up: linear("mlp.c_fc", d_model, d_mlp),
                gate: None,
                down: linear("mlp.c_proj", d_mlp, d_model),
                activation,
            },
            mlp_pre: Some(layer_norm(tensors, &format!("{at}.ln_2"), d_model, eps)),
            mlp_out: None,
            mlp_post: None,
            is_parallel: false,
        }
    };
    let tokens = format!("{base}wte.weight");
    let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens, true)?;
    let stack = StackSpec {
        stack: Stack::Only,
        embed: EmbedSpec {
            tokens: TableSource {
                tensor: tokens,
                n_rows: d_vocab,
                offset: 0,
            },
            positions: Some(TableSource {
                tensor: format!("{base}wpe.weight"),
                n_rows: n_ctx,
                offset: 0,
            }),
            token_types: None,
            norm: None,
        },
        blocks: (0..n_layers).map(block).collect(),
        final_norm: Some(layer_norm(tensors, &format!("{base}ln_f"), d_model, eps)),
    };
    reader.note("positions", format!("learned, {n_ctx}"), Origin::Family);
    Ok(ModelSpec {
        family: FAMILY.model_type,
        d_model,
        d_vocab,
        n_ctx: Some(n_ctx),
        stacks: vec![stack],
        head: Some(HeadSpec {
            transform: None,
            unembed: LinearSource::whole(unembed, None, d_model, d_vocab),
        }),
        is_causal_lm: true,
        knobs: Vec::new(),
        unread_keys: Vec::new(),
    })
}
