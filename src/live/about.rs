//! What a live subject says of itself when it is ready.

use std::path::PathBuf;

use serde::Deserialize;

/// A live subject, as its process describes it. Fields that it leaves out are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct About {
    pub name: String,
    /// Framework and version: `torch 2.9.0`.
    pub framework: String,
    /// Class of the model.
    pub model: String,
    pub parameters: u64,
    pub dtype: String,
    pub device: String,
    /// Name of the tokenizer; `None` if it takes ids alone.
    pub tokenizer: Option<String>,
    /// Files of the person's own code that were read.
    pub files: Vec<PathBuf>,
    /// What the code is meant to be, as far as it says so.
    pub intends: Option<String>,
    pub lacks: Lacks,
}

/// Why something cannot be asked of a live subject; `None` if it can.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Lacks {
    /// Token ids, of another run for instance.
    pub tokens: Option<String>,
    /// Another text.
    pub text: Option<String>,
    /// Changed attention.
    pub what_if: Option<String>,
    /// Changed inputs.
    pub probes: Option<String>,
    /// Loading the code anew.
    pub reload: Option<String>,
}

impl About {
    /// One line: model, size, dtype, device and framework.
    pub fn words(&self) -> String {
        let parameters = self.parameters as f64;
        let size = match self.parameters {
            0 => String::new(),
            1..1_000_000 => format!(" · {:.1}k parameters", parameters / 1e3),
            _ => format!(" · {:.1}M parameters", parameters / 1e6),
        };
        let further = [&self.dtype, &self.device, &self.framework];
        let further = further.into_iter().filter(|word| !word.is_empty());
        let further: String = further.map(|word| format!(" · {word}")).collect();
        format!("{}{size}{further}", self.model)
    }
}
