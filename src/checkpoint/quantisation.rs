//! Quantisation as the configuration states it: the method, and whether its tensors can be read.

use std::fmt;

use attnscope_compute::error::{Error, Result};
use serde_json::{Map, Value};

use super::config::Config;

const KEY: &str = "quantization_config";
const METHOD: &str = "quant_method";
const BLOCK: &str = "weight_block_size";

/// Readable methods, for messages.
const READABLE: &str = "readable: gptq, awq, bitsandbytes, compressed-tensors, torchao, fp8, mxfp4, MLX, and weights that are not quantised";

/// Key of MLX's description.
const MLX_KEY: &str = "quantization";

/// A larger block means damage: no matrix is that large.
const LARGEST_BLOCK: u64 = 1 << 26;

/// Quantisation method of the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantisation {
    /// None stated.
    None,
    /// Experts with blocks of 32 four-bit floats, each with a power-of-two scale.
    Mxfp4,
    /// Eight-bit matrices with one scale per block of [rows, columns].
    Fp8 { block: [usize; 2] },
    /// Integers of a few bits in groups of inputs (0: one group for all); zero points are stored minus `zeros_less`.
    Gptq {
        bits: u32,
        group: usize,
        zeros_less: i32,
    },
    /// Four-bit integers in groups of inputs.
    Awq { group: usize },
    /// Eight bits with a scale per row, or four bits by a lookup table.
    Bitsandbytes,
    /// Several layouts, distinguished by the names of their tensors.
    CompressedTensors,
    /// Several classes, named in the file's header.
    Torchao,
    /// Integers of a few bits in groups, each with a scale and a bias.
    Mlx { bits: u32, group: usize },
}

impl Quantisation {
    /// Default number of rows and columns that share a scale.
    pub(super) const USUAL_BLOCK: [usize; 2] = [128, 128];

    /// Reads `quantization_config` of the whole model, or else of its text part.
    ///
    /// # Errors
    /// When the method is not readable, or the block size is invalid.
    pub fn read(config: &Config) -> Result<Self> {
        let mut found = Self::None;
        let text_part = config.text_part();
        let parts = [(Some(config), ""), (text_part.as_ref(), "text_config.")];
        for (part, at) in parts {
            // MLX writes its description under both keys.
            let of_mlx = part.and_then(|part| part.get(MLX_KEY));
            let said = part.and_then(|part| part.get(KEY)).or(of_mlx);
            if let Some(said) = said.filter(|said| !said.is_null()) {
                // The description of the whole model takes precedence; that of the text part must be readable too.
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
            Some(Value::String(method)) if method == "gptq" => gptq(config, key, said),
            Some(Value::String(method)) if method == "awq" => {
                let version = said
                    .get("version")
                    .and_then(Value::as_str)
                    .unwrap_or("gemm");
                let bits = whole(config, key, said, "bits", 4)?;
                if !version.eq_ignore_ascii_case("gemm") || bits != 4 {
                    let problem = format!(
                        "awq of {bits} bits, version {version}, cannot be read; readable: 4 bits, version gemm"
                    );
                    return Err(Error::config(config.path(), method_key, problem));
                }
                let group = whole(config, key, said, "group_size", 128)?;
                Ok(Self::Awq { group })
            }
            Some(Value::String(method)) if method == "bitsandbytes" => Ok(Self::Bitsandbytes),
            Some(Value::String(method)) if method == "compressed-tensors" => {
                Ok(Self::CompressedTensors)
            }
            Some(Value::String(method)) if method == "torchao" => Ok(Self::Torchao),
            Some(other) => {
                let problem = format!("{} cannot be read; {READABLE}", short(other));
                Err(Error::config(config.path(), method_key, problem))
            }
            None if is_mlx(said) => {
                let bits = whole(config, key, said, "bits", 4)?;
                let group = whole(config, key, said, "group_size", 64)?;
                let mode = said.get("mode").and_then(Value::as_str).unwrap_or("affine");
                if mode != "affine" || group == 0 {
                    let problem = format!("{mode} cannot be read; readable of MLX: affine");
                    return Err(Error::config(config.path(), format!("{key}.mode"), problem));
                }
                Ok(Self::Mlx {
                    bits: bits as u32,
                    group,
                })
            }
            None if is_bitsandbytes(said) => Ok(Self::Bitsandbytes),
            None => {
                // Older bitsandbytes configurations have one of these keys instead of a method.
                let old = said.keys().find(|key| key.starts_with("load_in_"));
                let found = old.map_or(String::new(), |old| format!(", found {old}"));
                let problem = format!("missing{found}; {READABLE}");
                Err(Error::config(config.path(), method_key, problem))
            }
        }
    }
}

/// MLX states no method, but a group size, bits, and exceptions for parts of the model.
fn is_mlx(said: &Map<String, Value>) -> bool {
    said.contains_key("group_size") && said.contains_key("bits")
}

/// Older bitsandbytes configurations have one of these keys instead of a method.
fn is_bitsandbytes(said: &Map<String, Value>) -> bool {
    ["load_in_8bit", "load_in_4bit"]
        .iter()
        .any(|key| said.get(*key) == Some(&Value::Bool(true)))
}

fn gptq(config: &Config, key: &str, said: &Map<String, Value>) -> Result<Quantisation> {
    let form = said
        .get("checkpoint_format")
        .and_then(Value::as_str)
        .unwrap_or("gptq");
    let zeros_less = match form {
        "gptq" => 1,
        "gptq_v2" => 0,
        other => {
            let problem = format!("{other} cannot be read; readable: gptq and gptq_v2");
            return Err(Error::config(
                config.path(),
                format!("{key}.checkpoint_format"),
                problem,
            ));
        }
    };
    let bits = whole(config, key, said, "bits", 4)?;
    if !(2..=8).contains(&bits) {
        let problem = format!("expected 2 to 8, found {bits}");
        return Err(Error::config(config.path(), format!("{key}.bits"), problem));
    }
    Ok(Quantisation::Gptq {
        bits: bits as u32,
        group: whole(config, key, said, "group_size", 128)?,
        zeros_less,
    })
}

/// Reads a whole number; −1, which means all, becomes 0.
fn whole(
    config: &Config,
    key: &str,
    said: &Map<String, Value>,
    name: &str,
    default: usize,
) -> Result<usize> {
    let Some(value) = said.get(name).filter(|value| !value.is_null()) else {
        return Ok(default);
    };
    match value.as_i64() {
        Some(-1) => Ok(0),
        Some(n) if (0..=LARGEST_BLOCK as i64).contains(&n) => Ok(n as usize),
        _ => {
            let problem = format!("expected a whole number, found {}", short(value));
            Err(Error::config(
                config.path(),
                format!("{key}.{name}"),
                problem,
            ))
        }
    }
}

/// Reads the number of rows and columns that share a scale.
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

/// Formats a value for a message, shortened.
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
            Self::Gptq { bits, group, .. } => write!(f, "gptq, {bits} bits, groups of {group}"),
            Self::Awq { group } => write!(f, "awq, 4 bits, groups of {group}"),
            Self::Bitsandbytes => f.write_str("bitsandbytes"),
            Self::CompressedTensors => f.write_str("compressed-tensors"),
            Self::Torchao => write!(f, "torchao"),
            Self::Mlx { bits, group } => write!(f, "MLX, {bits} bits, groups of {group}"),
        }
    }
}
