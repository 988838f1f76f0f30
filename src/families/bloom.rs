//! BLOOM: ALiBi, a norm on the embeddings, fused projections per head.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{Alibi, AttentionSpec, Bias};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_prompt::PositionRule;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec, ProjectionSpec,
    StackSpec, TableSource,
};

use super::Family;
use super::reading::{
    even_heads, grouped, layer_norm, linear, note_attention, note_bias, prefix, tied_head,
};

pub const FAMILY: Family = Family::own("bloom", "Bloom", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = {
        let key = ["n_layer", "num_hidden_layers"]
            .into_iter()
            .find(|key| reader.value(key).is_some());
        reader.layers(key.unwrap_or("n_layer"))?
    };
    let n_heads = reader.either_size("n_heads", ["n_head", "num_attention_heads"])?;
    let d_model = reader.either_size("d_model", ["hidden_size", "n_embed"])?;
    let d_head = even_heads(reader, "n_head", d_model, n_heads)?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_epsilon", 1e-5)?;
    let key = "apply_residual_connection_post_layernorm";
    let adds_to_normed = reader.flag_or("adds_to_normed", key, false)?;
    // With sums by rank, transformers leaves out the biases.
    let is_by_rank = reader.flag_or("sums_by_rank", "slow_but_exact", false)?
        && reader.count_or("n_ranks", "pretraining_tp", 1)? > 1;
    reader.note("activation", "gelu, tanh form", Origin::Family);
    let attention = AttentionSpec {
        bias: Bias::Alibi(Alibi::new(n_heads, 8.0)),
        ..AttentionSpec::plain(n_heads, n_heads, d_head, true)
    };
    note_attention(reader, &attention, Origin::Family);
    note_bias(reader, "alibi, over real tokens");

    let base = prefix(tensors, &["transformer.", ""], "word_embeddings.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}h.{layer_idx}");
        let one = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
        let fused = one("self_attention.query_key_value", d_model, 3 * d_model);
        let [q, k, v] = grouped(&fused, 1, d_head);
        let last = |name: &str, n_in| linear(&format!("{at}.{name}"), n_in, d_model, !is_by_rank);
        let o = last("self_attention.dense", d_model);
        let mlp = MlpSpec::plain(
            one("mlp.dense_h_to_4h", d_model, 4 * d_model),
            last("mlp.dense_4h_to_h", 4 * d_model),
            Activation::GeluTanh,
        );
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, eps));
        BlockSpec {
            attn_pre: norm("input_layernorm"),
            mlp_pre: norm("post_attention_layernorm"),
            adds_to_normed,
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
    let of_embedding = format!("{base}word_embeddings_layernorm");
    let embed = EmbedSpec {
        norm: Some(layer_norm(tensors, &of_embedding, d_model, eps)),
        ..EmbedSpec::plain(tokens)
    };
    let final_norm = layer_norm(tensors, &format!("{base}ln_f"), d_model, eps);
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec::only(embed, blocks, Some(final_norm));
    let head = HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab));
    Ok(ModelSpec {
        positions: PositionRule::RealTokens { first: 0 },
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, Some(head))
    })
}
