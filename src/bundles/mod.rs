//! Data compiled into the program for demos without downloads: checkpoints, and two embedding tables.

mod log;
mod tables;

pub use log::{COLLAPSING_LOG, STEADY_LOG, WATCHED_LOG, WATCHED_TWIN_LOG};
pub use tables::{TABLES, demo_alignment};

use attnscope_checkpoint::Bundle;

macro_rules! file {
    ($directory:literal, $name:literal) => {
        include_str!(concat!("../../fixtures/", $directory, "/", $name))
    };
}

macro_rules! bundle {
    ($name:literal, $directory:literal, $target:expr, $training:expr) => {
        Bundle {
            name: $name,
            config: file!($directory, "config.json"),
            tokenizer: file!($directory, "tokenizer.json"),
            tokenizer_target: $target,
            weights: include_bytes!(concat!("../../fixtures/", $directory, "/model.safetensors")),
            training: $training,
            twin: || None,
        }
    };
}

/// A model with one tokenizer, and the record of its training.
macro_rules! transformer {
    ($name:literal, $directory:literal) => {
        bundle!(
            $name,
            $directory,
            None,
            Some(file!($directory, "training.json"))
        )
    };
}

/// A checkpoint of the training run that collapses; all of these share configuration and tokenizer.
macro_rules! step {
    ($name:literal, $weights:literal) => {
        Bundle {
            name: $name,
            config: file!("history", "config.json"),
            tokenizer: file!("history", "tokenizer.json"),
            tokenizer_target: None,
            weights: include_bytes!(concat!("../../fixtures/history/", $weights)),
            training: None,
            twin: || None,
        }
    };
}

/// A translation model, with a tokenizer for each language.
macro_rules! translator {
    ($name:literal, $directory:literal) => {
        bundle!(
            $name,
            $directory,
            Some(file!($directory, "tokenizer_target.json")),
            Some(file!($directory, "readings.json"))
        )
    };
}

/// All bundled checkpoints; the first one opens if the user names none.
pub static BUNDLES: &[Bundle] = &[
    bundle!("induction-demo", "induction", None, None),
    Bundle {
        twin: || named("healthy"),
        ..transformer!("degenerate", "degenerate")
    },
    transformer!("healthy", "healthy"),
    translator!("unscaled-translator", "seq2seq/unscaled"),
    translator!("scaled-translator", "seq2seq/scaled"),
    step!("history-step-150", "step-150.safetensors"),
    step!("history-step-250", "step-250.safetensors"),
    step!("history-step-400", "step-400.safetensors"),
];

/// The default prompt of the first bundle: a sentence, repeated once.
pub const DEMO_PROMPT: &str = "one cold morning the old king gave a red apple to his good horse , and they walked up the hill by the river . \
     one cold morning the old king gave a red apple to his good horse , and they walked up the hill by the river .";

/// Texts like those that `degenerate` and `healthy` were trained on, one JSON object per line.
pub const PROMPTS: &str = file!("degenerate", "prompts.jsonl");

/// The bundled checkpoint with this name.
pub fn named(name: &str) -> Option<&'static Bundle> {
    BUNDLES.iter().find(|bundle| bundle.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_open_and_are_small_enough_to_publish() {
        let mut n_bytes = 0;
        for bundle in BUNDLES {
            let name = bundle.name;
            bundle.open().unwrap_or_else(|e| panic!("{name}: {e}"));
            let texts = [
                bundle.config,
                bundle.tokenizer,
                bundle.tokenizer_target.unwrap_or(""),
                bundle.training.unwrap_or(""),
            ];
            bundle.training().unwrap_or_else(|e| panic!("{name}: {e}"));
            n_bytes += bundle.weights.len() + texts.map(str::len).iter().sum::<usize>();
        }
        assert!(n_bytes <= 8 << 20, "{n_bytes} bytes");
    }
}
