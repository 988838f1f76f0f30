//! A session: on what to compute, and where checks draw their lines.

use std::path::PathBuf;
use std::sync::Arc;

use attnscope_checkpoint::Opening;
use attnscope_checks::Thresholds;
use attnscope_compute::ops::Device;

use super::error::Error;
use super::model::Model;

/// Settings for everything opened through it. Sessions know nothing of each other.
#[derive(Debug, Clone, Default)]
pub struct Session {
    device: Device,
    thresholds: Thresholds,
}

impl Session {
    /// The CPU, and the default thresholds.
    pub fn new() -> Self {
        Self::default()
    }

    /// Computes on another device.
    #[must_use]
    pub fn on(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Moves a threshold of a check, by its name in `attnscope thresholds`: `score-explosion.max_abs_score`.
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

    /// Opens a checkpoint: a directory of Hugging Face's, or a file of weights. Weights are read when they are needed.
    ///
    /// # Errors
    /// When a file cannot be read, or no family reads the checkpoint.
    pub fn open(&self, checkpoint: impl Into<PathBuf>) -> Result<Model, Error> {
        let checkpoint = Opening::from(Some(checkpoint.into())).open()?;
        let model = attnscope_families::read(checkpoint)?;
        let tokenizer = attnscope_prompt::Tokenizer::open(&model.checkpoint.tokenizer)?;
        let thresholds = Arc::new(self.thresholds.clone());
        Ok(Model::new(model, tokenizer, self.device, thresholds))
    }
}
