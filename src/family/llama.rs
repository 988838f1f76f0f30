//! Llama 1–3: rotary positions, grouped keys and values, norms by root mean square, a gated feed-forward layer.

use super::Family;
use super::reading::{activation, note_attention, prefix, rms_norm, rope, tied_head};
use crate::attention::AttentionSpec;
use crate::checkpoint::{Checkpoint, Origin, Reader};
use crate::error::{Error, Result};
use crate::model::{
    BlockSpec, EmbedSpec, HeadSpec, LinearSource, MlpSpec, ModelSpec, Stack, StackSpec, TableSource,
};

pub const FAMILY: Family = Family {
    model_type: "llama",
    read,
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let same = Origin::Derived("n_heads, no num_key_value_heads".to_owned());
    let n_kv_heads = reader.size_or("n_kv_heads", "num_key_value_heads", n_heads, same)?;
    if n_heads % n_kv_heads != 0 {
        let problem = format!("{n_kv_heads} kv heads do not divide {n_heads} heads");
        return Err(Error::config(reader.path(), "num_key_value_heads", problem));
    }
    let d_model = reader.size("d_model", "hidden_size")?;
    let split = Origin::Derived("d_model / n_heads, no head_dim".to_owned());
    let d_head = reader.size_or("d_head", "head_dim", (d_model / n_heads).max(1), split)?;
    if d_head % 2 != 0 {
        let problem = format!("expected an even width to rotate, found {d_head}");
        return Err(Error::config(reader.path(), "head_dim", problem));
    }
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_ctx = reader.size_or(
        "n_ctx",
        "max_position_embeddings",
        2048,
        Origin::Default("max_position_embeddings".to_owned()),
    )?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "rms_norm_eps", 1e-6)?;
    let activation = activation(reader, "hidden_act", "silu")?;
    let has_attention_bias = reader.flag_or("attention_bias", "attention_bias", false)?;
    let has_mlp_bias = reader.flag_or("mlp_bias", "mlp_bias", false)?;
    let rope = rope(reader, d_head, 10_000.0)?;
    let attention = AttentionSpec {
        rope: Some(rope),
        ..AttentionSpec::plain(n_heads, n_kv_heads, d_head, true)
    };
    note_attention(reader, &attention, Origin::Family);
    reader.note("positions", "rotary, halves", Origin::Family);

    let base = prefix(tensors, &["model.", ""], "embed_tokens.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let linear = |name: &str, n_in, n_out, has_bias: bool| {
            let bias = has_bias.then(|| format!("{at}.{name}.bias"));
            LinearSource::whole(format!("{at}.{name}.weight"), bias, n_in, n_out)
        };
        let projection = |name: &str, n| linear(name, d_model, n * d_head, has_attention_bias);
        BlockSpec {
            attention: attention.clone(),
            q: projection("self_attn.q_proj", n_heads),
            k: projection("self_attn.k_proj", n_kv_heads),
            v: projection("self_attn.v_proj", n_kv_heads),
            o: linear(
                "self_attn.o_proj",
                n_heads * d_head,
                d_model,
                has_attention_bias,
            ),
            attn_pre: Some(rms_norm(
                format!("{at}.input_layernorm.weight"),
                d_model,
                eps,
            )),
            attn_out: None,
            attn_post: None,
            mlp: MlpSpec {
                up: linear("mlp.up_proj", d_model, d_mlp, has_mlp_bias),
                gate: Some(linear("mlp.gate_proj", d_model, d_mlp, has_mlp_bias)),
                down: linear("mlp.down_proj", d_mlp, d_model, has_mlp_bias),
                activation,
            },
            mlp_pre: Some(rms_norm(
                format!("{at}.post_attention_layernorm.weight"),
                d_model,
                eps,
            )),
            mlp_out: None,
            mlp_post: None,
            is_parallel: false,
        }
    };
    let tokens = format!("{base}embed_tokens.weight");
    let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens, false)?;
    let stack = StackSpec {
        stack: Stack::Only,
        embed: EmbedSpec {
            tokens: TableSource {
                tensor: tokens,
                n_rows: d_vocab,
                offset: 0,
            },
            positions: None,
            token_types: None,
            norm: None,
        },
        blocks: (0..n_layers).map(block).collect(),
        final_norm: Some(rms_norm(format!("{base}norm.weight"), d_model, eps)),
    };
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
