//! The encoder of GLM-ASR: Whisper's convolutions, then blocks that turn half of each query and key by position.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, MlpSpec, ModelSpec, ProjectionSpec, StackSpec, TableSource,
};

use super::Family;
use super::reading::rope::{RopeRule, rope};
use super::reading::speech::sound_rule;
use super::reading::{activation, even_heads, layer_norm, linear, note_attention, prefix};
use super::whisper::{STRIDES, stem};

pub const FAMILY: Family = Family::own("glmasr_encoder", "GlmAsrEncoder", read);

/// Fixed; no configuration states it.
const EPS: f64 = 1e-5;

/// The share of a head that turns, if the configuration does not state it.
const TURNING: f64 = 0.5;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let same = Origin::Derived("n_heads".to_owned());
    let n_kv_heads = reader.size_or("n_kv_heads", "num_key_value_heads", n_heads, same)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_mels = reader.size("n_mels", "num_mel_bins")?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let activation = activation(reader, "hidden_act", "gelu")?;
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    let rule = RopeRule {
        share: TURNING,
        share_key: Some("partial_rotary_factor"),
        ..RopeRule::plain(d_head, n_ctx)
    };
    let attention = AttentionSpec {
        rope: Some(rope(reader, rule)?),
        ..AttentionSpec::plain(n_heads, n_kv_heads, d_head, false)
    };
    note_attention(reader, &attention, Origin::Family);
    let base = prefix(
        tensors,
        &["model.audio_tower.", "audio_tower.", ""],
        "conv1.weight",
    );
    let apart = STRIDES.iter().product();
    let rule = sound_rule(checkpoint, reader, n_mels, [n_ctx, apart])?;
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let map = |name: &str, n_in, n_out, has_bias| {
            linear(&format!("{at}.{name}"), n_in, n_out, has_bias)
        };
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, EPS));
        let d_kv = n_kv_heads * d_head;
        let projections = ProjectionSpec::plain(
            map("self_attn.q_proj", d_model, d_model, true),
            map("self_attn.k_proj", d_model, d_kv, false),
            map("self_attn.v_proj", d_model, d_kv, true),
            map("self_attn.o_proj", d_model, d_model, true),
        );
        let mlp = MlpSpec::plain(
            map("mlp.fc1", d_model, d_mlp, true),
            map("mlp.fc2", d_mlp, d_model, true),
            activation,
        );
        BlockSpec {
            attn_pre: norm("input_layernorm"),
            mlp_pre: norm("post_attention_layernorm"),
            ..BlockSpec::plain(
                attention.clone(),
                projections,
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let places = TableSource {
        tensor: format!("{base}conv1.weight"),
        n_rows: n_ctx,
        width: d_model,
    };
    let embed = EmbedSpec {
        sound: Some(Box::new(stem(base, d_model, rule))),
        ..EmbedSpec::plain(places)
    };
    let last = layer_norm(tensors, &format!("{base}norm"), d_model, EPS);
    let stack = StackSpec::only(embed, (0..n_layers).map(block).collect(), Some(last));
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, None)
    })
}
