//! The training step of a checkpoint.

use std::path::Path;

use attnscope_checkpoint::pytorch::saved_step;
use attnscope_checkpoint::{CONFIGURATION, distributed_at, read_text};

/// Words that precede a step number.
const WORDS: [&str; 6] = ["checkpoint", "ckpt", "step", "steps", "iter", "iteration"];

/// Returns the step: from the name (`checkpoint-500`, `step_500`, `global_step500`, `iter_0000500`), otherwise from the
/// `trainer_state.json` that transformers' Trainer writes next to the weights, otherwise from what a trainer saved in a distributed
/// checkpoint (`train_state.step`); `None` if none of them has it.
pub fn step_of(path: &Path, name: &str) -> Option<u64> {
    step_of_name(name)
        .or_else(|| of_trainer(path))
        .or_else(|| saved_step(&distributed_at(path)?))
}

/// Returns the number after the last such word.
pub fn step_of_name(name: &str) -> Option<u64> {
    let name = name.to_ascii_lowercase();
    let mut found = None;
    let mut word_start = None;
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_alphabetic() {
            word_start.get_or_insert(at);
            continue;
        }
        let Some(start) = word_start.take() else {
            continue;
        };
        if WORDS.contains(&&name[start..at]) {
            let rest = name[at..].trim_start_matches(['-', '_', '=', ' ']);
            let end = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            // A number followed by a letter, as in `step-2b`, is not a step.
            let is_number = !rest[end..].starts_with(|c: char| c.is_alphabetic());
            found = rest[..end].parse().ok().filter(|_| is_number).or(found);
        }
    }
    found
}

fn of_trainer(path: &Path) -> Option<u64> {
    let directory = if path.is_dir() { path } else { path.parent()? };
    let state = directory.join("trainer_state.json");
    if !state.is_file() {
        return None;
    }
    let text = read_text(&state, CONFIGURATION).ok()?;
    let state: serde_json::Value = serde_json::from_str(&text).ok()?;
    state.get("global_step")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_is_read_from_a_checkpoint_name() {
        for (name, step) in [
            ("checkpoint-500", Some(500)),
            ("step_500", Some(500)),
            ("global_step500", Some(500)),
            ("iter_0000500", Some(500)),
            ("gpt2-step-450.safetensors", Some(450)),
            ("epoch=3-step=1200.ckpt", Some(1200)),
            ("run7-checkpoint-12", Some(12)),
            ("llama-7b", None),
            ("gpt2", None),
            ("step-2b", None),
            ("checkpoint", None),
            ("stepwise3", None),
            ("checkpoint-99999999999999999999999", None),
        ] {
            assert_eq!(step_of_name(name), step, "{name}");
        }
    }

    #[test]
    fn the_step_is_read_from_the_trainer_state_if_the_name_has_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = directory.path().join("trainer_state.json");
        assert_eq!(step_of(directory.path(), "last"), None);
        std::fs::write(&state, "{\"global_step\": 1234, \"epoch\": 2.0}").expect("writes");
        assert_eq!(step_of(directory.path(), "last"), Some(1234));
        assert_eq!(
            step_of(&directory.path().join("model.safetensors"), "last"),
            Some(1234)
        );
        assert_eq!(step_of(directory.path(), "checkpoint-5"), Some(5));
        std::fs::write(&state, "[1").expect("writes");
        assert_eq!(step_of(directory.path(), "last"), None);
    }
}
