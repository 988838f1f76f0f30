//! Helpers that several families share: activations by name, tensor prefixes, head counts, norms, windows.

pub(super) mod bart_like;
mod bart_recipe;
pub(super) mod bert_like;
mod bert_recipe;
pub(super) mod bias_rule;
pub(super) mod chained;
pub(super) mod conformer;
pub(super) mod deberta_like;
pub(super) mod delta;
pub mod described;
pub(super) mod expected;
pub(super) mod experts;
pub(super) mod extractor;
pub(super) mod fast_conformer;
pub(super) mod given_rows;
pub(super) mod global_tokens;
mod head_norms;
pub(super) mod hiera_like;
pub(super) mod hybrid;
pub(super) mod hyper;
pub(super) mod indexer;
pub(super) mod key_sharing;
pub(super) mod latent;
pub(super) mod latent_recipe;
mod latent_sharing;
mod latent_widths;
pub(super) mod llama_like;
pub(super) mod masked_head;
pub(super) mod overlapping;
pub(super) mod processor;
mod processor_sizes;
mod processor_steps;
mod processors;
mod projections;
pub(super) mod pyramid_like;
pub(super) mod recipe;
pub(super) mod rope;
mod rotation;
mod sizes;
pub(super) mod sound_writer;
pub(super) mod spectrograms;
pub(super) mod speech;
pub(super) mod state_space;
pub(super) mod swin_like;
pub(super) mod task_rules;
pub(super) mod tasks;
pub(super) mod torch_layers;
pub(super) mod torch_lstm;
pub(super) mod two_names;
pub(super) mod typed_rotation;
mod vit_blocks;
pub(super) mod vit_like;
mod vit_pictures;
mod vit_places;
pub(super) mod vqgan_like;
pub(super) mod wave_like;
mod wave_positions;
pub(super) mod windowed;
pub(super) mod windows;

pub(super) use sizes::equal_heads;

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_spec::{LinearSource, NormSource, Part};

/// Hugging Face's names of activation functions.
const ACTIVATIONS: &[(&str, Activation)] = &[
    ("gelu", Activation::Gelu),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_python", Activation::Gelu),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("identity", Activation::Identity),
    ("leaky_relu", Activation::LeakyRelu),
    ("quick_gelu", Activation::QuickGelu),
    ("relu", Activation::Relu),
    ("relu2", Activation::ReluSquared),
    ("sigmoid", Activation::Sigmoid),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("tanh", Activation::Tanh),
];

/// Whether an activation function of this name is known.
pub(super) fn is_activation(name: &str) -> bool {
    ACTIVATIONS.iter().any(|(known, _)| *known == name)
}

/// An activation function by Hugging Face's name; `None` for a name that is not known.
pub(super) fn activation_by_name(name: &str) -> Option<Activation> {
    let known = ACTIVATIONS.iter().find(|(known, _)| *known == name);
    known.map(|(_, activation)| *activation)
}

/// Reads the activation function of the feed-forward layers.
///
/// # Errors
/// When the name is not known.
pub(super) fn activation(reader: &mut Reader<'_>, key: &str, default: &str) -> Result<Activation> {
    let name = reader.word_or("activation", key, default)?;
    activation_named(reader, key, &name)
}

/// An activation function by Hugging Face's name.
///
/// # Errors
/// When the name is not known.
pub(super) fn activation_named(reader: &Reader<'_>, key: &str, name: &str) -> Result<Activation> {
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

/// The first prefix for which the probe tensor exists: checkpoints are saved with and without a prefix.
pub(super) fn prefix<'a>(tensors: &Tensors, candidates: &[&'a str], probe: &str) -> &'a str {
    let found = candidates
        .iter()
        .find(|prefix| tensors.contains(&format!("{prefix}{probe}")));
    found.or(candidates.first()).copied().unwrap_or_default()
}

/// As [`prefix`], also where the model is the encoder of another.
pub(super) fn prefix_of_encoder<'a>(
    tensors: &Tensors,
    candidates: &[&'a str],
    probe: &str,
) -> &'a str {
    const INSIDE: &str = "encoder.";
    let found = prefix(tensors, candidates, probe);
    let is_there = |at: &str| tensors.contains(&format!("{at}{probe}"));
    if !is_there(found) && is_there(INSIDE) {
        INSIDE
    } else {
        found
    }
}

/// The second name if only that one exists, otherwise the first.
pub(super) fn either(tensors: &Tensors, names: [String; 2]) -> String {
    let [first, second] = names;
    if !tensors.contains(&first) && tensors.contains(&second) {
        second
    } else {
        first
    }
}

/// Reads the unembedding: a stored head, or the token table if the head is tied and not stored.
///
/// Like transformers, uses a stored head even if the configuration says that it is tied.
///
/// # Errors
/// When the configuration's value is not true or false.
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

/// A LayerNorm with weight and bias under `name`; the oldest checkpoints call them gamma and beta.
pub(super) fn layer_norm(tensors: &Tensors, name: &str, width: usize, eps: f64) -> NormSource {
    let stored = |now: &str, once: &str| {
        either(tensors, [format!("{name}.{now}"), format!("{name}.{once}")])
    };
    NormSource {
        bias: Some(stored("bias", "beta")),
        ..NormSource::new(
            NormKind::LayerNorm,
            eps,
            width,
            Some(stored("weight", "gamma")),
        )
    }
}

/// The norm of a branch: before the branch, or after its residual sum.
pub(super) fn norm_before_or_after(
    norm: NormSource,
    is_before: bool,
) -> (Option<NormSource>, Option<NormSource>) {
    if is_before {
        (Some(norm), None)
    } else {
        (None, Some(norm))
    }
}

/// A LayerNorm whose bias may be absent.
pub(super) fn layer_norm_bias_if_stored(
    tensors: &Tensors,
    name: &str,
    width: usize,
    eps: f64,
) -> NormSource {
    let bias = Some(format!("{name}.bias")).filter(|bias| tensors.contains(bias));
    NormSource {
        bias,
        ..NormSource::new(
            NormKind::LayerNorm,
            eps,
            width,
            Some(format!("{name}.weight")),
        )
    }
}

/// An RMSNorm.
pub(super) fn rms_norm(name: String, width: usize, eps: f64) -> NormSource {
    NormSource::new(NormKind::RmsNorm, eps, width, Some(name))
}

/// A linear map under `name`, with a bias if one is stored.
pub(super) fn linear_bias_if_stored(
    tensors: &Tensors,
    name: &str,
    n_in: usize,
    n_out: usize,
) -> LinearSource {
    let bias = Some(format!("{name}.bias")).filter(|bias| tensors.contains(bias));
    LinearSource::whole(format!("{name}.weight"), bias, n_in, n_out)
}

/// A linear map under `name`, with or without a bias.
pub(super) fn linear(name: &str, n_in: usize, n_out: usize, has_bias: bool) -> LinearSource {
    let bias = has_bias.then(|| format!("{name}.bias"));
    LinearSource::whole(format!("{name}.weight"), bias, n_in, n_out)
}

/// Queries, keys and values from one tensor that stores all queries, then all keys, then all values.
pub(super) fn stacked(fused: &LinearSource, sizes: [usize; 3]) -> [LinearSource; 3] {
    let group = sizes.iter().sum();
    let offsets = [0, sizes[0], sizes[0] + sizes[1]];
    [0, 1, 2].map(|i| {
        fused.clone().part(Part {
            group,
            offset: offsets[i],
            len: sizes[i],
        })
    })
}

/// Queries, keys and values from one tensor that stores them by group: some queries, their key, their value.
pub(super) fn grouped(fused: &LinearSource, per_group: usize, d_head: usize) -> [LinearSource; 3] {
    let group = (per_group + 2) * d_head;
    let spans = [
        (0, per_group * d_head),
        (per_group * d_head, d_head),
        ((per_group + 1) * d_head, d_head),
    ];
    spans.map(|(offset, len)| fused.clone().part(Part { group, offset, len }))
}

/// Refuses a number of heads that is not a multiple of the number of key-value heads.
///
/// # Errors
/// When it is not a multiple.
pub(super) fn check_groups(
    reader: &Reader<'_>,
    n_heads: usize,
    n_kv_heads: usize,
    key: &str,
) -> Result<()> {
    if n_heads.is_multiple_of(n_kv_heads) {
        return Ok(());
    }
    let problem = format!("{n_kv_heads} kv heads do not divide {n_heads} heads");
    Err(Error::config(reader.path(), key, problem))
}

/// Refuses a switch that would make it a different model.
///
/// # Errors
/// When the switch is on.
pub(super) fn must_be_off(reader: &mut Reader<'_>, key: &str, why: &str) -> Result<()> {
    if reader.flag_quietly(key)? {
        return Err(Error::config(
            reader.path(),
            key,
            format!("expected false: {why}, found true"),
        ));
    }
    Ok(())
}

/// Computes the head width d_model / n_heads, which must be a whole number.
///
/// # Errors
/// When it is not.
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

/// Notes the knobs of the attention spec, and where its scale comes from.
pub(super) fn note_attention(reader: &mut Reader<'_>, spec: &AttentionSpec, scale: Origin) {
    reader.note("scale", spec.scale, scale);
    let factor = format!("{:.6}", spec.scale.factor(spec.d_head));
    reader.note("scale_factor", factor, Origin::Derived("scale".to_owned()));
    reader.note("softmax_axis", spec.softmax_axis, Origin::Family);
    reader.note("mask", spec.mask, Origin::Family);
}

/// Reads which layers have experts: every n-th, unless listed as dense.
///
/// # Errors
/// When the step or the list is invalid.
pub(super) fn sparse_layers(reader: &mut Reader<'_>) -> Result<Box<dyn Fn(usize) -> bool>> {
    let default = Origin::Default("decoder_sparse_step".to_owned());
    let step = reader.size_or("experts_every", "decoder_sparse_step", 1, default)?;
    let dense = reader.numbers("mlp_only_layers")?.unwrap_or_default();
    reader.note(
        "n_dense_layers",
        dense.len(),
        Origin::Key("mlp_only_layers".to_owned()),
    );
    Ok(Box::new(move |layer_idx| {
        !dense.contains(&(layer_idx as u64)) && (layer_idx + 1) % step == 0
    }))
}

/// Notes how position changes the scores.
pub(super) fn note_bias(reader: &mut Reader<'_>, what: &str) {
    reader.note("score_bias", what, Origin::Family);
}

/// Refuses more experts per token than exist.
///
/// # Errors
/// When there are more.
pub(super) fn check_used(reader: &Reader<'_>, n_used: usize, n_experts: usize) -> Result<()> {
    if n_used <= n_experts {
        return Ok(());
    }
    let problem =
        format!("expected at most the {n_experts} experts that there are, found {n_used}");
    Err(Error::config(reader.path(), "num_experts_per_tok", problem))
}

/// Refuses more layers and experts than the file can hold, before describing each of them.
///
/// `n_shared` experts of a layer share their tensors; the others have their own.
///
/// # Errors
/// When there are more than the number of tensors allows.
pub(super) fn check_counts(
    reader: &Reader<'_>,
    tensors: &Tensors,
    n_layers: usize,
    (n_experts, share_tensors): (usize, bool),
) -> Result<()> {
    /// No known model stores more experts in one tensor.
    const MOST_SHARING: usize = 1024;
    /// At most this many layers per layer with experts.
    const SPARSENESS: usize = 16;
    let fits = if share_tensors {
        n_layers <= tensors.len() && n_experts <= MOST_SHARING
    } else {
        n_layers.saturating_mul(n_experts) <= SPARSENESS * tensors.len()
    };
    if fits {
        return Ok(());
    }
    let found = tensors.len();
    let problem = format!(
        "{n_layers} layers of {n_experts} experts need more than the {found} tensors that are stored"
    );
    Err(Error::config(reader.path(), "experts", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activation_names_are_written_as_configurations_spell_them() {
        for (_, activation) in ACTIVATIONS {
            let name = activation.to_string();
            assert_eq!(activation_by_name(&name), Some(*activation), "{name}");
        }
    }
}
