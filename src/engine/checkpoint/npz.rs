//! Weights in an archive of NumPy arrays (`.npz`): each array that lies in the file as it is becomes a tensor of its name.

use std::path::Path;

use super::data_file::DataFile;
use super::dtype::Dtype;
use super::npy::Npy;
use super::pytorch::state_dict::Problem;
use super::pytorch::zip::Archive;
use super::stored::Stored;
use super::tensors::{TensorInfo, Tensors};
use crate::error::{Error, Result};

/// What every array of an archive is called after its name.
const ENDING: &str = ".npy";
/// Bytes of a header that are read: NumPy's own are far shorter.
const HEADER: usize = 1 << 12;
/// Elements of an array at most.
const MOST_ELEMENTS: u64 = 1 << 40;

/// Opens an archive of arrays.
///
/// # Errors
/// When it is no such archive, an array is compressed, or its elements cannot be read.
pub fn open_file(path: &Path) -> Result<Tensors> {
    let file = DataFile::open(path)?;
    let archive = Archive::read(&file).map_err(|problem| match problem {
        Problem::File(problem) | Problem::Tensor(_, problem) => Error::file(path, problem),
        Problem::Read(error) => error,
    })?;
    let names: Vec<String> = archive.names().map(str::to_owned).collect();
    let mut tensors = Tensors::default();
    for member in &names {
        let Some(name) = member.strip_suffix(ENDING) else {
            continue;
        };
        let refused = |problem: String| Error::tensor(path, name, problem);
        let place = archive.stored(member).map_err(|problem| {
            refused(format!(
                "{problem}; numpy.savez writes arrays without compression"
            ))
        })?;
        let Some(place) = place else { continue };
        let beginning = file.read(place.start..place.end.min(place.start + HEADER))?;
        let array = Npy::open(beginning.as_ref(), MOST_ELEMENTS).map_err(&refused)?;
        array.fits_into(place.len() as u64).map_err(&refused)?;
        let dtype = match array.stored_as().as_str() {
            "f16" => Dtype::F16,
            "f32" => Dtype::F32,
            "f64" => Dtype::F64,
            "<i8" => Dtype::Other("i64", 8),
            "<i4" => Dtype::Other("i32", 4),
            "|u1" => Dtype::Other("u8", 1),
            "|i1" => Dtype::Other("i8", 1),
            "|b1" => Dtype::Other("bool", 1),
            _ => continue,
        };
        if array.is_big_endian() {
            return Err(refused(
                "expected bytes with the least first, found the other order".to_owned(),
            ));
        }
        let start = place.start + array.n_before();
        let info = TensorInfo {
            dtype,
            strides: array.is_fortran.then(|| fortran_strides(&array.shape)),
            file_idx: 0,
            bytes: start..start + array.n_elements() * dtype.size(),
            shape: array.shape,
            stored: Stored::AsIs,
            scales: None,
            made: None,
        };
        tensors.index.insert(name.to_owned(), info);
    }
    if tensors.index.is_empty() {
        return Err(Error::file(
            path,
            "holds no arrays of numbers; expected weights by their names",
        ));
    }
    tensors.files.push(file);
    Ok(tensors)
}

/// Elements from one index to the next where the first axis runs fastest.
fn fortran_strides(shape: &[usize]) -> Vec<usize> {
    let mut step = 1;
    let strides = shape.iter().map(|n| {
        let stride = step;
        step *= n;
        stride
    });
    strides.collect()
}
