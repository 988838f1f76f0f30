//! Captured arrays, such as recorded attention: safetensors with metadata, NumPy's `.npz`, what `torch.save` wrote, or several
//! such files. Arrays are read one at a time.

mod holding;
mod made;
mod printed;

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};
use zip::ZipArchive;

use super::Dtype;
use super::data_file::{DataFile, Reader};
use super::inflation::too_large;
use super::npy::Npy;
use super::pytorch::open_arrays;
use super::safetensors::open_with_metadata;
use super::tensors::Tensors;
use crate::machine::{mebibytes, too_much};

pub use self::holding::{holds, names_in, states};
pub use self::made::Part;
pub use self::printed::Printed;

/// Limit on the elements of an array: more is not an attention pattern.
const MOST_ELEMENTS: u64 = 1 << 31;

/// An array, widened to f32.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
    /// Row-major.
    pub values: Vec<f32>,
}

/// An open file of arrays.
#[derive(Debug)]
pub struct Captured {
    pub path: PathBuf,
    /// Base name of the file, without its extension.
    pub name: String,
    /// Strings that the file stores beside the arrays.
    pub metadata: BTreeMap<String, String>,
    source: Source,
    /// Arrays of which some values were printed.
    printed: BTreeMap<String, Printed>,
}

#[derive(Debug)]
enum Source {
    Tensors(Tensors),
    /// An archive, with its member for each array name.
    Zipped(DataFile, BTreeMap<String, String>),
}

impl Captured {
    /// # Errors
    /// When the file cannot be read, or does not have the format of its extension.
    pub fn open(path: &Path) -> Result<Self> {
        let stem = path.file_stem().unwrap_or_default();
        let (metadata, source) = if is_npz(path) {
            let file = DataFile::open(path)?;
            let members = members(&file)?;
            (BTreeMap::new(), Source::Zipped(file, members))
        } else if is_torch(path) {
            let arrays = open_arrays(path)?;
            (arrays.texts, Source::Tensors(arrays.tensors))
        } else {
            let (tensors, strings) = open_with_metadata(path)?;
            (strings, Source::Tensors(tensors))
        };
        Ok(Self {
            path: path.to_path_buf(),
            name: stem.to_string_lossy().into_owned(),
            metadata,
            source,
            printed: BTreeMap::new(),
        })
    }

    /// Opens a file of which whoever wrote it said that it is done, so that no write under way has to be waited for.
    ///
    /// # Errors
    /// As for [`Captured::open`].
    pub fn open_finished(path: &Path) -> Result<Self> {
        let captured = Self::open(path)?;
        if let Source::Tensors(tensors) = &captured.source {
            tensors.take_as_written();
        }
        Ok(captured)
    }

    /// Returns the arrays as tensors; `None` for an archive.
    pub fn tensors(&self) -> Option<&Tensors> {
        match &self.source {
            Source::Tensors(tensors) => Some(tensors),
            Source::Zipped(..) => None,
        }
    }

    /// # Errors
    /// When the file has changed since it was opened.
    pub fn unchanged(&self) -> Result<()> {
        match &self.source {
            Source::Tensors(tensors) => tensors.unchanged(),
            Source::Zipped(file, _) => file.unchanged(),
        }
    }

    /// Lists the names of all arrays, in order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = match &self.source {
            Source::Tensors(tensors) => tensors.iter().map(|(name, _)| name).collect(),
            Source::Zipped(_, members) => members.keys().map(String::as_str).collect(),
        };
        if !self.printed.is_empty() {
            names.extend(self.printed.keys().map(String::as_str));
            names.sort_unstable();
        }
        names
    }

    pub fn contains(&self, name: &str) -> bool {
        if self.printed.contains_key(name) {
            return true;
        }
        match &self.source {
            Source::Tensors(tensors) => tensors.contains(name),
            Source::Zipped(_, members) => members.contains_key(name),
        }
    }

    /// Returns the element type of an array; `None` for an archive, whose arrays are only inspected when read.
    pub fn dtype(&self, name: &str) -> Option<Dtype> {
        match &self.source {
            Source::Tensors(tensors) => tensors.info(name).map(|info| info.dtype),
            Source::Zipped(..) => None,
        }
    }

    /// Reads an array of floats.
    ///
    /// # Errors
    /// When it is missing, or is not an array of floats.
    pub fn array(&self, name: &str) -> Result<Array> {
        if let Some(printed) = self.printed.get(name) {
            return self.dense(name, printed, 0.0, |value| value);
        }
        match &self.source {
            Source::Tensors(tensors) => {
                let view = tensors.get(name).ok_or_else(|| self.at(name, "missing"))?;
                if !view.info.dtype.is_float() {
                    let problem = format!("expected floating point, found {}", view.info.dtype);
                    return Err(self.at(name, &problem));
                }
                Ok(Array {
                    shape: view.info.shape.clone(),
                    values: view.widen()?.into_owned(),
                })
            }
            Source::Zipped(file, members) => {
                let member = members.get(name).ok_or_else(|| self.at(name, "missing"))?;
                let (shape, values) = self.zipped(file, name, member, |value| value as f32)?;
                Ok(Array { shape, values })
            }
        }
    }

    /// Returns the shape of an array; `None` if it is missing or cannot be read.
    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        if let Some(printed) = self.printed.get(name) {
            return Some(printed.shape.clone());
        }
        match &self.source {
            Source::Tensors(tensors) => tensors.info(name).map(|info| info.shape.clone()),
            Source::Zipped(file, members) => {
                let mut archive = archive(file).ok()?;
                let stored = archive.by_name(members.get(name)?).ok()?;
                Some(Npy::open(stored, MOST_ELEMENTS).ok()?.shape)
            }
        }
    }

    /// Reads an array of any numeric type; `None` if its elements are not numbers.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn numbers(&self, name: &str) -> Result<Option<Vec<f64>>> {
        match &self.source {
            Source::Tensors(tensors) => {
                let view = tensors.get(name).ok_or_else(|| self.at(name, "missing"))?;
                if !view.info.dtype.is_float() {
                    return view.whole_numbers();
                }
                let values = view.widen()?;
                Ok(Some(values.iter().map(|value| f64::from(*value)).collect()))
            }
            Source::Zipped(file, members) => {
                let member = members.get(name).ok_or_else(|| self.at(name, "missing"))?;
                Ok(Some(self.zipped(file, name, member, |value| value)?.1))
            }
        }
    }

    /// Reads whole numbers such as token ids; `None` if there is no such array.
    ///
    /// # Errors
    /// When the array exists but has other values than whole numbers from 0.
    pub fn whole_numbers(&self, name: &str) -> Result<Option<Vec<u64>>> {
        if !self.contains(name) {
            return Ok(None);
        }
        let values: Vec<f64> = match &self.source {
            Source::Tensors(tensors) => {
                let view = tensors.get(name).ok_or_else(|| self.at(name, "missing"))?;
                let numbers = view.whole_numbers()?;
                numbers.ok_or_else(|| {
                    self.at(
                        name,
                        &format!("expected whole numbers, found {}", view.info.dtype),
                    )
                })?
            }
            Source::Zipped(file, members) => {
                self.zipped(file, name, &members[name], |value| value)?.1
            }
        };
        let is_whole = |value: &f64| *value >= 0.0 && value.fract() == 0.0 && *value < 9e15;
        match values.iter().find(|value| !is_whole(value)) {
            Some(other) => Err(self.at(
                name,
                &format!("expected whole numbers from 0, found {other}"),
            )),
            None => Ok(Some(values.into_iter().map(|value| value as u64).collect())),
        }
    }

    pub fn at(&self, name: &str, problem: &str) -> Error {
        Error::tensor(&self.path, name, problem)
    }

    /// Reads the shape and the values of an archive member, row-major.
    fn zipped<T: Copy>(
        &self,
        file: &DataFile,
        name: &str,
        member: &str,
        of: impl Fn(f64) -> T,
    ) -> Result<(Vec<usize>, Vec<T>)> {
        let mut archive = archive(file)?;
        let stored = archive.by_name(member);
        let stored = stored.map_err(|e| self.at(name, &format!("cannot be read ({e})")))?;
        let refused = |problem: String| self.at(name, &problem);
        let n_stored = stored.size();
        let array = Npy::open(stored, MOST_ELEMENTS).map_err(refused)?;
        array.fits_into(n_stored).map_err(refused)?;
        let (shape, is_fortran) = (array.shape.clone(), array.is_fortran);
        // A growing list is copied to a larger one, so for a moment there are two.
        let needed = array.n_elements().saturating_mul(2 * size_of::<T>());
        if let Some(expected) = too_large(file, needed as u64) {
            let needed = mebibytes(needed as u64);
            return Err(refused(format!(
                "shape {shape:?} needs {needed} of memory, {expected}"
            )));
        }
        if let Some(problem) = too_much(needed) {
            return Err(refused(format!("shape {shape:?} {problem}")));
        }
        let mut values = Vec::new();
        let read = array.each(&mut |_, value| values.push(of(value)));
        file.unchanged()?;
        read.map_err(refused)?;
        let values = if is_fortran {
            row_major(&shape, &values)
        } else {
            values
        };
        Ok((shape, values))
    }
}

/// Reorders elements from column-major to row-major.
fn row_major<T: Copy>(shape: &[usize], values: &[T]) -> Vec<T> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for axis in shape {
        strides.push(stride);
        stride *= axis;
    }
    let mut at = vec![0usize; shape.len()];
    (0..values.len())
        .map(|_| {
            let from: usize = at
                .iter()
                .zip(&strides)
                .map(|(idx, stride)| idx * stride)
                .sum();
            for axis in (0..shape.len()).rev() {
                at[axis] += 1;
                if at[axis] < shape[axis] {
                    break;
                }
                at[axis] = 0;
            }
            values[from]
        })
        .collect()
}

fn is_npz(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("npz"))
}

/// Whether `torch.save` writes files of this extension.
fn is_torch(path: &Path) -> bool {
    let is_known = |ending: &std::ffi::OsStr| ending == "pt" || ending == "pth";
    path.extension().is_some_and(is_known)
}

fn archive(file: &DataFile) -> Result<ZipArchive<BufReader<Reader>>> {
    ZipArchive::new(BufReader::new(file.reader()?))
        .map_err(|e| Error::file(file.path(), format!("is not a .npz archive ({e})")))
}

fn members(file: &DataFile) -> Result<BTreeMap<String, String>> {
    let archive = archive(file)?;
    let names = archive.file_names().filter_map(|member| {
        let member = member.ok()?;
        let name = member.strip_suffix(".npy")?;
        Some((name.to_owned(), member.to_string()))
    });
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::row_major;

    #[test]
    fn a_column_major_array_becomes_row_major() {
        // [[1, 2, 3], [4, 5, 6]] by columns.
        assert_eq!(
            row_major(&[2, 3], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]),
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        );
        assert_eq!(row_major(&[], &[7.0]), [7.0]);
    }
}
