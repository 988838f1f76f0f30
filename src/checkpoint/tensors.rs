//! Named tensors of a checkpoint in any number of files: looked up by name, widened on demand.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};

use super::data_file::DataFile;
use super::dtype::Dtype;
use super::made::{ComputedTensor, Joined};
use super::stored::Stored;
use super::tensor_info::TensorInfo;
use super::tensor_view::TensorView;

/// Readable block types, for messages.
const READABLE: &str = "q4_0, q4_1, q5_0, q5_1, q8_0, q2_k to q6_k, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s, iq4_nl, iq4_xs, \
     tq1_0, tq2_0, mxfp4, and f32, f16, bf16";

/// All tensors of a checkpoint, by name.
#[derive(Debug, Default)]
pub struct Tensors {
    pub(super) files: Vec<DataFile>,
    pub(super) index: BTreeMap<String, TensorInfo>,
    /// Metadata of each file, if the format has any.
    pub(super) metadata: Vec<BTreeMap<String, String>>,
    /// Where each tensor stood in a state dict that keeps its order, by file and first byte.
    pub(super) saved_order: BTreeMap<(usize, usize), usize>,
}

impl Tensors {
    /// Iterates over names and descriptions, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &TensorInfo)> {
        self.index.iter().map(|(name, info)| (name.as_str(), info))
    }

    /// Lists the files; one whose arrays were unpacked counts once.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let mut last = None;
        let paths = self.files.iter().map(DataFile::path);
        paths.filter(move |path| last.replace(*path) != Some(*path))
    }

    /// Returns the metadata of each file, if the format has any.
    pub fn metadata(&self) -> &[BTreeMap<String, String>] {
        &self.metadata
    }

    /// Returns the place of a tensor in the state dict that it was saved with; `None` if the format does not keep the order.
    pub fn saved_at(&self, name: &str) -> Option<usize> {
        let info = self.index.get(name)?;
        let place = (info.file_idx, info.bytes.start);
        self.saved_order.get(&place).copied()
    }

    /// Whether two names refer to the same bytes of the files.
    pub fn share_bytes(&self, a: &str, b: &str) -> bool {
        match (self.index.get(a), self.index.get(b)) {
            (Some(a), Some(b)) => {
                (a.file_idx, &a.bytes, &a.made) == (b.file_idx, &b.bytes, &b.made)
            }
            _ => false,
        }
    }

    /// Whether a tensor and one of `others` are the same bytes of the same file, read in the same way. False for tensors with
    /// separate scales and for computed tensors, whose other parts may be anywhere.
    pub fn is_same_place(&self, name: &str, others: &Self, other: &str) -> bool {
        let (Some(a), Some(b)) = (self.index.get(name), others.index.get(other)) else {
            return false;
        };
        let files = (self.files.get(a.file_idx), others.files.get(b.file_idx));
        let is_one_file = matches!(files, (Some(a), Some(b)) if a.is_same(b));
        let is_alone = |info: &TensorInfo| info.scales.is_none() && info.made.is_none();
        is_one_file
            && is_alone(a)
            && is_alone(b)
            && (a.dtype, &a.shape, &a.strides) == (b.dtype, &b.shape, &b.strides)
            && (&a.bytes, &a.stored) == (&b.bytes, &b.stored)
    }

    /// Checks that the files have not changed since they were opened.
    ///
    /// # Errors
    /// [`Error::Changed`] for the first file that has changed.
    pub fn unchanged(&self) -> Result<()> {
        self.files.iter().try_for_each(DataFile::unchanged)
    }

    /// Takes the word of whoever wrote the files that they are done.
    pub(super) fn take_as_written(&self) {
        self.files.iter().for_each(DataFile::take_as_written);
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.index.contains_key(name)
    }

    pub fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name)
    }

    /// Returns the file of a tensor, or the first file if there is no such tensor.
    pub fn file_of(&self, name: &str) -> &Path {
        let file_idx = self.index.get(name).map_or(0, |info| info.file_idx);
        self.files
            .get(file_idx)
            .map_or(Path::new("checkpoint"), DataFile::path)
    }

    /// Renames tensors; `None` leaves a name unchanged.
    ///
    /// # Errors
    /// Names the tensor when two would then have the same name.
    pub fn rename(&mut self, new_name: impl Fn(&str) -> Option<String>) -> Result<()> {
        let mut renamed = BTreeMap::new();
        for (name, info) in std::mem::take(&mut self.index) {
            let file_idx = info.file_idx;
            let new = new_name(&name).unwrap_or_else(|| name.clone());
            if renamed.insert(new.clone(), info).is_some() {
                let file = self.files.get(file_idx);
                let file = file.map_or(Path::new("checkpoint"), DataFile::path);
                let problem = format!("two tensors would be {new} under their new names");
                return Err(Error::tensor(file, name, problem));
            }
        }
        self.index = renamed;
        Ok(())
    }

    /// Whether the order of rows in any tensor depends on the number of heads stated by the file.
    pub fn is_ordered_by_heads(&self) -> bool {
        let mut all = self.index.values();
        all.any(|info| {
            matches!(
                info.stored,
                Stored::HalvesAlternate { .. }
                    | Stored::NeighboursApart { .. }
                    | Stored::GroupsApart { .. }
            )
        })
    }

    /// Removes axes of length 1 from a tensor's shape.
    pub fn squeeze(&mut self, name: &str) {
        let Some(info) = self.index.get_mut(name) else {
            return;
        };
        if info.made.is_some() && info.shape.contains(&1) {
            let order: Vec<usize> = (0..info.shape.len()).collect();
            let shape: Vec<usize> = info.shape.iter().copied().filter(|n| *n != 1).collect();
            if let Some(squeezed) = info.arranged(&order, &shape) {
                *info = squeezed;
            }
        } else if info.stored == Stored::AsIs && info.made.is_none() {
            let is_kept: Vec<bool> = info.shape.iter().map(|n| *n != 1).collect();
            let mut kept = is_kept.iter().copied();
            info.shape.retain(|_| kept.next().unwrap_or(true));
            if let Some(strides) = &mut info.strides {
                let mut kept = is_kept.iter().copied();
                strides.retain(|_| kept.next().unwrap_or(true));
            }
        }
    }

    /// Adds a number to every value of a tensor when it is read.
    pub fn add(&mut self, name: &str, added: f32) {
        self.store_as(name, Stored::Plus(-added));
    }

    /// Multiplies every value of a tensor when it is read.
    pub fn multiply(&mut self, name: &str, factor: f32) {
        self.store_as(name, Stored::Over(factor));
    }

    fn store_as(&mut self, name: &str, stored: Stored) {
        if let Some(info) = self.index.get_mut(name)
            && info.stored == Stored::AsIs
            && info.made.is_none()
        {
            info.stored = stored;
        }
    }

    /// Adds a tensor under another name with the axes of an existing one permuted and merged to another shape; returns false if
    /// its storage does not allow it.
    pub fn arrange(
        &mut self,
        name: &str,
        new_name: &str,
        order: &[usize],
        shape: &[usize],
    ) -> bool {
        let Some(info) = self.index.get(name) else {
            return false;
        };
        let arranged = info.arranged(order, shape);
        if let Some(arranged) = arranged {
            self.index.insert(new_name.to_owned(), arranged);
            return true;
        }
        false
    }

    /// Adds an identity matrix as wide as the rows of an existing tensor; returns false if there is no such tensor.
    pub fn add_identity(&mut self, of: &str, new_name: &str) -> bool {
        let Some(info) = self.index.get(of).cloned() else {
            return false;
        };
        let width = info.shape.last().copied().unwrap_or_default();
        let identity = TensorInfo {
            shape: vec![width, width],
            dtype: Dtype::F32,
            strides: None,
            stored: Stored::AsIs,
            scales: None,
            made: Some(Arc::new(ComputedTensor::Identity)),
            ..info
        };
        self.index.insert(new_name.to_owned(), identity);
        true
    }

    /// Adds the concatenation by rows of tensors of equal shape; returns false if the shapes differ.
    pub fn join(&mut self, names: &[String], new_name: &str) -> bool {
        let parts: Option<Vec<TensorInfo>> = names
            .iter()
            .map(|name| self.index.get(name).cloned())
            .collect();
        let Some(parts) = parts else { return false };
        let Some(first) = parts.first().cloned() else {
            return false;
        };
        let are_alike = parts.iter().all(|part| part.shape == first.shape);
        if !are_alike || first.shape.is_empty() {
            return false;
        }
        let mut shape = first.shape.clone();
        shape[0] *= parts.len();
        let joined = ComputedTensor::Joined(Joined::along(0, parts));
        let info = TensorInfo {
            shape,
            strides: None,
            stored: Stored::AsIs,
            scales: None,
            made: Some(Arc::new(joined)),
            ..first
        };
        self.index.insert(new_name.to_owned(), info);
        true
    }

    /// Adds tensors one behind the other along the last axis; returns false if their shapes differ in another axis.
    pub(super) fn join_columns(&mut self, parts: Vec<TensorInfo>, new_name: &str) -> bool {
        let Some(first) = parts.first().cloned() else {
            return false;
        };
        if parts.len() == 1 {
            self.index.insert(new_name.to_owned(), first);
            return true;
        }
        let leading = |info: &TensorInfo| info.shape.split_last().map(|(_, rest)| rest.to_vec());
        let are_alike = parts.iter().all(|part| leading(part) == leading(&first));
        let Some(axis) = first.shape.len().checked_sub(1).filter(|_| are_alike) else {
            return false;
        };
        let mut shape = first.shape.clone();
        shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
        let info = TensorInfo {
            shape,
            strides: None,
            stored: Stored::AsIs,
            scales: None,
            made: Some(Arc::new(ComputedTensor::Joined(Joined::along(axis, parts)))),
            ..first
        };
        self.index.insert(new_name.to_owned(), info);
        true
    }

    /// Takes over the tensors of other files, each name behind a prefix. Tensors that are computed from others are left out.
    ///
    /// # Errors
    /// Names the tensor when the name is taken.
    pub(super) fn take(&mut self, other: Self, prefix: &str) -> Result<()> {
        let n_before = self.files.len();
        self.files.extend(other.files);
        let stored = other.index.into_iter();
        for (name, info) in stored.filter(|(_, info)| info.made.is_none() && info.scales.is_none())
        {
            let (name, file_idx) = (format!("{prefix}{name}"), info.file_idx + n_before);
            let info = TensorInfo { file_idx, ..info };
            if self.index.insert(name.clone(), info).is_some() {
                return Err(Error::tensor(
                    self.file_of(&name),
                    &name,
                    "stands in two files",
                ));
            }
        }
        Ok(())
    }

    /// Adds a tensor of some rows of another; returns false if these rows are not contiguous in the file.
    pub fn cut_rows(&mut self, name: &str, new_name: &str, rows: Range<usize>) -> bool {
        let Some(info) = self.index.get(name) else {
            return false;
        };
        let Some(cut) = info.rows(rows) else {
            return false;
        };
        self.index.insert(new_name.to_owned(), cut);
        true
    }

    /// Removes a tensor from the index.
    pub fn forget(&mut self, name: &str) {
        self.index.remove(name);
    }

    /// Returns a tensor of the expected shape, still encoded.
    ///
    /// # Errors
    /// When the tensor is missing, has another shape, or is not floating point.
    pub fn expect(&self, name: &str, shape: &[usize]) -> Result<TensorView<'_>> {
        let Some(info) = self.index.get(name) else {
            return Err(Error::tensor(
                self.file_of(name),
                name,
                format!("missing, expected shape {shape:?}"),
            ));
        };
        let Some(view) = self.view(info).of_shape(shape) else {
            let problem = format!("expected shape {shape:?}, found {:?}", info.shape);
            return Err(Error::tensor(self.file_of(name), name, problem));
        };
        if !info.dtype.is_float() {
            let problem = match info.dtype {
                Dtype::Block(block) => {
                    format!("{} blocks cannot be read; readable: {READABLE}", block.name)
                }
                other => format!("expected f32, f16, bf16 or f64, found {other}"),
            };
            return Err(Error::tensor(self.file_of(name), name, problem));
        }
        Ok(view)
    }

    /// Reads a tensor of whole numbers.
    ///
    /// # Errors
    /// When it is missing, has another shape or holds other numbers, or the file cannot be read.
    pub fn expect_numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f64>> {
        let wrong = |problem: String| Error::tensor(self.file_of(name), name, problem);
        let Some(view) = self.get(name) else {
            return Err(wrong(format!("missing, expected shape {shape:?}")));
        };
        if view.shape() != shape {
            let found = view.shape();
            return Err(wrong(format!("expected shape {shape:?}, found {found:?}")));
        }
        let numbers = view.whole_numbers()?;
        numbers.ok_or_else(|| wrong("expected whole numbers, found others".to_owned()))
    }

    /// Returns a tensor as it is stored; `None` if there is no such name.
    pub fn get(&self, name: &str) -> Option<TensorView<'_>> {
        self.index.get(name).map(|info| self.view(info))
    }

    fn view<'a>(&'a self, info: &'a TensorInfo) -> TensorView<'a> {
        TensorView::new(info, &self.files)
    }
}
