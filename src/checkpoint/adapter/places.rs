//! The tensors of an adapter, sorted by module and by their role in it.

use std::collections::BTreeMap;

use crate::tensor_info::TensorInfo;

/// Prefix that PEFT puts before every name.
const WRAPPER: &str = "base_model.model.";
/// Name of an adapter that was given no name.
const DEFAULT: &str = "default";

/// What a tensor of an adapter is, by its name.
#[derive(Debug, PartialEq)]
pub enum Part {
    /// Replaces the tensor of the base with this name.
    Whole(String),
    /// One of the tensors of a module's LoRA update.
    Of(String, Role),
    /// An unused copy of a tensor of the base.
    Copy,
    /// Anything else, described in a few words.
    Unknown(&'static str),
}

/// Role of an adapter tensor in its module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    A,
    B,
    EmbeddingA,
    EmbeddingB,
    Magnitude,
}

/// Adapter tensors of one module.
#[derive(Debug, Default)]
pub struct Parts {
    a: Option<TensorInfo>,
    b: Option<TensorInfo>,
    embedding: [Option<TensorInfo>; 2],
    pub magnitude: Option<TensorInfo>,
}

/// Adapter tensors of all modules, by module name.
#[derive(Debug, Default)]
pub struct Places {
    pub of_modules: BTreeMap<String, Parts>,
}

impl Places {
    pub fn add(&mut self, module: String, role: Role, info: TensorInfo) {
        let parts = self.of_modules.entry(module).or_default();
        let place = match role {
            Role::A => &mut parts.a,
            Role::B => &mut parts.b,
            Role::EmbeddingA => &mut parts.embedding[0],
            Role::EmbeddingB => &mut parts.embedding[1],
            Role::Magnitude => &mut parts.magnitude,
        };
        *place = Some(info);
    }
}

impl Parts {
    /// Returns A and B, and whether they belong to an embedding.
    ///
    /// # Errors
    /// When one of them is missing.
    pub fn pair(&self) -> Result<(TensorInfo, TensorInfo, bool), String> {
        match (&self.a, &self.b, &self.embedding) {
            (Some(a), Some(b), [None, None]) => Ok((a.clone(), b.clone(), false)),
            (None, None, [Some(a), Some(b)]) => Ok((a.clone(), b.clone(), true)),
            _ => Err("expected lora_A and lora_B, found one without the other".to_owned()),
        }
    }
}

/// Classifies a tensor by its name.
pub fn part_of(name: &str) -> Part {
    let name = name.strip_prefix(WRAPPER).unwrap_or(name);
    let known = [
        (".lora_A", Role::A),
        (".lora_B", Role::B),
        (".lora_embedding_A", Role::EmbeddingA),
        (".lora_embedding_B", Role::EmbeddingB),
        (".lora_magnitude_vector", Role::Magnitude),
    ];
    for (word, role) in known {
        let Some((module, rest)) = name.rsplit_once(word) else {
            continue;
        };
        // The adapter's name may follow; a bare parameter has no `.weight`.
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        let rest = rest
            .strip_prefix(DEFAULT)
            .map_or(rest, |rest| rest.trim_start_matches('.'));
        return match rest {
            "" | "weight" => Part::Of(plain(module), role),
            "bias" => Part::Unknown("a bias of an adapter (lora_bias)"),
            _ => Part::Unknown("an adapter of another name than default"),
        };
    }
    if name.contains(".original_module.") {
        return Part::Copy;
    }
    if name.contains("trainable_tokens") {
        return Part::Unknown("an adapter of single tokens (trainable_token_indices)");
    }
    let of_other = [
        "lora_",
        "hada_",
        "lokr_",
        "vera_",
        "ia3_l",
        "oft_",
        "prompt_embeddings",
        "adaption_",
    ];
    if of_other.iter().any(|word| name.contains(word)) {
        return Part::Unknown("this kind of adapter");
    }
    Part::Whole(plain(name))
}

/// Strips what PEFT inserts, which leaves the base's name of a tensor.
fn plain(name: &str) -> String {
    name.replace(".base_layer.", ".")
        .replace(".modules_to_save.default.", ".")
        .replace(".modules_to_save.", ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_name_gives_the_module_and_the_role() {
        let of = |name: &str, role| Part::Of(name.to_owned(), role);
        for (name, part) in [
            ("base_model.model.h.0.q.lora_A.weight", of("h.0.q", Role::A)),
            (
                "base_model.model.h.0.q.lora_B.default.weight",
                of("h.0.q", Role::B),
            ),
            (
                "base_model.model.wte.lora_embedding_A",
                of("wte", Role::EmbeddingA),
            ),
            (
                "base_model.model.wte.lora_embedding_B.default",
                of("wte", Role::EmbeddingB),
            ),
            ("h.q.lora_magnitude_vector", of("h.q", Role::Magnitude)),
            (
                "h.q.lora_magnitude_vector.weight",
                of("h.q", Role::Magnitude),
            ),
            (
                "base_model.model.score.weight",
                Part::Whole("score.weight".to_owned()),
            ),
            (
                "base_model.model.score.modules_to_save.default.weight",
                Part::Whole("score.weight".to_owned()),
            ),
            ("h.q.base_layer.bias", Part::Whole("h.q.bias".to_owned())),
            ("base_model.model.score.original_module.bias", Part::Copy),
        ] {
            assert_eq!(part_of(name), part, "{name}");
        }
        for name in [
            "h.q.lora_B.bias",
            "h.q.lora_A.other.weight",
            "h.q.hada_w1_a",
            "embed.token_adapter.trainable_tokens_delta",
            "prompt_embeddings",
        ] {
            assert!(matches!(part_of(name), Part::Unknown(_)), "{name}");
        }
    }
}
