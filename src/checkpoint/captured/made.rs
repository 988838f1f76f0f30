//! Arrays put together from stored ones, and several files as one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};

use super::{Captured, Source, is_torch};
use crate::Tensors;
use crate::data_file::DataFile;
use crate::dtype::Dtype;
use crate::pytorch::open_arrays;
use crate::safetensors::open_with_metadata;
use crate::stored::Stored;
use crate::tensor_info::TensorInfo;

/// A stored array, or some indices of its last axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub name: String,
    pub columns: Option<Range<usize>>,
}

impl Part {
    /// The array as it is stored.
    pub fn whole(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            columns: None,
        }
    }
}

impl Captured {
    /// Opens files of arrays as one; the names of each file's arrays are put behind its prefix, and so are its texts.
    ///
    /// # Errors
    /// When a file cannot be read, or two arrays would have one name.
    pub fn of_files(path: &Path, files: &[(String, PathBuf)]) -> Result<Self> {
        let mut captured = Self::empty(path);
        for (prefix, file) in files {
            let (tensors, texts) = if is_torch(file) {
                let arrays = open_arrays(file)?;
                (arrays.tensors, arrays.texts)
            } else {
                open_with_metadata(file)?
            };
            let texts = texts.into_iter();
            let named = texts.map(|(key, text)| (format!("{prefix}{key}"), text));
            captured.metadata.extend(named);
            if let Source::Tensors(all) = &mut captured.source {
                all.take(tensors, prefix)?;
            }
        }
        Ok(captured)
    }

    /// A dump without arrays, to which [`put`](Self::put) adds some.
    pub fn empty(path: &Path) -> Self {
        let name = path.file_stem().unwrap_or_default();
        Self {
            path: path.to_path_buf(),
            name: name.to_string_lossy().into_owned(),
            metadata: BTreeMap::new(),
            source: Source::Tensors(Tensors::default()),
            printed: BTreeMap::new(),
        }
    }

    /// Adds token ids from memory.
    pub fn put_ids(&mut self, name: &str, ids: &[u32]) {
        if let Source::Tensors(tensors) = &mut self.source {
            let bytes = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            let of = (Dtype::Other("u32", 4), &[ids.len()][..]);
            tensors.put(&self.path, name, of, bytes);
        }
    }

    /// Adds an array under a new name: parts one behind the other along the last axis.
    ///
    /// # Errors
    /// When a part is missing, the parts do not fit, or an archive's array is not taken whole.
    pub fn define(&mut self, name: &str, parts: &[Part]) -> Result<()> {
        if let [
            Part {
                name: of,
                columns: None,
            },
        ] = parts
            && let Some(printed) = self.printed.get(of).cloned()
        {
            self.printed.insert(name.to_owned(), printed);
            return Ok(());
        }
        let path = self.path.clone();
        let refused = |part: &Part, problem: &str| Error::tensor(&path, &part.name, problem);
        match &mut self.source {
            Source::Tensors(tensors) => {
                let mut infos = Vec::new();
                for part in parts {
                    let info = tensors.info(&part.name);
                    let info = info.ok_or_else(|| refused(part, "missing"))?;
                    infos.push(match &part.columns {
                        None => info.clone(),
                        Some(columns) => info.columns(columns).ok_or_else(|| {
                            let found = &info.shape;
                            let problem = format!(
                                "expected at least {} columns, found shape {found:?}",
                                columns.end
                            );
                            refused(part, &problem)
                        })?,
                    });
                }
                let shapes: Vec<_> = infos.iter().map(|info| info.shape.clone()).collect();
                if !tensors.join_columns(infos, name) {
                    let names: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
                    let problem = format!(
                        "expected shapes that differ in the last axis only, found {shapes:?}"
                    );
                    return Err(Error::tensor(&path, names.join(", "), problem));
                }
            }
            Source::Zipped(_, members) => {
                let [
                    Part {
                        name: of,
                        columns: None,
                    },
                ] = parts
                else {
                    let all: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
                    let problem = "cannot be divided in an archive: save it as safetensors";
                    return Err(Error::tensor(&path, all.join(", "), problem));
                };
                let member = members
                    .get(of)
                    .ok_or_else(|| refused(&parts[0], "missing"))?;
                members.insert(name.to_owned(), member.clone());
            }
        }
        Ok(())
    }

    /// Gives an array another shape of as many elements; returns false if its storage does not allow it.
    pub fn reshape(&mut self, name: &str, shape: &[usize]) -> bool {
        let Source::Tensors(tensors) = &mut self.source else {
            return false;
        };
        let axes: Vec<usize> = (0..tensors.info(name).map_or(0, |info| info.shape.len())).collect();
        tensors.arrange(name, name, &axes, shape)
    }

    /// Leaves an array out.
    pub fn forget(&mut self, name: &str) {
        self.printed.remove(name);
        match &mut self.source {
            Source::Tensors(tensors) => tensors.forget(name),
            Source::Zipped(_, members) => {
                members.remove(name);
            }
        }
    }
}

impl Tensors {
    /// Adds a tensor from memory.
    fn put(&mut self, path: &Path, name: &str, (dtype, shape): (Dtype, &[usize]), bytes: Vec<u8>) {
        let info = TensorInfo {
            dtype,
            shape: shape.to_vec(),
            strides: None,
            file_idx: self.files.len(),
            bytes: 0..bytes.len(),
            stored: Stored::AsIs,
            scales: None,
            made: None,
        };
        self.files.push(DataFile::unpacked(path, bytes));
        self.index.insert(name.to_owned(), info);
    }
}

impl TensorInfo {
    /// Returns some indices of the last axis; `None` if it has fewer, or its storage does not allow it.
    fn columns(&self, columns: &Range<usize>) -> Option<Self> {
        let width = *self.shape.last()?;
        let is_as_stored =
            self.stored == Stored::AsIs && self.scales.is_none() && self.made.is_none();
        if !is_as_stored || self.dtype.block_len() != 1 || columns.is_empty() || columns.end > width
        {
            return None;
        }
        let mut shape = self.shape.clone();
        *shape.last_mut()? = columns.len();
        if shape.contains(&0) {
            return None;
        }
        let mut row_major = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            row_major[axis - 1] = row_major[axis] * self.shape[axis];
        }
        let strides = self.strides.clone().unwrap_or(row_major);
        let size = self.dtype.size();
        let first = self.bytes.start + columns.start * strides[shape.len() - 1] * size;
        let steps = shape.iter().zip(&strides);
        let n_spanned = 1 + steps.map(|(n, stride)| (n - 1) * stride).sum::<usize>();
        Some(Self {
            shape,
            strides: Some(strides),
            bytes: first..first + n_spanned * size,
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump() -> Captured {
        let mut captured = Captured::empty(Path::new("dump"));
        let bytes = (0..12u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
        if let Source::Tensors(tensors) = &mut captured.source {
            tensors.put(Path::new("dump"), "qkv", (Dtype::F32, &[2, 1, 6]), bytes);
        }
        captured
    }

    #[test]
    fn columns_are_cut_and_joined_along_the_last_axis() {
        let mut captured = dump();
        let part = |columns: Range<usize>| Part {
            columns: Some(columns),
            ..Part::whole("qkv")
        };
        captured.define("k", &[part(2..4)]).expect("cuts");
        let k = captured.array("k").expect("reads");
        assert_eq!(
            (k.shape, k.values),
            (vec![2, 1, 2], vec![2.0, 3.0, 8.0, 9.0])
        );
        captured
            .define("ends", &[part(0..1), part(5..6)])
            .expect("joins");
        let ends = captured.array("ends").expect("reads");
        assert_eq!(
            (ends.shape, ends.values),
            (vec![2, 1, 2], vec![0.0, 5.0, 6.0, 11.0])
        );
        assert!(captured.reshape("k", &[2, 2, 1]));
        let k = captured.array("k").expect("reads");
        assert_eq!(
            (k.shape, k.values),
            (vec![2, 2, 1], vec![2.0, 3.0, 8.0, 9.0])
        );
        let said = captured
            .define("v", &[part(4..7)])
            .expect_err("refused")
            .to_string();
        assert!(
            said.contains("expected at least 7 columns, found shape [2, 1, 6]"),
            "{said}"
        );
    }
}
