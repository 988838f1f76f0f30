//! Reading habits that several families share: activations by name, tensor prefixes, head counts, rotary scaling.

use serde_json::Value;

use crate::attention::{AttentionSpec, RopeScaling, RopeSpec};
use crate::checkpoint::{Origin, Reader, Tensors};
use crate::error::{Error, Result};
use crate::model::NormSource;
use crate::ops::{Activation, NormKind};

/// Hugging Face's names of activation functions.
const ACTIVATIONS: &[(&str, Activation)] = &[
    ("gelu", Activation::Gelu),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("relu", Activation::Relu),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("tanh", Activation::Tanh),
];

/// Reads the activation function of the feed-forward layers.
///
/// # Errors
/// When the name is not known.
pub(super) fn activation(reader: &mut Reader<'_>, key: &str, default: &str) -> Result<Activation> {
    let name = reader.word_or("activation", key, default)?;
    ACTIVATIONS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, activation)| *activation)
        .ok_or_else(|| {
            let known: Vec<&str> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
            Error::config(
                reader.path(),
                key,
                format!("{name:?} is not known; known: {}", known.join(", ")),
            )
        })
}

/// The first prefix under which the probe tensor exists: checkpoints are saved with and without it.
pub(super) fn prefix<'a>(tensors: &Tensors, candidates: &[&'a str], probe: &str) -> &'a str {
    let found = candidates
        .iter()
        .find(|prefix| tensors.contains(&format!("{prefix}{probe}")));
    found.or(candidates.first()).copied().unwrap_or_default()
}

/// The first of some names that exists, or the first of them.
pub(super) fn either(tensors: &Tensors, names: [String; 2]) -> String {
    let [first, second] = names;
    if !tensors.contains(&first) && tensors.contains(&second) {
        second
    } else {
        first
    }
}

/// The tensor that unembeds: a stored head, or the embedding where the head is tied to it and not stored.
///
/// A head that is stored is used even when the configuration says that it is tied, as transformers does.
///
/// # Errors
/// When the configuration gives something other than a truth value.
pub(super) fn tied_head(
    reader: &mut Reader<'_>,
    tensors: &Tensors,
    heads: &[&str],
    embedding: &str,
    tied_by_default: bool,
) -> Result<String> {
    let is_tied = reader.flag_or("tied_unembedding", "tie_word_embeddings", tied_by_default)?;
    let stored = heads.iter().find(|name| tensors.contains(name));
    let chosen = match stored {
        Some(name) => (*name).to_owned(),
        None if is_tied => embedding.to_owned(),
        None => heads
            .first()
            .map_or(embedding.to_owned(), |name| (*name).to_owned()),
    };
    let origin = match (stored.is_some(), is_tied) {
        (true, _) => "stored in the file",
        (false, true) => "tied to the embedding",
        (false, false) => "untied, must be stored",
    };
    reader.note("unembedding", &chosen, Origin::Derived(origin.to_owned()));
    Ok(chosen)
}

/// A layer norm with weight and bias under `name`; the oldest checkpoints say gamma and beta.
pub(super) fn layer_norm(tensors: &Tensors, name: &str, width: usize, eps: f64) -> NormSource {
    let stored = |now: &str, once: &str| {
        Some(either(
            tensors,
            [format!("{name}.{now}"), format!("{name}.{once}")],
        ))
    };
    let (gain, bias) = (stored("weight", "gamma"), stored("bias", "beta"));
    NormSource {
        kind: NormKind::LayerNorm,
        eps: eps as f32,
        width,
        gain,
        bias,
    }
}

/// A norm by the root mean square.
pub(super) fn rms_norm(name: String, width: usize, eps: f64) -> NormSource {
    NormSource {
        kind: NormKind::RmsNorm,
        eps: eps as f32,
        width,
        gain: Some(name),
        bias: None,
    }
}

/// Reads the width of a head as d_model / n_heads, which must come out even.
///
/// # Errors
/// When it does not.
pub(super) fn even_heads(
    reader: &mut Reader<'_>,
    n_heads_key: &str,
    d_model: usize,
    n_heads: usize,
) -> Result<usize> {
    if !d_model.is_multiple_of(n_heads) {
        let problem = format!("{n_heads} heads do not divide a width of {d_model}");
        return Err(Error::config(reader.path(), n_heads_key, problem));
    }
    reader.note(
        "d_head",
        d_model / n_heads,
        Origin::Derived("d_model / n_heads".to_owned()),
    );
    Ok(d_model / n_heads)
}

/// Notes the knobs that the attention spec holds, and where its scale comes from.
pub(super) fn note_attention(reader: &mut Reader<'_>, spec: &AttentionSpec, scale: Origin) {
    reader.note("scale", spec.scale, scale);
    let factor = format!("{:.6}", spec.scale.factor(spec.d_head));
    reader.note("scale_factor", factor, Origin::Derived("scale".to_owned()));
    reader.note("softmax_axis", spec.softmax_axis, Origin::Family);
    reader.note("mask", spec.mask, Origin::Family);
}

/// Reads a rotary embedding: `rope_theta` with `rope_scaling` (v4), or `rope_parameters` (v5).
///
/// # Errors
/// When a value is missing or the scaling is of a kind that is not known.
pub(super) fn rope(reader: &mut Reader<'_>, d_head: usize, default_theta: f64) -> Result<RopeSpec> {
    let outer = match (
        reader.value("rope_parameters"),
        reader.value("rope_scaling"),
    ) {
        (Some(_), _) => Some("rope_parameters"),
        (None, Some(_)) => Some("rope_scaling"),
        (None, None) => None,
    };
    let parameters = outer.and_then(|outer| reader.value(outer));
    let inside = |key: &str| parameters.and_then(|p| p.get(key));
    let theta = match (outer, inside("rope_theta")) {
        (Some(outer), Some(_)) => reader.nested_number("rope_theta", outer, "rope_theta")?,
        _ => reader.number_or("rope_theta", "rope_theta", default_theta)?,
    };
    if theta <= 0.0 {
        return Err(Error::config(
            reader.path(),
            "rope_theta",
            format!("expected more than 0, found {theta}"),
        ));
    }
    let kind = inside("rope_type").or_else(|| inside("type"));
    let kind = match (kind, outer) {
        (None, _) | (_, None) => "default",
        (Some(Value::String(kind)), Some(_)) => kind,
        (Some(other), Some(outer)) => {
            let problem = format!("expected a string, found {other}");
            return Err(Error::config(
                reader.path(),
                format!("{outer}.rope_type"),
                problem,
            ));
        }
    };
    let origin = outer.map_or(Origin::Default("rope_scaling".to_owned()), |o| {
        Origin::Key(format!("{o}.rope_type"))
    });
    reader.note("rope_scaling", kind, origin);
    let scaling = match (kind, outer) {
        ("default", _) | (_, None) => RopeScaling::None,
        ("linear", Some(outer)) => RopeScaling::Linear {
            factor: positive(reader, "rope_factor", outer, "factor")?,
        },
        ("llama3", Some(outer)) => RopeScaling::Llama3 {
            factor: positive(reader, "rope_factor", outer, "factor")?,
            low_freq_factor: positive(reader, "rope_low_freq_factor", outer, "low_freq_factor")?,
            high_freq_factor: positive(reader, "rope_high_freq_factor", outer, "high_freq_factor")?,
            original_n_ctx: positive(
                reader,
                "rope_original_n_ctx",
                outer,
                "original_max_position_embeddings",
            )?,
        },
        (other, Some(outer)) => {
            let problem = format!("{other:?} is not known; known: default, linear, llama3");
            return Err(Error::config(
                reader.path(),
                format!("{outer}.rope_type"),
                problem,
            ));
        }
    };
    Ok(RopeSpec {
        theta,
        d_rotary: d_head,
        interleaved: false,
        scaling,
    })
}

fn positive(reader: &mut Reader<'_>, knob: &'static str, outer: &str, inner: &str) -> Result<f64> {
    let number = reader.nested_number(knob, outer, inner)?;
    if number <= 0.0 {
        let problem = format!("expected more than 0, found {number}");
        return Err(Error::config(
            reader.path(),
            format!("{outer}.{inner}"),
            problem,
        ));
    }
    Ok(number)
}
