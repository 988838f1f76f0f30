//! Stored tensors that a spec does not use: their kinds, by name, and the remarks on them.

use std::collections::BTreeMap;

use attnscope_checkpoint::counted::counted;
use attnscope_checkpoint::{TensorInfo, Tensors};
use attnscope_spec::{KvSharing, Mixer, ModelSpec};

use super::find::named;

/// Parts of names of buffers, optimiser states, quantisation tables, and copies for evaluation.
const NO_WEIGHTS: [&str; 34] = [
    "position_ids",
    "token_type_ids",
    "inv_freq",
    "rotary",
    "rope_freqs",
    "freqs_cis",
    "cos_cached",
    "sin_cached",
    "masked_bias",
    "causal_mask",
    "attn_mask",
    "tril",
    "num_batches_tracked",
    "optimizer",
    "exp_avg",
    "momentum",
    "scheduler",
    "ema_",
    "_ema",
    "quant",
    "scale_inv",
    "weight_scale",
    "input_scale",
    "absmax",
    "qzeros",
    "g_idx",
    "SCB",
    "zero_point",
    "k_scale",
    "v_scale",
    "_integer",
    "scaling_factor",
    ".x_min",
    ".x_max",
];

/// Parts of names of task heads, other modalities, language embeddings, global-attention maps, and multi-token prediction.
const OTHER_PARTS: [&str; 68] = [
    "lang_embeddings",
    "patch_merge_mlp.",
    "pooler",
    "contact_head",
    "_global.",
    "classifier",
    "classification_head",
    "score.",
    "qa_outputs",
    "cls.",
    "nsp",
    "seq_relationship",
    "discriminator",
    "generator",
    "vocab_",
    "mlm",
    "summary",
    "multiple_choice_head",
    "value_head",
    "v_head",
    "reward",
    "vision",
    "visual",
    "image",
    "audio",
    "speech",
    "mm_projector",
    "multi_modal",
    "mtp",
    "eh_proj",
    "medusa",
    "text_model.",
    "text_projection",
    "post_layernorm",
    "mask_token",
    "head.attention.",
    "head.layernorm.",
    "head.mlp.",
    "head.probe",
    "protein",
    "entity_",
    ".e2e_query.",
    ".e2w_query.",
    ".w2e_query.",
    "mlp_AR.",
    "vit.layers.",
    "vit.perceive.",
    "vit.embeddings.patch_embedding.",
    "vit.embeddings.position_embedding.",
    "img_temporal_embedding.",
    "merger.",
    "merger_list.",
    "downsample.",
    "connector.",
    "head_linear.",
    "head_norm.",
    "neck.",
    "metric_head.",
    "relative_head.",
    "proj.conv1.",
    "proj.conv2.",
    "mask_decoder.",
    "shared_image_embedding.",
    "gemma_expert.",
    "action_in_proj.",
    "action_out_proj.",
    "action_time_mlp_",
    "state_proj.",
];

/// Beginnings of names of parts beside a sound's or a picture's encoder.
const OTHER_BEGINNINGS: [&str; 9] = [
    "acoustic_decoder.",
    "acoustic_encoder.",
    "decoder_semantic.",
    "encoder_semantic.",
    "detr_decoder.",
    "detr_encoder.",
    "dot_product_scoring.",
    "geometry_encoder.",
    "text_encoder.",
];

const ADAPTERS: [&str; 10] = [
    "lora_",
    "lora.",
    "adapter",
    "ia3_",
    "loha_",
    "hada_",
    "lokr_",
    "dora_",
    "vera_",
    "prompt_encoder",
];

/// Suffixes of names of unembeddings.
const UNEMBEDDINGS: [&str; 4] = [
    "lm_head.weight",
    "embed_out.weight",
    "output_projection.weight",
    "predictions.decoder.weight",
];

/// The purpose of a stored tensor, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    Adapter,
    /// A buffer, an optimiser state, or a quantisation table.
    Buffer,
    /// A map from the residual to the vocabulary.
    Unembedding,
    /// A task head, another modality, or multi-token prediction.
    OtherPart,
    Weight,
}

/// The kind of a tensor by its name.
pub fn kind_of(name: &str) -> NameKind {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    // Adapter layers that mix proteins into text: part of every such model, not a LoRA adapter to merge.
    let mixes_in = [
        "attention_norm.",
        "ff.",
        "gate_",
        "key_protein.",
        "value_protein.",
        "query.",
        "out_proj.",
    ];
    if let Some((_, part)) = name.split_once(".adapter.")
        && name.starts_with("model.layers.")
        && mixes_in.iter().any(|begin| part.starts_with(begin))
    {
        return NameKind::OtherPart;
    }
    // Maps from a part that sees into the text's width: they too are part of every such model.
    if name.contains("vision_adapter.") {
        return NameKind::OtherPart;
    }
    // SAM's encoder of points and masks, which are no learned prompts.
    let of_points = [
        "mask_embed.",
        "no_mask_embed.",
        "not_a_point_embed.",
        "point_embed.",
        "shared_embedding.",
    ];
    if let Some((_, part)) = name.split_once("prompt_encoder.")
        && of_points.iter().any(|begin| part.starts_with(begin))
    {
        return NameKind::OtherPart;
    }
    if has(&ADAPTERS) {
        return NameKind::Adapter;
    }
    // A causal mask is stored as an attention buffer called bias.
    let is_mask = ["attn.bias", "attention.bias", ".mask"]
        .iter()
        .any(|end| name.ends_with(end));
    if has(&NO_WEIGHTS) || is_mask || name == "step" {
        NameKind::Buffer
    } else if UNEMBEDDINGS.iter().any(|end| name.ends_with(end)) {
        NameKind::Unembedding
    } else if has(&OTHER_PARTS)
        || OTHER_BEGINNINGS.iter().any(|begin| name.starts_with(begin))
        || name.starts_with("head.")
        || is_last_map(name)
    {
        NameKind::OtherPart
    } else {
        NameKind::Weight
    }
}

/// Whether a tensor belongs to the final classification layer of a `torch.nn` model, by the names that authors use.
fn is_last_map(name: &str) -> bool {
    let mut modules = name.rsplit('.').skip(1);
    layer_of(name).is_none() && modules.next() == Some("fc")
}

/// The first number between dots in a name: the layer index.
pub fn layer_of(name: &str) -> Option<usize> {
    name.split('.').find_map(|part| part.parse().ok())
}

/// Whether a stored tensor is not needed: one that the family does not read, one of a layer that changes nothing, a key map in a
/// layer with shared keys, or a head bias that another bias overrides.
pub fn is_computed(spec: &ModelSpec, name: &str) -> bool {
    // An = stands before a whole name, and a * behind what lies anywhere in one.
    let is_named = |pattern: &&str| match (pattern.strip_prefix('='), pattern.strip_suffix('*')) {
        (Some(whole), _) => name == whole,
        (None, Some(inside)) => name.contains(inside),
        (None, None) => name.ends_with(*pattern),
    };
    if named(spec.family).is_some_and(|family| family.unread.iter().any(is_named)) {
        return true;
    }
    let layer = layer_of(name).and_then(|idx| spec.main_stack().blocks().get(idx));
    if layer.is_some_and(|block| block.mixer == Mixer::None && block.linears().is_empty()) {
        return true;
    }
    let blocks = spec.stacks.iter().flat_map(|stack| stack.blocks());
    let shared = blocks.filter_map(|block| block.own()?.projections.shared.as_deref());
    let mut unread_tensors = shared.filter_map(|shared| match shared {
        KvSharing::Reuses { unread_tensors, .. } => Some(unread_tensors),
        KvSharing::Provides(_) | KvSharing::AddsValues { .. } => None,
    });
    if unread_tensors.any(|names| names.iter().any(|vain| vain == name)) {
        return true;
    }
    let bias = spec
        .head
        .as_ref()
        .and_then(|head| head.unembed.bias.as_ref());
    let before = name.strip_suffix("bias");
    before.is_some_and(|before| bias.is_some_and(|bias| *bias == format!("{before}decoder.bias")))
}

/// Whether a tensor has the shape of a mask stored as a buffer.
pub fn is_mask_shape(shape: &[usize]) -> bool {
    matches!(shape, [1, 1, n, m] if n == m)
}

/// Stored tensors that are not used: their names, in order, and a sentence for each kind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LeftAside {
    pub names: Vec<String>,
    pub remarks: Vec<String>,
}

/// Finds stored tensors that a spec never reads, except buffers, optimiser states, and copies of tensors that it reads.
pub(super) fn left_aside(spec: &ModelSpec, tensors: &Tensors) -> LeftAside {
    let read = spec.read_names();
    let is_left = |(name, info): &(&str, &TensorInfo)| {
        !read.contains(name)
            && info.n_elements() > 1
            && !is_computed(spec, name)
            && !is_mask_shape(&info.shape)
            && kind_of(name) != NameKind::Buffer
    };
    let left: Vec<(&str, &TensorInfo)> = tensors.iter().filter(is_left).collect();
    let mut aside = LeftAside::default();
    let (mut others, mut weights) = (Vec::new(), Vec::new());
    for (name, info) in left {
        let mut alike = read.iter().filter(|other| {
            let other = tensors.info(other);
            other.is_some_and(|other| other.shape == info.shape && other.dtype == info.dtype)
        });
        if alike.any(|other| is_copy(tensors, name, other)) {
            continue;
        }
        aside.names.push(name.to_owned());
        match kind_of(name) {
            NameKind::OtherPart => others.push(name),
            _ => weights.push(name),
        }
    }
    if !weights.is_empty() {
        let said = format!(
            "{} never read: {}",
            tensors_were(weights.len(), ""),
            listed(&weights)
        );
        aside.remarks.push(said);
    }
    if !others.is_empty() {
        let n = tensors_were(others.len(), " of other heads or modalities");
        let said = format!("{n} left aside: {}", listed(&others));
        aside.remarks.push(said);
    }
    aside
}

fn tensors_were(n: usize, of: &str) -> String {
    let were = if n == 1 { "was" } else { "were" };
    format!("{}{of} {were}", counted(n, "tensor"))
}

/// Upper limit of names that a sentence lists.
const MOST_LISTED: usize = 4;

/// Formats names for a sentence; names that differ only in numbers are merged, with their count.
fn listed(names: &[&str]) -> String {
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let parts = name.split('.');
        let pattern: Vec<&str> = parts
            .map(|part| if is_number(part) { "*" } else { part })
            .collect();
        groups.entry(pattern.join(".")).or_default().push(name);
    }
    let n_more = groups.len().saturating_sub(MOST_LISTED);
    let words = groups.iter().take(MOST_LISTED);
    let words: Vec<String> = words
        .map(|(pattern, names)| match names.as_slice() {
            [name] => (*name).to_owned(),
            names => format!("{pattern} ({})", names.len()),
        })
        .collect();
    let words = words.join(", ");
    match n_more {
        0 => words,
        n => format!("{words} and {n} more names"),
    }
}

/// Upper limit of compared values: tensors that agree in so many are copies.
const COMPARED: usize = 1 << 14;

/// Whether two tensors of the same shape and type hold the same values, judged by their first rows.
pub(super) fn is_copy(tensors: &Tensors, one: &str, other: &str) -> bool {
    if tensors.share_bytes(one, other) {
        return true;
    }
    let first = |name: &str| {
        let view = tensors.get(name)?;
        let shape = view.shape().to_vec();
        let width: usize = shape.iter().skip(1).product::<usize>().max(1);
        match shape.as_slice() {
            [n_rows, _] => {
                let n = (COMPARED / width).clamp(1, *n_rows);
                view.widen_rows(0..n).ok()
            }
            _ if view.shape().iter().product::<usize>() <= COMPARED => view.widen().ok(),
            _ => None,
        }
    };
    // A constant tensor equals many others without being a copy.
    match (first(one), first(other)) {
        (Some(a), Some(b)) => a == b && a.iter().any(|value| *value != a[0]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_only_in_numbers_are_merged_in_a_sentence() {
        let names = ["m.0.a", "m.1.a", "m.12.a", "b", "x.1x.c"];
        assert_eq!(listed(&names), "b, m.*.a (3), x.1x.c");
        assert_eq!(
            listed(&["a", "b", "c", "d", "e", "f"]),
            "a, b, c, d and 2 more names"
        );
        assert_eq!(tensors_were(1, ""), "1 tensor was");
        assert_eq!(tensors_were(3, " of it"), "3 tensors of it were");
    }
}
