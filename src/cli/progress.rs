//! Progress of a batch run on standard error: a bar on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write, stderr};

use indicatif::{ProgressBar, ProgressStyle};

use crate::analysis::Progress;

/// Shows how far a run is.
pub struct Meter {
    bar: Option<ProgressBar>,
    n_layers: usize,
}

impl Meter {
    pub fn new(n_layers: usize) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(n_layers as u64 + 1);
            if let Ok(style) =
                ProgressStyle::with_template("{msg:>16} [{bar:30}] {pos}/{len} {elapsed}")
            {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, n_layers }
    }

    pub fn show(&self, progress: Progress) {
        let (position, message) = match progress {
            Progress::Embedding => (0, "embedding".to_owned()),
            Progress::Layer(layer_idx) => {
                let of = self.n_layers;
                (layer_idx, format!("layer {layer_idx} of {of}"))
            }
            Progress::Predictions => (self.n_layers, "predictions".to_owned()),
        };
        match &self.bar {
            Some(bar) => {
                bar.set_position(position as u64);
                bar.set_message(message);
            }
            None => note(&message),
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// One line to standard error. A reader that has gone away does not matter.
pub fn note(line: &str) {
    let _ = writeln!(stderr(), "{line}");
}
