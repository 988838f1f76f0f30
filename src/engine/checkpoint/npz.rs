//! Weights in an archive of NumPy arrays (`.npz`): each array becomes a tensor of its name. What lies in the file as it is is read
//! there; what is compressed is unpacked once.

use std::io::{BufReader, Read};
use std::path::Path;

use zip::ZipArchive;

use super::data_file::DataFile;
use super::dtype::Dtype;
use super::npy::{Npy, unreadable};
use super::pytorch::state_dict::Problem;
use super::pytorch::zip::Archive;
use super::stored::Stored;
use super::tensors::{TensorInfo, Tensors};
use crate::error::{Error, Result};
use crate::machine::{mebibytes, too_much};

/// What every array of an archive is called after its name.
const ENDING: &str = ".npy";
/// Bytes of a header that are read: NumPy's own are far shorter.
const HEADER: usize = 1 << 12;
/// How many times larger than the file its compressed arrays may be, and what is never too large.
const MOST_INFLATION: u64 = 64;
const ALWAYS_READ: u64 = 64 << 20;
/// Elements of an array at most.
const MOST_ELEMENTS: u64 = 1 << 40;

/// Opens an archive of arrays.
///
/// # Errors
/// When it is no such archive, its compressed arrays would not fit into memory, or elements cannot be read.
pub fn open_file(path: &Path) -> Result<Tensors> {
    let file = DataFile::open(path)?;
    let archive = Archive::read(&file).map_err(|problem| match problem {
        Problem::File(problem) | Problem::Tensor(_, problem) => Error::file(path, problem),
        Problem::Read(error) => error,
    })?;
    let names: Vec<String> = archive.names().map(str::to_owned).collect();
    let mut tensors = Tensors::default();
    tensors.files.push(file.clone());
    let unpacked_bytes = names.iter().filter_map(|name| archive.unpacks_to(name));
    check_room(&file, unpacked_bytes.fold(0, u64::saturating_add))?;
    for member in &names {
        let Some(name) = member.strip_suffix(ENDING) else {
            continue;
        };
        let refused = |problem: String| Error::tensor(path, name, problem);
        let (file_idx, place) = if archive.unpacks_to(member).is_some() {
            let bytes = unpacked(&file, member).map_err(&refused)?;
            let place = 0..bytes.len();
            tensors.files.push(DataFile::unpacked(path, bytes));
            (tensors.files.len() - 1, place)
        } else {
            match archive.stored(member).map_err(&refused)? {
                Some(place) => (0, place),
                None => continue,
            }
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

/// Refuses compressed arrays that would fill the memory: they are held unpacked for as long as the checkpoint is open.
fn check_room(file: &DataFile, unpacked: u64) -> Result<()> {
    let most = ALWAYS_READ.saturating_add(MOST_INFLATION * file.len() as u64);
    let problem = if unpacked > most {
        format!(
            "its compressed arrays claim {}, expected at most {} of a file of {}",
            mebibytes(unpacked),
            mebibytes(most),
            mebibytes(file.len() as u64)
        )
    } else if let Some(problem) = too_much(usize::try_from(unpacked).unwrap_or(usize::MAX)) {
        format!("unpacking its compressed arrays {problem}")
    } else {
        return Ok(());
    };
    let advice = "numpy.savez writes arrays without compression, which are read where they lie";
    Err(Error::file(file.path(), format!("{problem}; {advice}")))
}

/// A compressed array, unpacked; its checksum is that of the archive.
fn unpacked(file: &DataFile, member: &str) -> std::result::Result<Vec<u8>, String> {
    let reader = file.reader().map_err(|e| e.to_string())?;
    let mut archive = ZipArchive::new(BufReader::new(reader)).map_err(|e| unreadable(&e))?;
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
