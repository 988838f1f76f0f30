//! Names in published files of model types that transformers reads under other names, and renames back when it saves.

use attnscope_checkpoint::{Checkpoint, Config};
use attnscope_compute::error::Result;
use serde_json::Value;

use super::published_names::{PUBLISHED, Published};

fn of(config: &Config) -> Option<&'static Published> {
    let name = config.get("model_type").and_then(Value::as_str)?;
    PUBLISHED.iter().find(|known| known.model_type == name)
}

/// Renames the keys of a configuration to those that its family reads.
pub(super) fn rename_keys(config: &mut Config) {
    for (from, to) in of(config).map_or(&[][..], |known| known.keys) {
        config.rename(from, to);
    }
}

/// Renames tensors to the names that the family reads: those of the whole model, and those of its text part.
///
/// # Errors
/// When two tensors would get the same name.
pub(super) fn rename_tensors(checkpoint: &mut Checkpoint) -> Result<()> {
    let text = checkpoint.config.text_part();
    let parts = [Some(&checkpoint.config), text.as_ref()];
    for known in parts.into_iter().flatten().filter_map(of) {
        checkpoint
            .tensors
            .rename(|name| Some(renamed(name, known.tensors)))?;
    }
    Ok(())
}

fn renamed(name: &str, parts: &[(&str, &str)]) -> String {
    let mut name = name.to_owned();
    for (from, to) in parts {
        name = match from.strip_prefix('^') {
            Some(first) => match name.strip_prefix(first) {
                Some(rest) => format!("{to}{rest}"),
                None => name,
            },
            None => name.replace(from, to),
        };
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_types_are_sorted_and_distinct() {
        let types = PUBLISHED.iter().map(|known| known.model_type);
        assert!(types.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_mark_stands_for_the_beginning_of_a_name() {
        let parts = [("^h.", "layers."), (".o.", ".o_proj.")];
        assert_eq!(
            renamed("h.0.h.o.weight", &parts),
            "layers.0.h.o_proj.weight"
        );
        assert_eq!(renamed("a.h.0.weight", &parts), "a.h.0.weight");
    }
}
