//! Phi 1–2: part of each head rotates, branches run side by side under one layer norm, biases everywhere.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec, ProjectionSpec,
    StackSpec, TableSource,
};

use super::Family;
use super::reading::rope::{RopeRule, rope};
use super::reading::{
    activation, check_groups, even_heads, layer_norm, linear, note_attention, prefix, tied_head,
};

pub const FAMILY: Family = Family::own("phi", "Phi", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let same = Origin::Derived("n_heads, no num_key_value_heads".to_owned());
    let n_kv_heads = reader.size_or("n_kv_heads", "num_key_value_heads", n_heads, same)?;
    check_groups(reader, n_heads, n_kv_heads, "num_key_value_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-5)?;
    let activation = activation(reader, "hidden_act", "gelu_new")?;
    let has_qk_norm = reader.flag_or("qk_norm", "qk_layernorm", false)?;
    let rule = RopeRule {
        share: 0.5,
        share_key: Some("partial_rotary_factor"),
        ..RopeRule::plain(d_head, n_ctx)
    };
    let attention = AttentionSpec {
        rope: Some(rope(reader, rule)?),
        ..AttentionSpec::plain(n_heads, n_kv_heads, d_head, true)
    };
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(tensors, &["model.", ""], "embed_tokens.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let one = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
        let of_heads = |name: &str| {
            has_qk_norm.then(|| layer_norm(tensors, &format!("{at}.self_attn.{name}"), d_head, eps))
        };
        let (d_q, d_kv) = (n_heads * d_head, n_kv_heads * d_head);
        let projections = ProjectionSpec {
            q_norm: of_heads("q_layernorm"),
            k_norm: of_heads("k_layernorm"),
            ..ProjectionSpec::plain(
                one("self_attn.q_proj", d_model, d_q),
                one("self_attn.k_proj", d_model, d_kv),
                one("self_attn.v_proj", d_model, d_kv),
                one("self_attn.dense", d_q, d_model),
            )
        };
        let mlp = MlpSpec::plain(
            one("mlp.fc1", d_model, d_mlp),
            one("mlp.fc2", d_mlp, d_model),
            activation,
        );
        let norm = Some(layer_norm(
            tensors,
            &format!("{at}.input_layernorm"),
            d_model,
            eps,
        ));
        BlockSpec {
            attn_pre: norm.clone(),
            mlp_pre: norm,
            is_parallel: true,
            ..BlockSpec::plain(
                attention.clone(),
                projections,
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let tokens = TableSource {
        tensor: format!("{base}embed_tokens.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens.tensor, false)?;
    let bias = Some("lm_head.bias".to_owned());
    let final_norm = layer_norm(tensors, &format!("{base}final_layernorm"), d_model, eps);
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec::only(EmbedSpec::plain(tokens), blocks, Some(final_norm));
    let head = HeadSpec::plain(LinearSource::whole(unembed, bias, d_model, d_vocab));
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, Some(head))
    })
}
