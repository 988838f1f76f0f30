//! GPT-Neo: unscaled scores, and a window on the layers that are called local.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Scale, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec, PositionTable,
    ProjectionSpec, StackSpec, TableSource,
};

use super::Family;
use super::reading::{
    activation, even_heads, layer_norm, linear, note_attention, prefix, tied_head,
};

pub const FAMILY: Family = Family::own("gpt_neo", "GPTNeo", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("num_layers")?;
    let n_heads = reader.size("n_heads", "num_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_heads", d_model, n_heads)?;
    let four = Origin::Derived("4 d_model, no intermediate_size".to_owned());
    let d_mlp = reader.size_or("d_mlp", "intermediate_size", 4 * d_model, four)?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let eps = reader.number_or("norm_eps", "layer_norm_epsilon", 1e-5)?;
    let activation = activation(reader, "activation_function", "gelu_new")?;
    let default = Origin::Default("window_size".to_owned());
    let window = Window::Back(reader.size_or("window", "window_size", 256, default)?);
    let is_local = local_layers(reader, n_layers)?;
    let n_local = is_local.iter().filter(|local| **local).count();
    let text = format!("{n_local} of {n_layers}");
    reader.note(
        "windowed_layers",
        text,
        Origin::Key("attention_types".to_owned()),
    );
    let attention = AttentionSpec {
        scale: Scale::One,
        ..AttentionSpec::plain(n_heads, n_heads, d_head, true)
    };
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(tensors, &["transformer.", ""], "wte.weight");
    let block = |layer_idx: usize| {
        let at = format!("{base}h.{layer_idx}");
        let one = |name: &str, n_in, n_out, has_bias| {
            linear(&format!("{at}.{name}"), n_in, n_out, has_bias)
        };
        let mut spec = attention.clone();
        spec.mask.window = is_local[layer_idx].then_some(window);
        let projections = ProjectionSpec::plain(
            one("attn.attention.q_proj", d_model, d_model, false),
            one("attn.attention.k_proj", d_model, d_model, false),
            one("attn.attention.v_proj", d_model, d_model, false),
            one("attn.attention.out_proj", d_model, d_model, true),
        );
        let mlp = MlpSpec::plain(
            one("mlp.c_fc", d_model, d_mlp, true),
            one("mlp.c_proj", d_mlp, d_model, true),
            activation,
        );
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, eps));
        BlockSpec {
            attn_pre: norm("ln_1"),
            mlp_pre: norm("ln_2"),
            ..BlockSpec::plain(spec, projections, FeedForward::Dense(Box::new(mlp)))
        }
    };
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{base}{name}.weight"),
        n_rows,
        width: d_model,
    };
    let tokens = table("wte", d_vocab);
    let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens.tensor, true)?;
    let embed = EmbedSpec {
        positions: Some(PositionTable::Stored(table("wpe", n_ctx))),
        ..EmbedSpec::plain(tokens)
    };
    reader.note("positions", format!("learned, {n_ctx}"), Origin::Family);
    let final_norm = layer_norm(tensors, &format!("{base}ln_f"), d_model, eps);
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec::only(embed, blocks, Some(final_norm));
    let head = HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab));
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, Some(head))
    })
}

/// Which layers are local: from a list with one word per layer, or from `[[[words], times], …]`.
fn local_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    let words = match reader.words_by_layer("attention_layers", n_layers)? {
        Some(words) => {
            reader.value("attention_types");
            words
        }
        None => repeated(reader, n_layers)?,
    };
    let is_local = words.iter().map(|word| match word.as_str() {
        "local" => Ok(true),
        "global" => Ok(false),
        other => {
            let problem = format!("expected global or local, found {other:?}");
            Err(Error::config(reader.path(), "attention_types", problem))
        }
    });
    is_local.collect()
}

fn repeated(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<String>> {
    let parse = |value: &serde_json::Value| -> Option<Vec<String>> {
        let mut words = Vec::new();
        for group in value.as_array()? {
            let [kinds, times] = group.as_array()?.as_slice() else {
                return None;
            };
            let times = times.as_u64().filter(|n| *n <= n_layers as u64)?;
            let kinds = kinds.as_array()?;
            for kind in (0..times).flat_map(|_| kinds) {
                words.push(kind.as_str()?.to_owned());
            }
        }
        Some(words).filter(|words| words.len() == n_layers)
    };
    let value = reader.value("attention_types");
    value.and_then(parse).ok_or_else(|| {
        let problem = format!("expected [[[\"global\", \"local\"], times]] for {n_layers} layers");
        Error::config(reader.path(), "attention_types", problem)
    })
}
