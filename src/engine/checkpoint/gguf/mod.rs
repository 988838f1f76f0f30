//! GGUF files: one file with configuration, vocabulary and weights, often quantised; read under Hugging Face's names.

mod config;
mod element_types;
mod header;
mod kinds;
mod metadata;
mod names;
mod rope;

mod value;
mod vocabulary;

use std::path::{Path, PathBuf};

pub use vocabulary::{Vocabulary, Words};

use self::config::Sizes;
use self::header::{Header, StoredTensor};
use self::metadata::Metadata;
use self::names::{ARCHITECTURES, Architecture, Meaning};
use super::config::Config;
use super::data_file::DataFile;
use super::shards;
use super::stored::Stored;
use super::tensors::{TensorInfo, Tensors};
use crate::error::{Error, Result};

/// How the names of these files end.
const ENDING: &str = "gguf";

/// Experts of one layer at most, each of which costs a description: llama.cpp's own limit.
const MOST_EXPERTS: usize = 512;

/// An open GGUF file: header checked, no weight touched.
#[derive(Debug)]
pub struct Gguf {
    /// In the words of `config.json`.
    pub config: Config,
    /// Under the names that Hugging Face gives them.
    pub tensors: Tensors,
    pub vocabulary: Option<Vocabulary>,
}

/// What there is to say of settings that the converter of a file left out.
pub(super) fn remark(config: &Config) -> Option<String> {
    config::remark(config)
}

/// Whether a file is one of this format, whatever it is called.
pub fn is_gguf(path: &Path) -> bool {
    path.is_file() && (is_called_gguf(path) || begins_as_gguf(path))
}

fn is_called_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case(ENDING))
}

/// The only model of this format in a directory, by its file or the first of its parts; projectors of pictures are none.
///
/// # Errors
/// When a directory holds several.
pub(super) fn file_at(path: &Path) -> Result<Option<PathBuf>> {
    let Ok(entries) = std::fs::read_dir(path) else {
        return Ok(None);
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.is_file() && is_called_gguf(path) && !super::kinds::is_beside_weights(path)
        })
        .collect();
    found.sort();
    if let Some(first) = found.first()
        && let Some(parts) = shards::set_of(first)?
        && found.iter().all(|file| parts.contains(file))
    {
        return Ok(Some(found.remove(0)));
    }
    if found.len() > 1 {
        let problem = format!(
            "holds {} GGUF files; --weights FILE names the one to open",
            found.len()
        );
        return Err(Error::file(path, problem));
    }
    Ok(found.pop())
}

/// Whether a file says that it is one: some programs keep these files under names of their own.
fn begins_as_gguf(path: &Path) -> bool {
    let magic = header::MAGIC;
    DataFile::open(path)
        .and_then(|file| file.read(0..magic.len()).map(|found| *found == *magic))
        .unwrap_or(false)
}

/// Opens one GGUF file.
///
/// # Errors
/// When it cannot be read, its header lies, or it holds something other than a model of a known architecture.
pub fn open_file(path: &Path) -> Result<Gguf> {
    open(DataFile::open(path)?, &[])
}

/// Opens the parts of one model, in order; the first of them says what the model is.
///
/// # Errors
/// As for [`open_file`], and when a tensor stands in two of them.
pub fn open_parts(paths: &[PathBuf]) -> Result<Gguf> {
    match paths {
        [first, others @ ..] => open(DataFile::open(first)?, others),
        [] => Err(Error::file("", "expected a file, found none")),
    }
}

fn open(file: DataFile, others: &[PathBuf]) -> Result<Gguf> {
    let path = file.path().to_path_buf();
    let (Header { entries, tensors }, data) = header::read(&file)?;
    let metadata = Metadata::new(&path, &data, &entries);
    let architecture = architecture(&metadata, 1 + others.len())?;
    let sizes = config::sizes(&metadata, architecture.name)?;
    let mut named = Tensors::default();
    named.files.push(file);
    for tensor in tensors {
        add(&mut named, &path, architecture, sizes, tensor)?;
    }
    for (idx, path) in others.iter().enumerate() {
        let file = DataFile::open(path)?;
        let (Header { entries, tensors }, data) = header::read(&file)?;
        let number = Metadata::new(path, &data, &entries).whole("split.no")?;
        if number.is_some_and(|number| number != idx as u64 + 1) {
            let problem = format!("expected part {}, found another", idx + 1);
            return Err(Error::config(path, "split.no", problem));
        }
        named.files.push(file);
        for tensor in tensors {
            add(&mut named, path, architecture, sizes, tensor)?;
        }
    }
    let values = config::hugging_face(&metadata, architecture.name, sizes, &named)?;
    Ok(Gguf {
        config: Config::from_map(&path, values),
        vocabulary: Vocabulary::find(&metadata, &data)?,
        tensors: named,
    })
}

/// The architecture of a file that holds one whole model.
fn architecture(metadata: &Metadata<'_>, n_held: usize) -> Result<&'static Architecture> {
    let path = metadata.path;
    if let Some(n_parts) = metadata
        .whole("split.count")?
        .filter(|n| *n > 1 && *n != n_held as u64)
    {
        let problem = format!(
            "is one of {n_parts} parts of a model, found {n_held}; expected all of them under their own names, or one merged file"
        );
        return Err(Error::file(path, problem));
    }
    if let Some(kind) = metadata
        .word("general.type")?
        .filter(|kind| kind != "model")
    {
        let problem = format!("expected \"model\", found {kind:?}");
        return Err(Error::config(path, "general.type", problem));
    }
    const KEY: &str = "general.architecture";
    let known = || {
        let names: Vec<&str> = ARCHITECTURES.iter().map(|known| known.name).collect();
        names.join(", ")
    };
    let Some(name) = metadata.word(KEY)? else {
        let problem = format!("missing, expected one of: {}", known());
        return Err(Error::config(path, KEY, problem));
    };
    Architecture::named(&name).ok_or_else(|| {
        let problem = format!("{name:?} is not known; known: {}", known());
        Error::config(path, KEY, problem)
    })
}

/// Adds a tensor under the name that a model looks for, with what its converter did to it.
fn add(
    named: &mut Tensors,
    path: &Path,
    architecture: &Architecture,
    sizes: Sizes,
    tensor: StoredTensor,
) -> Result<()> {
    let StoredTensor {
        name: in_file,
        dtype,
        mut shape,
        bytes,
    } = tensor;
    let file_idx = named.files.len() - 1;
    let mut insert = |name: String, shape: Vec<usize>, bytes, stored| {
        let info = TensorInfo {
            strides: None,
            dtype,
            shape,
            file_idx,
            bytes,
            stored,
            scales: None,
            made: None,
        };
        match named.index.insert(name, info) {
            None => Ok(()),
            Some(_) => Err(Error::tensor(path, &in_file, "stands twice in the file")),
        }
    };
    match architecture.meaning(&in_file) {
        Meaning::Unknown => insert(in_file.clone(), shape, bytes, Stored::AsIs),
        Meaning::Whole { name, part } => {
            let stored = stored(path, architecture, sizes, &in_file, part, &name, &shape)?;
            if stored == Stored::Transposed {
                shape.reverse();
            }
            insert(name, shape, bytes, stored)
        }
        Meaning::Experts { before, after } => {
            // Biases have one row for each expert.
            let (n_experts, of_one) = match shape[..] {
                [n_experts, n_out, n_in] => (n_experts, vec![n_out, n_in]),
                [n_experts, n_out] if in_file.ends_with(".bias") => (n_experts, vec![n_out]),
                _ => {
                    let problem = format!("expected one matrix per expert, found shape {shape:?}");
                    return Err(Error::tensor(path, &in_file, problem));
                }
            };
            let n_bytes = bytes.len() / n_experts;
            if n_experts > MOST_EXPERTS {
                let problem = format!("expected at most {MOST_EXPERTS} experts, found {n_experts}");
                return Err(Error::tensor(path, &in_file, problem));
            }
            for expert in 0..n_experts {
                let start = bytes.start + expert * n_bytes;
                let name = format!("{before}{expert}{after}");
                let bytes = start..start + n_bytes;
                insert(name, of_one.clone(), bytes, Stored::AsIs)?;
            }
            Ok(())
        }
    }
}

/// What the converter did to a tensor, and whether its shape allows that.
fn stored(
    path: &Path,
    architecture: &Architecture,
    sizes: Sizes,
    in_file: &str,
    part: &str,
    name: &str,
    shape: &[usize],
) -> Result<Stored> {
    let n_heads = match part {
        "attn_q" if architecture.halves_alternate => Some(sizes.n_heads),
        "attn_k" if architecture.halves_alternate => Some(sizes.n_kv_heads),
        _ => None,
    };
    if let Some(n_heads) = n_heads {
        // The sizes were held below 2²⁶ when they were read.
        let (n_rows, n_heads) = (shape[0], n_heads as usize);
        if !n_rows.is_multiple_of(2 * n_heads) {
            let problem =
                format!("expected rows for {n_heads} heads of an even width, found {n_rows}");
            return Err(Error::tensor(path, in_file, problem));
        }
        return Ok(Stored::HalvesAlternate {
            d_head: n_rows / n_heads,
        });
    }
    if architecture.norms_plus_one && name.ends_with("norm.weight") {
        return Ok(Stored::Plus(1.0));
    }
    let is_linear = ["attn_qkv", "attn_output", "ffn_up", "ffn_down"].contains(&part);
    Ok(
        if architecture.is_transposed && is_linear && shape.len() == 2 {
            Stored::Transposed
        } else {
            Stored::AsIs
        },
    )
}
