//! Matrices of a few bits and what belongs to each of them, paired by the ends of their names into one tensor `NAME.weight`.

mod bitsandbytes;
mod integers;
mod torchao;

use std::sync::Arc;

use self::bitsandbytes::{eight_bit, four_bit};
use self::integers::{awq, compressed, gptq, mlx, scaled};
pub(super) use self::torchao::Parts;
use self::torchao::torchao;
use super::data_file::DataFile;
use super::dtype::Dtype;
use super::made::{Made, Quantised};
use super::quantisation::Quantisation;
use super::stored::Stored;
use super::tensors::{TensorInfo, Tensors};
use attnscope_compute::error::{Error, Result};

/// What one module's tensors become.
struct Paired {
    name: &'static str,
    shape: Vec<usize>,
    quantised: Quantised,
    /// Ends of the names of all that was used.
    used: Vec<String>,
}

impl Paired {
    fn info(self) -> std::result::Result<TensorInfo, String> {
        let codes = &self.quantised.codes;
        let parts = self.quantised.parts();
        if parts.iter().any(|part| part.strides.is_some()) {
            return Err(
                "expected row-major elements of a quantised tensor, found another order".to_owned(),
            );
        }
        if self.shape.contains(&0) || super::shape::n_elements(&self.shape).is_none() {
            return Err(format!("expected a matrix, found shape {:?}", self.shape));
        }
        Ok(TensorInfo {
            dtype: Dtype::Packed(self.name),
            shape: self.shape,
            strides: None,
            file_idx: codes.file_idx,
            bytes: codes.bytes.clone(),
            stored: Stored::AsIs,
            scales: None,
            made: Some(Arc::new(Made::Quantised(Box::new(self.quantised)))),
        })
    }
}

/// The matrix that parts of a tensor of torchao make.
///
/// # Errors
/// When they do not fit each other.
pub(super) fn of_parts(
    parts: Parts,
    files: &[DataFile],
) -> std::result::Result<TensorInfo, String> {
    torchao::pair(parts, files)?.info()
}

/// Puts packed matrices together with what belongs to them.
///
/// # Errors
/// Names the tensor when something that belongs to it is missing, or does not fit it.
pub(super) fn combine(tensors: &mut Tensors, quantisation: Quantisation) -> Result<()> {
    let (end, pair): (&str, Pair) = match quantisation {
        Quantisation::Gptq { .. } => (".qweight", gptq),
        Quantisation::Awq { .. } => (".qweight", awq),
        Quantisation::Mlx { .. } => (".scales", mlx),
        Quantisation::Torchao => (torchao::CODES, torchao),
        Quantisation::CompressedTensors => {
            each(tensors, ".weight_packed", quantisation, compressed)?;
            (".weight_scale", scaled)
        }
        Quantisation::Bitsandbytes => {
            each(tensors, ".weight.absmax", quantisation, four_bit)?;
            (".SCB", eight_bit)
        }
        Quantisation::Fp8 { .. } => (".weight_scale", scaled),
        Quantisation::None | Quantisation::Mxfp4 => return Ok(()),
    };
    each(tensors, end, quantisation, pair)
}

type Pair = fn(&Module<'_>, Quantisation) -> std::result::Result<Option<Paired>, String>;

/// Pairs every module that has a tensor whose name ends so.
fn each(tensors: &mut Tensors, end: &str, quantisation: Quantisation, pair: Pair) -> Result<()> {
    let modules: Vec<String> = tensors
        .index
        .keys()
        .filter_map(|name| name.strip_suffix(end).filter(|name| !name.is_empty()))
        .map(str::to_owned)
        .collect();
    for name in modules {
        let module = Module {
            tensors,
            name: &name,
        };
        let tensor = format!("{name}{end}");
        let refused = |problem: String| Error::tensor(tensors.file_of(&tensor), &tensor, problem);
        let Some(paired) = pair(&module, quantisation).map_err(refused)? else {
            continue;
        };
        let used = paired.used.clone();
        let refused = |problem: String| Error::tensor(tensors.file_of(&tensor), &tensor, problem);
        let info = paired.info().map_err(refused)?;
        for end in used {
            tensors.index.remove(&format!("{name}{end}"));
        }
        tensors.index.insert(format!("{name}.weight"), info);
    }
    Ok(())
}

/// The tensors of one module.
struct Module<'a> {
    tensors: &'a Tensors,
    name: &'a str,
}

impl Module<'_> {
    fn get(&self, end: &str) -> Option<TensorInfo> {
        self.tensors.info(&format!("{}{end}", self.name)).cloned()
    }

    fn need(&self, end: &str) -> std::result::Result<TensorInfo, String> {
        self.get(end)
            .ok_or_else(|| format!("what belongs to it, {}{end}, is missing", self.name))
    }

    fn files(&self) -> &[DataFile] {
        &self.tensors.files
    }
}

fn ends(ends: &[&str]) -> Vec<String> {
    ends.iter().map(|end| (*end).to_owned()).collect()
}

fn matrix(info: &TensorInfo, what: &str) -> std::result::Result<[usize; 2], String> {
    match info.shape[..] {
        [n, m] if n > 0 && m > 0 => Ok([n, m]),
        _ => Err(format!(
            "expected a matrix of {what}, found shape {:?}",
            info.shape
        )),
    }
}

fn expect(is_so: bool, problem: impl FnOnce() -> String) -> std::result::Result<(), String> {
    if is_so { Ok(()) } else { Err(problem()) }
}

fn is_words(info: &TensorInfo) -> bool {
    matches!(info.dtype, Dtype::Other("i32" | "u32", 4))
}

/// Bits of each number where so many words of 32 hold so many of them.
fn bits_of(n_words: usize, n_numbers: usize) -> std::result::Result<u32, String> {
    let n_bits = n_words.checked_mul(32).filter(|_| n_numbers > 0);
    let bits = n_bits
        .filter(|n| n.is_multiple_of(n_numbers))
        .map(|n| n / n_numbers);
    match bits {
        Some(bits @ 1..=8) => Ok(bits as u32),
        _ => Err(format!(
            "{n_words} words of 32 bits do not hold {n_numbers} numbers of up to 8 bits"
        )),
    }
}
