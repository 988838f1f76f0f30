//! The losses in `trainer_state.json`, which transformers' Trainer writes into its checkpoints.

use std::path::Path;

use attnscope_checkpoint::Config;
use attnscope_compute::error::Result;
use serde_json::Value;

/// Name of the file.
pub(super) const NAME: &str = "trainer_state.json";

/// Steps and values of the training loss and of the evaluation loss, as `log_history` has them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TrainerState {
    /// Step at which it was written.
    pub global_step: u64,
    pub training: Vec<(u64, f64)>,
    pub evaluation: Vec<(u64, f64)>,
}

impl TrainerState {
    /// # Errors
    /// When the file cannot be read, is larger than a configuration may be, or is no JSON object.
    pub fn read(path: &Path) -> Result<Self> {
        let state = Config::read(path)?;
        let mut found = Self {
            global_step: state
                .get("global_step")
                .and_then(Value::as_u64)
                .unwrap_or(0),
            ..Self::default()
        };
        let logged = state.get("log_history").and_then(Value::as_array);
        for entry in logged.into_iter().flatten() {
            let Some(step) = entry.get("step").and_then(Value::as_u64) else {
                continue;
            };
            let of = |key: &str| entry.get(key).and_then(number);
            found.training.extend(of("loss").map(|loss| (step, loss)));
            found
                .evaluation
                .extend(of("eval_loss").map(|loss| (step, loss)));
        }
        Ok(found)
    }
}

/// Returns a number; JSON's reader gives those that JSON lacks as `{"__float__": "NaN"}`.
fn number(value: &Value) -> Option<f64> {
    let word = || value.get("__float__")?.as_str()?.parse().ok();
    value.as_f64().or_else(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TrainerState> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(NAME);
        std::fs::write(&path, text).expect("writes");
        TrainerState::read(&path)
    }

    #[test]
    fn losses_are_read_with_their_steps() {
        let state = read(
            r#"{"global_step": 20, "log_history": [
                {"epoch": 0.1, "grad_norm": 1.0, "loss": 3.5, "step": 10},
                {"eval_loss": 3.25, "eval_runtime": 1.0, "step": 10},
                {"loss": NaN, "step": 20}, {"loss": 1.0}, 7,
                {"train_loss": 3.0, "train_runtime": 9.0, "step": 20}]}"#,
        );
        let state = state.expect("reads");
        assert_eq!(state.global_step, 20);
        assert_eq!(state.training[0], (10, 3.5));
        assert!(state.training[1].1.is_nan() && state.training.len() == 2);
        assert_eq!(state.evaluation, [(10, 3.25)]);
    }

    #[test]
    fn a_state_without_losses_has_none_and_a_damaged_one_is_an_error() {
        for text in ["{}", r#"{"log_history": 3}"#, r#"{"log_history": [[]]}"#] {
            assert_eq!(read(text).expect("reads"), TrainerState::default());
        }
        assert!(read("{\"log_history\": [").is_err());
    }
}
