//! A session: the device to compute on, and the thresholds of the checks.

use std::path::PathBuf;
use std::sync::Arc;

use attnscope_checkpoint::Opening;
use attnscope_checks::Thresholds;
use attnscope_compute::ops::Device;

use super::error::Error;
use super::model::Model;

/// Device and thresholds of all models opened through it. Sessions are independent of each other.
#[derive(Debug, Clone, Default)]
pub struct Session {
    device: Device,
    thresholds: Thresholds,
}

impl Session {
    /// A session on the CPU, with the default thresholds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the device to compute on.
    #[must_use]
    pub fn on(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Sets a threshold of a check, by its name in `attnscope thresholds`, such as `score-explosion.max_abs_score`.
    ///
    /// # Errors
    /// [`ErrorKind::Setting`](super::ErrorKind::Setting) when there is no threshold of this name.
    pub fn with_threshold(mut self, name: &str, value: f64) -> Result<Self, Error> {
        if self.thresholds.set(name, value) {
            return Ok(self);
        }
        let known: Vec<String> = self.thresholds.names().collect();
        Err(Error::setting(format!(
            "threshold {name} is not known; known: {}",
            known.join(", ")
        )))
    }

    /// Opens a checkpoint: a Hugging Face directory, or a file of weights. Weights are read when they are needed.
    ///
    /// # Errors
    /// When a file cannot be read, or no model family fits the checkpoint.
    pub fn open(&self, checkpoint: impl Into<PathBuf>) -> Result<Model, Error> {
        let checkpoint = Opening::from(Some(checkpoint.into())).open()?;
        let model = attnscope_families::read(checkpoint)?;
        let tokenizer = attnscope_prompt::Tokenizer::open(&model.checkpoint.tokenizer)?;
        let thresholds = Arc::new(self.thresholds.clone());
        Ok(Model::new(model, tokenizer, self.device, thresholds))
    }
}
