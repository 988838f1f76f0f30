//! What a configuration says about quantised weights: which method, and whether its tensors can be read.

use std::fmt;

use serde_json::{Map, Value};

use super::config::Config;
use crate::error::{Error, Result};

const KEY: &str = "quantization_config";
const METHOD: &str = "quant_method";
const BLOCK: &str = "weight_block_size";

/// Methods that can be read, for messages.
const READABLE: &str = "readable: mxfp4, fp8 with block scales, and weights that are not quantised";

/// A block larger than any matrix is damage.
const LARGEST_BLOCK: u64 = 1 << 26;

/// How the weights were quantised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantisation {
    /// The configuration says nothing.
    None,
    /// Experts as blocks of 32 four-bit numbers with a power of two each.
    Mxfp4,
    /// Matrices of eight-bit numbers with one scale for a block of [rows, columns].
    Fp8 { block: [usize; 2] },
}

impl Quantisation {
    /// Rows and columns that share a scale where nothing says otherwise.
    pub(super) const USUAL_BLOCK: [usize; 2] = [128, 128];

    /// Reads `quantization_config`, of the whole model or of its text part.
    ///
    /// # Errors
    /// When the method is one whose tensors cannot be read, or the block size is none.
    pub fn read(config: &Config) -> Result<Self> {
        let mut found = Self::None;
        let text_part = config.text_part();
        let parts = [(Some(config), ""), (text_part.as_ref(), "text_config.")];
        for (part, at) in parts {
            let said = part.and_then(|part| part.get(KEY));
            if let Some(said) = said.filter(|said| !said.is_null()) {
                // What the whole model says comes first; what its text part says must be readable too.
                let of_part = Self::of(config, &format!("{at}{KEY}"), said)?;
                if found == Self::None {
                    found = of_part;
                }
            }
        }
        Ok(found)
    }

    fn of(config: &Config, key: &str, said: &Value) -> Result<Self> {
        let Value::Object(said) = said else {
            let problem = format!("expected an object, found {}; {READABLE}", short(said));
            return Err(Error::config(config.path(), key, problem));
        };
        let method_key = format!("{key}.{METHOD}");
        match said.get(METHOD) {
            Some(Value::String(method)) if method == "mxfp4" => Ok(Self::Mxfp4),
            Some(Value::String(method)) if method == "fp8" => {
                let block = block(config, &format!("{key}.{BLOCK}"), said)?;
                Ok(Self::Fp8 { block })
            }
            Some(other) => {
                let problem = format!("{} cannot be read; {READABLE}", short(other));
                Err(Error::config(config.path(), method_key, problem))
            }
            None => {
                // Before the method had a key, bitsandbytes was known by one of these.
                let old = said.keys().find(|key| key.starts_with("load_in_"));
                let found = old.map_or(String::new(), |old| format!(", found {old}"));
                let problem = format!("missing{found}; {READABLE}");
                Err(Error::config(config.path(), method_key, problem))
            }
        }
    }
}

/// Rows and columns that share a scale.
fn block(config: &Config, key: &str, said: &Map<String, Value>) -> Result<[usize; 2]> {
    let Some(value) = said.get(BLOCK) else {
        return Ok(Quantisation::USUAL_BLOCK);
    };
    let size = |value: &Value| {
        let size = value
            .as_u64()
            .filter(|size| (1..=LARGEST_BLOCK).contains(size))?;
        usize::try_from(size).ok()
    };
    let sizes: Option<Vec<usize>> = value
        .as_array()
        .and_then(|list| list.iter().map(size).collect());
    match sizes.as_deref() {
        Some(&[high, wide]) => Ok([high, wide]),
        _ => {
            let problem = format!("expected two positive sizes, found {}", short(value));
            Err(Error::config(config.path(), key, problem))
        }
    }
}

/// A value as a message shows it: its beginning.
fn short(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

impl fmt::Display for Quantisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Mxfp4 => f.write_str("mxfp4"),
            Self::Fp8 {
                block: [high, wide],
            } => write!(f, "fp8, blocks of {high} × {wide}"),
        }
    }
}
