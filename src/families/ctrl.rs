//! CTRL: sinusoidal positions on scaled embeddings, norms before the branches, relu, a head with biases.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec, PositionTable,
    ProjectionSpec, Sines, StackSpec, TableSource,
};

use super::Family;
use super::reading::{even_heads, layer_norm, linear, note_attention, prefix, tied_head};

pub const FAMILY: Family = Family::own("ctrl", "CTRL", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("n_layer")?;
    let n_heads = reader.size("n_heads", "n_head")?;
    let d_model = reader.size("d_model", "n_embd")?;
    let d_head = even_heads(reader, "n_head", d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "dff")?;
    let n_ctx = reader.size("n_ctx", "n_positions")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    // The norms of layers have a fixed epsilon; the configuration only sets that of the final norm.
    let last_eps = reader.number_or("last_norm_eps", "layer_norm_epsilon", 1e-6)?;
    let eps = 1e-6;
    reader.note("norm_eps", "1e-6", Origin::Family);
    reader.note("activation", "relu", Origin::Family);
    reader.note("positions", "sines and cosines", Origin::Family);
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, true);
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(tensors, &["transformer.", ""], "w.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}h.{layer_idx}");
        let one = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
        let own = |name: &str| one(&format!("multi_head_attention.{name}"), d_model, d_model);
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, eps));
        let mlp = MlpSpec::plain(
            one("ffn.0", d_model, d_mlp),
            one("ffn.2", d_mlp, d_model),
            Activation::Relu,
        );
        BlockSpec {
            attn_pre: norm("layernorm1"),
            mlp_pre: norm("layernorm2"),
            ..BlockSpec::plain(
                attention.clone(),
                ProjectionSpec::plain(own("Wq"), own("Wk"), own("Wv"), own("dense")),
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let tokens = TableSource {
        tensor: format!("{base}w.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens.tensor, true)?;
    let bias = Some("lm_head.bias".to_owned()).filter(|bias| tensors.contains(bias));
    let embed = EmbedSpec {
        scale: (d_model as f64).sqrt() as f32,
        positions: Some(PositionTable::Sinusoid(Sines::Halves)),
        ..EmbedSpec::plain(tokens)
    };
    let last = layer_norm(tensors, &format!("{base}layernorm"), d_model, last_eps);
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec::only(embed, blocks, Some(last));
    let head = HeadSpec::plain(LinearSource::whole(unembed, bias, d_model, d_vocab));
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, Some(head))
    })
}
