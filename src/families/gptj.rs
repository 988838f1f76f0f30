//! GPT-J: the first dimensions of each head rotate in interleaved pairs; branches run side by side under one norm.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, RopeSpec};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec, Part,
    ProjectionSpec, StackSpec, TableSource,
};

use super::Family;
use super::reading::{
    activation, even_heads, layer_norm, linear, note_attention, prefix, tied_head,
};

pub const FAMILY: Family = Family::own("gptj", "GPTJ", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    read_stored(checkpoint, reader, FAMILY.model_type, false)
}

/// Reads GPT-J, or CodeGen, which fuses queries, values and keys in one tensor of four parts, each with a quarter of all heads.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_stored(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    family: &'static str,
    is_fused: bool,
) -> Result<ModelSpec> {
    /// Number of parts of the fused tensor, one per device in training.
    const N_PARTS: usize = 4;
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("n_layer")?;
    let n_heads = reader.size("n_heads", "n_head")?;
    let d_model = reader.size("d_model", "n_embd")?;
    let d_head = even_heads(reader, "n_head", d_model, n_heads)?;
    let four = Origin::Derived("4 d_model, no n_inner".to_owned());
    let d_mlp = reader.size_or("d_mlp", "n_inner", 4 * d_model, four)?;
    let n_ctx = reader.size("n_ctx", "n_positions")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_epsilon", 1e-5)?;
    let activation = activation(reader, "activation_function", "gelu_new")?;
    let all = Origin::Derived("d_head, no rotary_dim".to_owned());
    let d_rotary = reader.size_or("d_rotary", "rotary_dim", d_head, all)?;
    if d_rotary % 2 != 0 || d_rotary > d_head {
        let problem = format!("expected an even number up to {d_head}, found {d_rotary}");
        return Err(Error::config(reader.path(), "rotary_dim", problem));
    }
    reader.note(
        "positions",
        "rotary, interleaved, base 10000",
        Origin::Family,
    );
    let attention = AttentionSpec {
        rope: Some(RopeSpec {
            interleaved: true,
            ..RopeSpec::plain(10_000.0, d_rotary)
        }),
        ..AttentionSpec::plain(n_heads, n_heads, d_head, true)
    };
    note_attention(reader, &attention, Origin::Family);

    if is_fused && (d_model % N_PARTS != 0 || n_heads % N_PARTS != 0) {
        let problem = format!("expected a multiple of {N_PARTS} heads, found {n_heads}");
        return Err(Error::config(reader.path(), "n_head", problem));
    }
    let base = prefix(tensors, &["transformer.", ""], "wte.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}h.{layer_idx}");
        let one = |name: &str| linear(&format!("{at}.attn.{name}"), d_model, d_model, false);
        let [q, k, v] = if is_fused {
            let fused = linear(&format!("{at}.attn.qkv_proj"), d_model, 3 * d_model, false);
            let len = d_model / N_PARTS;
            [0, 2, 1].map(|nth| {
                fused.clone().part(Part {
                    group: 3 * len,
                    offset: nth * len,
                    len,
                })
            })
        } else {
            [one("q_proj"), one("k_proj"), one("v_proj")]
        };
        let projections = ProjectionSpec::plain(q, k, v, one("out_proj"));
        let mlp = MlpSpec::plain(
            linear(&format!("{at}.mlp.fc_in"), d_model, d_mlp, true),
            linear(&format!("{at}.mlp.fc_out"), d_mlp, d_model, true),
            activation,
        );
        let norm = Some(layer_norm(tensors, &format!("{at}.ln_1"), d_model, eps));
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
        tensor: format!("{base}wte.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens.tensor, false)?;
    let bias = Some("lm_head.bias".to_owned()).filter(|bias| tensors.contains(bias));
    let final_norm = layer_norm(tensors, &format!("{base}ln_f"), d_model, eps);
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec::only(EmbedSpec::plain(tokens), blocks, Some(final_norm));
    let head = HeadSpec::plain(LinearSource::whole(unembed, bias, d_model, d_vocab));
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(family, stack, Some(head))
    })
}
