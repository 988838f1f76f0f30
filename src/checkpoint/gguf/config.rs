//! Converts the metadata of a GGUF file to the configuration that Hugging Face would write for the same model.

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value, json};

use super::architectures::{Architecture, Fixed, Quirk, Rotary};
use super::facts::{Facts, KV_HEADS, LARGEST, Sizes, set};
use super::metadata::Metadata;
use super::names::Meaning;
use super::rope;
use super::windows::{slides, types};

/// Most layers of a model: more mean that the file is damaged. `config.json` has the same limit.
const MOST_LAYERS: u64 = 4096;

/// Keys that change the computation, each with the value at which it has no effect. Other values are refused unless the
/// architecture reads the key.
const RARELY_KNOWN: &[(&str, f64)] = &[
    ("attention.clamp_kqv", 0.0),
    ("attention.max_alibi_bias", 0.0),
    ("attention.scale", 0.0),
    ("attention.temperature_scale", 0.0),
    ("embedding_scale", 1.0),
    ("expert_shared_count", 0.0),
    ("leading_dense_block_count", 0.0),
    ("logit_scale", 1.0),
    ("residual_scale", 1.0),
];

/// Key of the number of a head's dimensions that rotate.
const D_ROTARY: &str = "rope.dimension_count";

/// Keys of the epsilon of norms.
const EPS: [&str; 2] = [
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
];

/// Reads the sizes of a file that states this architecture.
///
/// # Errors
/// When one is missing or invalid.
pub(super) fn sizes(metadata: &Metadata<'_>, stated: &Architecture) -> Result<Sizes> {
    let key = |tail: &str| format!("{}.{tail}", stated.name);
    let size = |tail: &str| metadata.size(&key(tail), LARGEST);
    let n_all = metadata.size(&key("block_count"), MOST_LAYERS)?;
    // Layers for multi-token prediction follow the others.
    const BEHIND: &str = "nextn_predict_layers";
    let n_behind = metadata.whole(&key(BEHIND))?.unwrap_or(0);
    let Some(n_layers) = n_all.checked_sub(n_behind).filter(|n| *n > 0) else {
        let problem = format!("expected fewer than {n_all} layers, found {n_behind}");
        return Err(Error::config(metadata.path, key(BEHIND), problem));
    };
    let d_model = size("embedding_length")?;
    let n_heads = size("attention.head_count")?;
    let n_kv_heads = match metadata.get(&key(KV_HEADS)) {
        // In hybrid models, layers without attention have no key/value heads, so the key is a list.
        Some(_) if stated.reads(KV_HEADS) => metadata.largest(&key(KV_HEADS), LARGEST)?,
        Some(_) => size(KV_HEADS)?,
        None => n_heads,
    };
    let in_parts = stated.has(Quirk::HeadsInParts);
    let d_head = match metadata.get(&key("attention.key_length")) {
        _ if in_parts => size("rope.dimension_count")?,
        Some(_) => size("attention.key_length")?,
        None => (d_model / n_heads).max(1),
    };
    let d_value = metadata
        .whole(&key("attention.value_length"))?
        .filter(|_| !in_parts)
        .unwrap_or(d_head);
    if d_value != d_head {
        let problem = format!("expected {d_head} as for the keys, found {d_value}");
        return Err(Error::config(
            metadata.path,
            key("attention.value_length"),
            problem,
        ));
    }
    let d_rotary = match stated.rotary {
        Rotary::Part => metadata.whole(&key(D_ROTARY))?.unwrap_or(d_head),
        _ => d_head,
    };
    Ok(Sizes {
        n_layers,
        d_model,
        n_heads,
        n_kv_heads,
        d_head,
        d_rotary,
    })
}

/// Builds the configuration in Hugging Face's terms; metadata keys that have no equivalent keep their names, so that they
/// are reported as unread.
///
/// # Errors
/// When a value is missing, has the wrong type, or has an unknown meaning.
pub(super) fn hugging_face(
    architecture: &Architecture,
    facts: &Facts<'_>,
) -> Result<Map<String, Value>> {
    refuse_unknown(architecture, facts)?;
    let mut config = Map::new();
    vocabulary_and_lengths(architecture, facts, &mut config)?;
    match architecture.settings {
        Some(own) => own(facts, &mut config)?,
        None => usual(architecture, facts, &mut config)?,
    }
    for (key, value) in facts.metadata.unread(&facts.key("")) {
        set(&mut config, key, value);
    }
    Ok(config)
}

/// Refuses values that change what a model computes, if the architecture is not known to have them.
fn refuse_unknown(architecture: &Architecture, facts: &Facts<'_>) -> Result<()> {
    let Architecture { name, .. } = architecture;
    for (tail, neutral) in RARELY_KNOWN {
        if architecture.reads(tail) {
            continue;
        }
        if let Some(found) = facts.number(tail)?.filter(|found| found != neutral) {
            let problem =
                format!("not known for {name}: expected {neutral} or nothing, found {found}");
            return facts.refuse(tail, problem);
        }
    }
    const CAUSAL: &str = "attention.causal";
    let is_causal = facts.flag(CAUSAL)?.unwrap_or(true);
    if !is_causal && !architecture.has(Quirk::SeesBoth) {
        let problem = "expected true or nothing, found false".to_owned();
        return facts.refuse(CAUSAL, problem);
    }
    Ok(())
}

/// Writes what every configuration has in some form: the sizes of vocabulary, context and feed-forward block.
fn vocabulary_and_lengths(
    architecture: &Architecture,
    facts: &Facts<'_>,
    config: &mut Map<String, Value>,
) -> Result<()> {
    let is_tied = !facts.has("lm_head.weight") && !facts.has("embed_out.weight");
    set(config, "tie_word_embeddings", is_tied);
    if let Some(n_ctx) = facts.whole("context_length")? {
        set(config, "max_position_embeddings", n_ctx);
    }
    set(config, "intermediate_size", d_mlp(architecture, facts)?);
    // The embedding's shape decides: metadata often lack the key, and a padded embedding has more rows.
    let stated = facts.whole("vocab_size")?;
    let rows = shape_of(architecture, facts, "token_embd.weight").map(|shape| shape[0] as u64);
    set(config, "vocab_size", rows.or(stated));
    Ok(())
}

/// Returns the feed-forward width, from the tensors of layer 0 if possible: some converters state 4 × hidden size for every
/// model.
fn d_mlp(architecture: &Architecture, facts: &Facts<'_>) -> Result<Option<u64>> {
    const WIDTH: &str = "feed_forward_length";
    let listed = if architecture.reads(WIDTH) {
        facts.wholes(WIDTH)?
    } else {
        None
    };
    let stated = match listed {
        // A list has 0 for layers without a feed-forward block.
        Some(widths) => widths.into_iter().max(),
        None => facts.whole(WIDTH)?,
    };
    let stored = ["blk.0.ffn_down.weight", "enc.blk.0.ffn_down.weight"];
    let of_tensor = stored
        .iter()
        .find_map(|stored| match shape_of(architecture, facts, stored)? {
            [n_in, _] if architecture.has(Quirk::Transposed) => Some(*n_in as u64),
            [_, n_in] => Some(*n_in as u64),
            _ => None,
        });
    Ok(of_tensor.or(stated))
}

/// Returns the shape of a tensor by its name in the file.
fn shape_of<'a>(
    architecture: &Architecture,
    facts: &Facts<'a>,
    stored: &str,
) -> Option<&'a [usize]> {
    match architecture.meaning(stored) {
        Meaning::Whole { name, .. } => Some(&facts.tensors.info(&name)?.shape),
        _ => None,
    }
}

/// Writes the settings of an architecture: under the usual keys, by its tables, by its own code, and under its own keys.
fn usual(
    architecture: &Architecture,
    facts: &Facts<'_>,
    config: &mut Map<String, Value>,
) -> Result<()> {
    heads_and_layers(architecture, facts, config);
    epsilon(architecture, facts, config)?;
    rotary(architecture, facts, config)?;
    let window = facts.window()?;
    let model_type = architecture.model_type.unwrap_or(architecture.name);
    set(config, "model_type", model_type);
    let (key, activation) = architecture.activation;
    if !key.is_empty() {
        set(config, key, activation);
    }
    // Read and ignored: for text, the position sections of images make no difference.
    for tail in ["rope.dimension_sections", "n_deepstack_layers"] {
        facts.metadata.get(&facts.key(tail));
    }
    fill(architecture, facts, config)?;
    if let Some(special) = architecture.special {
        special(facts, config)?;
    }
    windows(architecture, facts, window, config)?;
    if architecture.has(Quirk::StatesUnscaled) && !config.contains_key("rope_scaling") {
        set(config, "rope_scaling", json!({"rope_type": "default"}));
    }
    for (usual, own) in architecture.renames {
        let value = config.remove(*usual);
        if let Some(value) = value.filter(|_| !own.is_empty()) {
            set(config, own, value);
        }
    }
    Ok(())
}

fn heads_and_layers(
    architecture: &Architecture,
    facts: &Facts<'_>,
    config: &mut Map<String, Value>,
) {
    let sizes = facts.sizes;
    set(config, "hidden_size", sizes.d_model);
    set(config, "num_hidden_layers", sizes.n_layers);
    set(config, "num_attention_heads", sizes.n_heads);
    set(config, "num_key_value_heads", sizes.n_kv_heads);
    let divides = sizes.d_head * sizes.n_heads == sizes.d_model;
    if !(divides && architecture.has(Quirk::DerivesHeadWidth)) {
        set(config, "head_dim", sizes.d_head);
    }
}

/// Writes the epsilon of norms; files have it under either key.
fn epsilon(
    architecture: &Architecture,
    facts: &Facts<'_>,
    config: &mut Map<String, Value>,
) -> Result<()> {
    let (tail, key) = architecture.eps;
    let [own, layer, rms] = [tail, EPS[0], EPS[1]].map(|tail| facts.number(tail));
    if let Some(eps) = own?.or(layer?).or(rms?).filter(|_| !key.is_empty()) {
        set(config, key, eps);
    }
    Ok(())
}

/// Writes base, scaling and share of rotary embeddings.
fn rotary(
    architecture: &Architecture,
    facts: &Facts<'_>,
    config: &mut Map<String, Value>,
) -> Result<()> {
    let d_head = facts.sizes.d_head;
    let theta = facts.number("rope.freq_base")?.unwrap_or(10_000.0);
    set(config, "rope_theta", theta);
    if let Some(scaling) = rope::scaling(architecture, facts, theta)? {
        set(config, "rope_scaling", scaling);
    }
    let d_rotary = facts.whole(D_ROTARY)?.unwrap_or(d_head);
    let is_part = match architecture.rotary {
        // Without the key, the whole head rotates, whatever the family's default is.
        Rotary::Part => true,
        Rotary::PartIfSmaller => d_rotary != d_head,
        Rotary::Whole | Rotary::ByFactors if d_rotary != d_head => {
            let problem = format!("expected {d_head} as the heads are wide, found {d_rotary}");
            return facts.refuse(D_ROTARY, problem);
        }
        Rotary::Whole | Rotary::ByFactors => false,
    };
    if is_part {
        let share = d_rotary as f64 / d_head as f64;
        set(config, "partial_rotary_factor", share);
    }
    Ok(())
}

/// Writes the values that the architecture's tables give.
fn fill(
    architecture: &Architecture,
    facts: &Facts<'_>,
    config: &mut Map<String, Value>,
) -> Result<()> {
    for (name, value) in architecture.fixed {
        let value = match value {
            Fixed::Flag(flag) => json!(flag),
            Fixed::Number(number) => as_number(*number),
            Fixed::Word(word) => json!(word),
            Fixed::Words(words) => json!(words),
        };
        set(config, name, value);
    }
    for (name, probe) in architecture.switches {
        let is_on = match probe.strip_prefix('*') {
            Some(ending) => facts.has_any(ending),
            None => facts.has(&format!("model.layers.0.{probe}")) || facts.has(probe),
        };
        set(config, name, is_on);
    }
    for (tail, name) in architecture.numbers {
        if let Some(number) = facts.number(tail)? {
            set(config, name, as_number(number));
        }
    }
    Ok(())
}

/// Converts a number to JSON, as an integer if it is one: Hugging Face's configurations have integer counts.
fn as_number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        json!(number as i64)
    } else {
        json!(number)
    }
}

/// Writes the width of windows and the layers that have them.
fn windows(
    architecture: &Architecture,
    facts: &Facts<'_>,
    window: Option<u64>,
    config: &mut Map<String, Value>,
) -> Result<()> {
    let Some(every) = architecture.full_every else {
        return Ok(());
    };
    set(config, "sliding_window", window);
    if window.is_some() || architecture.has(Quirk::ListsLayers) {
        let slides = slides(facts, every)?;
        set(config, "layer_types", types(&slides, window.is_some()));
    }
    Ok(())
}
