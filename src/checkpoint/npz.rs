//! Weights in an archive of NumPy arrays (`.npz`): each array becomes a tensor of its name. Uncompressed arrays are read in
//! place; compressed ones are unpacked once.

use std::io::{BufReader, Read};
use std::path::Path;

use attnscope_compute::error::{Error, Result};
use zip::ZipArchive;

use super::data_file::{DataFile, Reader};
use super::dtype::Dtype;
use super::inflation::too_large;
use super::npy::{Npy, unreadable};
use super::pytorch::state_dict::Problem;
use super::pytorch::zip::Archive;
use super::section::Section;
use super::stored::Stored;
use super::tensor_info::TensorInfo;
use super::tensors::Tensors;
use crate::machine::{mebibytes, too_much};

/// Extension of the arrays of an archive.
const ENDING: &str = ".npy";
/// Bytes read for a header: NumPy's own are far shorter.
const HEADER: usize = 1 << 12;
/// Limit on the elements of an array.
const MOST_ELEMENTS: u64 = 1 << 40;

/// Opens an archive of arrays.
///
/// # Errors
/// When it is no such archive, its unpacked arrays would not fit into memory, or an element type cannot be read.
pub fn open_file(path: &Path) -> Result<Tensors> {
    let file = DataFile::open(path)?;
    let archive = Archive::read(&Section::whole(&file)).map_err(|problem| match problem {
        Problem::File(problem) | Problem::Tensor(_, problem) => Error::file(path, problem),
        Problem::Read(error) => error,
    })?;
    let names: Vec<String> = archive.names().map(str::to_owned).collect();
    let mut tensors = Tensors::default();
    tensors.files.push(file.clone());
    let arrays = names.iter().filter(|name| name.ends_with(ENDING));
    let sizes = arrays.filter_map(|name| archive.unpacks_to(name));
    let mut packed = packed(&file, sizes.fold(0, u64::saturating_add))?;
    for member in &names {
        let Some(name) = member.strip_suffix(ENDING) else {
            continue;
        };
        let refused = |problem: String| Error::tensor(path, name, problem);
        let is_packed = archive.unpacks_to(member).is_some();
        let (file_idx, place) = match packed.as_mut().filter(|_| is_packed) {
            Some(packed) => {
                let bytes = unpacked(packed, member).map_err(&refused)?;
                let place = 0..bytes.len();
                tensors.files.push(DataFile::unpacked(path, bytes));
                (tensors.files.len() - 1, place)
            }
            None => match archive.stored(member).map_err(&refused)? {
                Some(place) => (0, place),
                None => continue,
            },
        };
        let held = &tensors.files[file_idx];
        let beginning = held.read(place.start..place.end.min(place.start + HEADER))?;
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
            file_idx,
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
    Ok(tensors)
}

/// An archive, for reading its compressed arrays.
type Packed = ZipArchive<BufReader<Reader>>;

/// Opens the archive for unpacking, if it has compressed arrays; unpacked, these stay in memory while the checkpoint is open.
fn packed(file: &DataFile, unpacked: u64) -> Result<Option<Packed>> {
    if unpacked == 0 {
        return Ok(None);
    }
    let refused = |problem: String| Error::file(file.path(), problem);
    if let Some(expected) = too_large(file, unpacked) {
        let unpacked = mebibytes(unpacked);
        return Err(refused(format!(
            "its compressed arrays inflate to {unpacked}, {expected}"
        )));
    }
    if let Some(problem) = too_much(usize::try_from(unpacked).unwrap_or(usize::MAX)) {
        return Err(refused(format!(
            "unpacking its compressed arrays {problem}: save it without compression"
        )));
    }
    let archive = ZipArchive::new(BufReader::new(file.reader()?));
    archive.map(Some).map_err(|e| refused(unreadable(&e)))
}

/// Unpacks a compressed array and verifies its checksum.
fn unpacked(archive: &mut Packed, member: &str) -> std::result::Result<Vec<u8>, String> {
    let stored = archive.by_name(member).map_err(|e| unreadable(&e))?;
    let size = stored.size();
    let mut bytes = Vec::new();
    let mut within = stored.take(size.saturating_add(1));
    within.read_to_end(&mut bytes).map_err(|e| unreadable(&e))?;
    if bytes.len() as u64 != size {
        return Err(format!("claims {size} bytes, unpacks to others"));
    }
    Ok(bytes)
}

/// Computes the strides of a column-major array, in elements.
fn fortran_strides(shape: &[usize]) -> Vec<usize> {
    let mut step = 1;
    let strides = shape.iter().map(|n| {
        let stride = step;
        step *= n;
        stride
    });
    strides.collect()
}
