//! The tensors of a module with a packed matrix, and the tensor that they become.

use std::sync::Arc;

use crate::data_file::DataFile;
use crate::dtype::Dtype;
use crate::made::{ComputedTensor, Quantised};
use crate::shape::n_elements;
use crate::stored::Stored;
use crate::tensor_info::TensorInfo;
use crate::tensors::Tensors;

/// The matrix that a module's tensors become.
pub(super) struct CombinedMatrix {
    pub name: &'static str,
    pub shape: Vec<usize>,
    pub quantised: Quantised,
    /// Endings of the names of all tensors that it was made from.
    pub used: Vec<String>,
}

impl CombinedMatrix {
    pub fn info(self) -> std::result::Result<TensorInfo, String> {
        let codes = &self.quantised.codes;
        let parts = self.quantised.parts();
        if parts.iter().any(|part| part.strides.is_some()) {
            return Err(
                "expected row-major elements of a quantised tensor, found another order".to_owned(),
            );
        }
        if self.shape.contains(&0) || n_elements(&self.shape).is_none() {
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
            made: Some(Arc::new(ComputedTensor::Quantised(Box::new(
                self.quantised,
            )))),
        })
    }
}

/// The tensors of one module.
pub(super) struct Module<'a> {
    pub tensors: &'a Tensors,
    pub name: &'a str,
}

impl Module<'_> {
    pub fn get(&self, end: &str) -> Option<TensorInfo> {
        self.tensors.info(&format!("{}{end}", self.name)).cloned()
    }

    pub fn need(&self, end: &str) -> std::result::Result<TensorInfo, String> {
        self.get(end)
            .ok_or_else(|| format!("what belongs to it, {}{end}, is missing", self.name))
    }

    pub fn files(&self) -> &[DataFile] {
        &self.tensors.files
    }
}

/// Copies a list of name endings.
pub(super) fn ends(ends: &[&str]) -> Vec<String> {
    ends.iter().map(|end| (*end).to_owned()).collect()
}

/// Returns the two sizes of a matrix.
pub(super) fn matrix(info: &TensorInfo, what: &str) -> std::result::Result<[usize; 2], String> {
    match info.shape[..] {
        [n, m] if n > 0 && m > 0 => Ok([n, m]),
        _ => Err(format!(
            "expected a matrix of {what}, found shape {:?}",
            info.shape
        )),
    }
}

/// Returns the problem as an error unless `is_so`.
pub(super) fn expect(
    is_so: bool,
    problem: impl FnOnce() -> String,
) -> std::result::Result<(), String> {
    if is_so { Ok(()) } else { Err(problem()) }
}

/// Whether codes are packed in 32-bit words.
pub(super) fn is_words(info: &TensorInfo) -> bool {
    matches!(info.dtype, Dtype::Other("i32" | "u32", 4))
}

/// Bits per number if `n_words` 32-bit words hold `n_numbers`.
pub(super) fn bits_of(n_words: usize, n_numbers: usize) -> std::result::Result<u32, String> {
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
