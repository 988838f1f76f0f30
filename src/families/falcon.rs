//! Falcon: one key head for all queries (7b), key heads for groups (40b), or one per query; rotary or ALiBi.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{Alibi, AttentionSpec, Bias};
use attnscope_compute::error::Result;
use attnscope_prompt::PositionRule;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec, ProjectionSpec,
    StackSpec, TableSource,
};

use super::Family;
use super::reading::rope::{RopeRule, rope};
use super::reading::{
    activation, check_groups, even_heads, grouped, layer_norm, linear, note_attention, note_bias,
    prefix, stacked, tied_head,
};

pub const FAMILY: Family = Family::own("falcon", "Falcon", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = {
        let keys = ["num_hidden_layers", "n_layer"];
        let key = keys.into_iter().find(|key| reader.value(key).is_some());
        reader.layers(key.unwrap_or(keys[0]))?
    };
    let n_heads = reader.either_size("n_heads", ["num_attention_heads", "n_head"])?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let is_grouped = reader.flag_or("grouped_keys", "new_decoder_architecture", false)?;
    let shares_key = reader.flag_or("multi_query", "multi_query", true)?;
    let n_kv_heads = match (is_grouped, shares_key) {
        (true, _) => {
            let same = Origin::Derived("n_heads, no num_kv_heads".to_owned());
            let key = match reader.value("n_head_kv") {
                Some(_) => "n_head_kv",
                None => "num_kv_heads",
            };
            reader.size_or("n_kv_heads", key, n_heads, same)?
        }
        (false, true) => 1,
        (false, false) => n_heads,
    };
    reader.value("num_kv_heads");
    check_groups(reader, n_heads, n_kv_heads, "num_kv_heads")?;
    let four = Origin::Derived("4 d_model, no ffn_hidden_size".to_owned());
    let d_mlp = reader.size_or("d_mlp", "ffn_hidden_size", 4 * d_model, four)?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_epsilon", 1e-5)?;
    let activation = activation(reader, "activation", "gelu")?;
    let has_bias = reader.flag_or("has_bias", "bias", false)?;
    let is_parallel = is_grouped || reader.flag_or("parallel_branches", "parallel_attn", true)?;
    let default = if is_grouped { 2 } else { 1 };
    let n_norms = reader.count_or("n_norms_of_branches", "num_ln_in_parallel_attn", default)?;
    let default = Origin::Default("max_position_embeddings".to_owned());
    let n_ctx = reader.size_or("n_ctx", "max_position_embeddings", 2048, default)?;
    let is_alibi = reader.flag_or("alibi", "alibi", false)?;
    let mut attention = AttentionSpec::plain(n_heads, n_kv_heads, d_head, true);
    if is_alibi {
        attention.bias = Bias::Alibi(Alibi {
            is_scaled: true,
            rounds_to_bf16: true,
            ..Alibi::new(n_heads, 8.0)
        });
        note_bias(reader, "alibi, scaled with the scores, rounded to bf16");
    } else {
        attention.rope = Some(rope(reader, RopeRule::plain(d_head, n_ctx))?);
    }
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(tensors, &["transformer.", ""], "word_embeddings.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}h.{layer_idx}");
        let one = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, has_bias);
        let widths = [n_heads, n_kv_heads, n_kv_heads].map(|n| n * d_head);
        let fused = one(
            "self_attention.query_key_value",
            d_model,
            widths.iter().sum(),
        );
        let [q, k, v] = match (is_grouped, shares_key) {
            (false, true) => stacked(&fused, widths),
            _ => grouped(&fused, n_heads / n_kv_heads, d_head),
        };
        let o = one("self_attention.dense", widths[0], d_model);
        let mlp = MlpSpec::plain(
            one("mlp.dense_h_to_4h", d_model, d_mlp),
            one("mlp.dense_4h_to_h", d_mlp, d_model),
            activation,
        );
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, eps));
        let (attn_norm, mlp_norm) = match (is_parallel, n_norms) {
            (true, 2) => ("ln_attn", "ln_mlp"),
            (true, _) => ("input_layernorm", "input_layernorm"),
            (false, _) => ("input_layernorm", "post_attention_layernorm"),
        };
        BlockSpec {
            attn_pre: norm(attn_norm),
            mlp_pre: norm(mlp_norm),
            is_parallel,
            ..BlockSpec::plain(
                attention.clone(),
                ProjectionSpec::plain(q, k, v, o),
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let tokens = TableSource {
        tensor: format!("{base}word_embeddings.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens.tensor, true)?;
    let final_norm = layer_norm(tensors, &format!("{base}ln_f"), d_model, eps);
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec::only(EmbedSpec::plain(tokens), blocks, Some(final_norm));
    let head = HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab));
    Ok(ModelSpec {
        n_ctx: (!is_alibi).then_some(n_ctx),
        positions: if is_alibi {
            PositionRule::RealTokens { first: 0 }
        } else {
            PositionRule::Index
        },
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, Some(head))
    })
}
