//! Kinds of models that are another kind under a name of their own: read as that one, bit by bit.

/// The name in a configuration, and the family that reads it.
const ALIASES: &[(&str, &str)] = &[
    ("camembert", "roberta"),
    ("kimi_k2", "deepseek_v3"),
    ("mvp", "bart"),
    ("plbart", "bart"),
    ("qwen2_5_vl", "qwen2"),
    ("qwen2_5_vl_text", "qwen2"),
    ("qwen2_vl", "qwen2"),
    ("qwen2_vl_text", "qwen2"),
    ("qwen3_vl_moe_text", "qwen3_moe"),
    ("qwen3_vl_text", "qwen3"),
];

/// The family that reads models of this kind; `None` where the kind has a family of its own, or none.
pub(super) fn family_of(model_type: &str) -> Option<&'static str> {
    let found = ALIASES.iter().find(|(name, _)| *name == model_type);
    found.map(|(_, family)| *family)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::FAMILIES;

    #[test]
    fn aliases_are_sorted_and_name_families() {
        assert!(ALIASES.is_sorted());
        for (name, family) in ALIASES {
            let known = |name: &str| FAMILIES.iter().any(|family| family.model_type == name);
            assert!(known(family) && !known(name), "{name}");
        }
    }
}
