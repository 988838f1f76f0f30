//! The files of a distributed checkpoint, and the tensors and values in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use attnscope_compute::error::{Error, Result};
use serde_json::Value as Json;

use super::index::Place;
use crate::data_file::DataFile;
use crate::dtype::Dtype;
use crate::named_paths::is_inside;
use crate::pytorch::globals::Scope;
use crate::pytorch::json::Writer;
use crate::pytorch::saved::Saved;
use crate::pytorch::state_dict::{Problem, described};
use crate::pytorch::value::{Value, quote};
use crate::pytorch::{ZIP, in_file, pickle};
use crate::section::Section;
use crate::stand_ins::{refuse_dangling, refuse_pointer};
use crate::tensor_info::TensorInfo;
use crate::tensor_view::TensorView;

/// Limit on the bytes of a value beside the weights.
const LONGEST_VALUE: usize = 1 << 20;

/// The open files, in the order in which they are first needed.
#[derive(Debug)]
pub struct Parts<'d> {
    directory: &'d Path,
    pub files: Vec<DataFile>,
    idx_of: BTreeMap<Rc<str>, usize>,
}

impl<'d> Parts<'d> {
    /// Starts with the index, which is a file of the checkpoint too.
    pub fn of(directory: &'d Path, index: DataFile) -> Self {
        Self {
            directory,
            files: vec![index],
            idx_of: BTreeMap::new(),
        }
    }

    /// Describes the tensor that is stored at a place, as a place in its file.
    ///
    /// # Errors
    /// When the file is missing or too short, or holds another tensor there than the index says.
    pub fn tensor(
        &mut self,
        name: &str,
        place: &Place,
        dtype: Option<Dtype>,
        shape: &[usize],
    ) -> Result<TensorInfo> {
        let file_idx = self.open(name, place)?;
        let file = &self.files[file_idx];
        let section = section(file, place)?;
        let refused = |problem: String| {
            let problem = format!("its part at byte {}: {problem}", place.start);
            Error::tensor(file.path(), quote(name), problem)
        };
        let info = read_tensor(&section, file_idx).map_err(|problem| match problem {
            Problem::File(problem) => refused(problem),
            other => in_file(file.path(), other),
        })?;
        if let Some(dtype) = dtype.filter(|dtype| *dtype != info.dtype) {
            let problem = format!("expected {dtype} as .metadata says, found {}", info.dtype);
            return Err(refused(problem));
        }
        if info.shape != shape {
            let found = &info.shape;
            let problem = format!("expected shape {shape:?} as .metadata says, found {found:?}");
            return Err(refused(problem));
        }
        Ok(info)
    }

    /// Reads a tensor of one element; `None` if it cannot be read.
    pub fn number(&mut self, name: &str, place: &Place, shape: &[usize]) -> Option<f64> {
        let info = self.tensor(name, place, None, shape).ok()?;
        let view = TensorView::new(&info, &self.files);
        if info.dtype.is_float() {
            return view.widen().ok()?.first().map(|value| f64::from(*value));
        }
        view.whole_numbers().ok()??.first().copied()
    }

    /// Reads a small pickled value; `None` for anything that is not plain, and if it cannot be read.
    pub fn value(&mut self, name: &str, place: &Place) -> Option<Json> {
        if place.n_bytes > LONGEST_VALUE || !place.transforms.is_empty() {
            return None;
        }
        let file_idx = self.open(name, place).ok()?;
        let section = section(&self.files[file_idx], place).ok()?;
        plain_value(section).ok()
    }

    /// Opens the file of a place once.
    fn open(&mut self, name: &str, place: &Place) -> Result<usize> {
        if let Some(idx) = self.idx_of.get(&place.file) {
            return Ok(*idx);
        }
        let index = self.files[0].path();
        if !is_inside(&place.file) {
            let found = quote(&place.file);
            let problem = format!("expected a file beside .metadata, found {found}");
            return Err(Error::tensor(index, quote(name), problem));
        }
        let path: PathBuf = self.directory.join(place.file.as_ref());
        refuse_dangling(&path)?;
        if !path.exists() {
            let problem = "missing; .metadata names it as a part: download or copy it again";
            return Err(Error::file(&path, problem));
        }
        refuse_pointer(&path)?;
        self.files.push(DataFile::open(&path)?);
        let idx = self.files.len() - 1;
        self.idx_of.insert(place.file.clone(), idx);
        Ok(idx)
    }
}

/// Returns the bytes of a place.
fn section<'f>(file: &'f DataFile, place: &Place) -> Result<Section<'f>> {
    Section::of(file, place.start, place.n_bytes).ok_or_else(|| {
        let problem = format!(
            "truncated: .metadata says that {} bytes are at {}, the file holds {}; download or copy it again",
            place.n_bytes,
            place.start,
            file.len()
        );
        Error::file(file.path(), problem)
    })
}

fn read_tensor(section: &Section<'_>, file_idx: usize) -> std::result::Result<TensorInfo, Problem> {
    if section.read(0..ZIP.len())?.as_ref() != ZIP {
        let problem = "expected a tensor of torch.save, found another form of data";
        return Err(problem.to_owned().into());
    }
    let saved = Saved::read(section.clone())?;
    let bytes = saved.pickle()?;
    let pickled = pickle::read(&bytes, Scope::Tensors)?;
    let Value::Tensor(idx) = pickled.root else {
        let kind = pickled.root.kind();
        return Err(format!("expected a tensor, found {kind}").into());
    };
    let find = |key: &str| saved.storage(key);
    Ok(described(&pickled, idx, &find, file_idx)?)
}

/// Reads what `torch.save` wrote as a plain value; tensors become a text.
pub fn plain_value(section: Section<'_>) -> std::result::Result<Json, Problem> {
    let saved = Saved::read(section)?;
    let bytes = saved.pickle()?;
    let pickled = crate::pytorch::modules::read_weights(&bytes)?;
    let tensor = |_: &_| Ok(Json::from("a tensor"));
    Ok(Writer::new(&pickled, &tensor).value(&pickled.root)?)
}
