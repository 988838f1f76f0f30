//! The resampler of Idefics 2: learned latents see the rows of a tower of pictures and each other in one softmax. The rows are given.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, KeyGrid, KeysOfBoth, MlpSpec, ModelSpec, ProjectionSpec,
    Stack, StackSpec, TableSource,
};

use super::Family;
use super::reading::{activation, check_groups, given_rows, linear, note_attention, rms_norm};

pub const FAMILY: Family = Family::own("idefics2_perceiver", "Idefics2Perceiver", read);

/// Feed-forward layers are so many times as wide as rows.
const TIMES: usize = 4;

fn read(_: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const DEPTH: &str = "resampler_depth";
    const GROUPS: &str = "num_key_value_heads";
    let default = |key: &str| Origin::Default(key.to_owned());
    let mut size = |knob, key: &str, usual| reader.size_or(knob, key, usual, default(key));
    let d_model = size("d_model", "hidden_size", 4096)?;
    let n_latents = size("n_latents", "resampler_n_latents", 64)?;
    let n_heads = size("n_heads", "resampler_n_heads", 16)?;
    let d_head = size("d_head", "resampler_head_dim", 96)?;
    let n_kv_heads = size("n_kv_heads", GROUPS, 4)?;
    let n_layers = match reader.value(DEPTH) {
        Some(_) => reader.layers(DEPTH)?,
        None => reader.size_or("n_layers", DEPTH, 3, default(DEPTH))?,
    };
    check_groups(reader, n_heads, n_kv_heads, GROUPS)?;
    let eps = reader.number_or("norm_eps", "rms_norm_eps", 1e-6)?;
    let act = activation(reader, "hidden_act", "silu")?;
    let d_mlp = d_model.saturating_mul(TIMES);
    let attention = AttentionSpec {
        is_cross: true,
        ..AttentionSpec::plain(n_heads, n_kv_heads, d_head, false)
    };
    note_attention(reader, &attention, Origin::Family);
    reader.note(
        "keys",
        "the rows of the encoder, and the latents behind them",
        Origin::Family,
    );
    let block = |layer_idx: usize| {
        let at = format!("layers.{layer_idx}");
        let norm = |name: &str| rms_norm(format!("{at}.{name}.weight"), d_model, eps);
        let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, false);
        let of_heads = |name: &str, n: usize| map(name, d_model, n * d_head);
        let maps = ProjectionSpec {
            key_grid: Some(Box::new(KeyGrid::OfBoth(KeysOfBoth {
                norm: norm("input_context_norm"),
            }))),
            ..ProjectionSpec::plain(
                of_heads("self_attn.q_proj", n_heads),
                of_heads("self_attn.k_proj", n_kv_heads),
                of_heads("self_attn.v_proj", n_kv_heads),
                map("self_attn.o_proj", n_heads * d_head, d_model),
            )
        };
        let mlp = MlpSpec {
            gate: Some(map("mlp.gate_proj", d_model, d_mlp)),
            ..MlpSpec::plain(
                map("mlp.up_proj", d_model, d_mlp),
                map("mlp.down_proj", d_mlp, d_model),
                act,
            )
        };
        BlockSpec {
            attn_pre: Some(norm("input_latents_norm")),
            mlp_pre: Some(norm("post_attention_layernorm")),
            ..BlockSpec::plain(attention.clone(), maps, FeedForward::Dense(Box::new(mlp)))
        }
    };
    let latents = EmbedSpec::plain(TableSource {
        tensor: "latents".to_owned(),
        n_rows: n_latents,
        width: d_model,
    });
    let blocks = (0..n_layers).map(block).collect();
    let last = rms_norm("norm.weight".to_owned(), d_model, eps);
    let decoder = StackSpec {
        stack: Stack::Decoder,
        ..StackSpec::only(latents, blocks, Some(last))
    };
    given_rows::remark(reader, "a tower of pictures and the map behind it");
    let first = "layers.0.self_attn.k_proj.weight".to_owned();
    let encoder = given_rows::encoder(first, d_model);
    let stacks = [encoder, decoder];
    Ok(given_rows::of_numbers(
        FAMILY.model_type,
        reader,
        "latents",
        stacks,
    ))
}
