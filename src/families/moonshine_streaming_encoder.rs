//! The encoder of Moonshine Streaming: layers without positions, each of which sees a window of its own, over rows that convolutions make.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{BlockSpec, FeedForward, MlpSpec, ModelSpec, NormSource, ProjectionSpec};
use serde_json::Value;

use super::Family;
use super::reading::{activation, even_heads, given_rows, linear, note_attention, prefix};

pub const FAMILY: Family = Family::own(
    "moonshine_streaming_encoder",
    "MoonshineStreamingEncoder",
    read,
)
.leaving_unread(&["embedder.*"]);

/// The epsilon of all norms; no configuration states it.
const EPS: f64 = 1e-5;

/// The key of the windows, and their widths in the layers of the smallest model.
const WINDOWS: &str = "sliding_windows";
const USUAL: [[usize; 2]; 6] = [[16, 4], [16, 4], [16, 0], [16, 0], [16, 4], [16, 4]];

/// Reads the encoder, alone or inside the whole model.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEADS: &str = "num_attention_heads";
    const KV_HEADS: &str = "num_key_value_heads";
    let default = |key: &str| Origin::Default(key.to_owned());
    for key in ["frame_ms", "max_position_embeddings", "sample_rate"] {
        reader.value(key);
    }
    let n_layers = reader.layers("num_hidden_layers")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_heads = reader.size("n_heads", HEADS)?;
    let n_kv_heads = reader.size_or("n_kv_heads", KV_HEADS, 8, default(KV_HEADS))?;
    super::reading::check_groups(reader, n_heads, n_kv_heads, KV_HEADS)?;
    let even = even_heads(reader, HEADS, d_model, n_heads)?;
    let by = Origin::Derived("d_model / n_heads".to_owned());
    let d_head = reader.size_or("d_head", "head_dim", even, by)?;
    let act = activation(reader, "hidden_act", "gelu")?;
    let has_bias = reader.flag_or("qkv_bias", "attention_bias", false)?;
    let windows = windows(reader, n_layers)?;
    let plain = AttentionSpec::plain(n_heads, n_kv_heads, d_head, false);
    note_attention(reader, &plain, Origin::Family);
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    given_rows::remark(reader, "the convolutions over frames of samples");
    let tensors = &checkpoint.tensors;
    let base = prefix(
        tensors,
        &["model.encoder.", "encoder.", ""],
        "final_norm.gamma",
    );
    let norm = |name: &str| NormSource {
        adds_one: true,
        ..NormSource::new(
            NormKind::LayerNorm,
            EPS,
            d_model,
            Some(format!("{base}{name}.gamma")),
        )
    };
    let block = |layer_idx: usize| {
        let at = format!("layers.{layer_idx}");
        let map = |name: &str, n_in, n_out, has_bias| {
            linear(&format!("{base}{at}.{name}"), n_in, n_out, has_bias)
        };
        let inner = [n_heads, n_kv_heads].map(|n| n * d_head);
        let projections = ProjectionSpec::plain(
            map("self_attn.q_proj", d_model, inner[0], has_bias),
            map("self_attn.k_proj", d_model, inner[1], has_bias),
            map("self_attn.v_proj", d_model, inner[1], has_bias),
            map("self_attn.o_proj", inner[0], d_model, has_bias),
        );
        let mlp = MlpSpec::plain(
            map("mlp.fc1", d_model, d_mlp, true),
            map("mlp.fc2", d_mlp, d_model, true),
            act,
        );
        let mut attention = plain.clone();
        attention.mask.window = Some(windows[layer_idx]);
        BlockSpec {
            attn_pre: Some(norm(&format!("{at}.input_layernorm"))),
            mlp_pre: Some(norm(&format!("{at}.post_attention_layernorm"))),
            ..BlockSpec::plain(attention, projections, FeedForward::Dense(Box::new(mlp)))
        }
    };
    let first = format!("{base}layers.0.input_layernorm.gamma");
    let blocks = (0..n_layers).map(block).collect();
    let first = (first, d_model);
    Ok(given_rows::model(
        FAMILY.model_type,
        first,
        blocks,
        Some(norm("final_norm")),
    ))
}

/// The window of each layer: the keys up to the query, of which it is one, and one more than those behind it.
fn windows(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<Window>> {
    let wrong = |path: &std::path::Path, problem: String| Error::config(path, WINDOWS, problem);
    let stated = match reader.value(WINDOWS) {
        None => USUAL.to_vec(),
        Some(found) => {
            let pair = |pair: &Value| {
                let number = |nth: usize| Some(pair.get(nth)?.as_u64()? as usize);
                Some([number(0)?, number(1)?]).filter(|[back, _]| *back > 0)
            };
            let list = found.as_array().map(|all| all.iter().map(pair));
            let list = list.and_then(Iterator::collect::<Option<Vec<_>>>);
            let problem = format!("expected two numbers for each layer, found {found}");
            list.ok_or_else(|| wrong(reader.path(), problem))?
        }
    };
    if stated.len() < n_layers {
        let problem = format!(
            "expected windows of {n_layers} layers, found {}",
            stated.len()
        );
        return Err(wrong(reader.path(), problem));
    }
    let said: Vec<String> = stated
        .iter()
        .map(|[back, ahead]| format!("{back} back, {} ahead", ahead.saturating_sub(1)))
        .collect();
    reader.note("windows", said.join("; "), Origin::Key(WINDOWS.to_owned()));
    let window = |[back, ahead]: [usize; 2]| Window::Uneven {
        back: back - 1,
        ahead: ahead.saturating_sub(1),
    };
    Ok(stated.into_iter().take(n_layers).map(window).collect())
}
