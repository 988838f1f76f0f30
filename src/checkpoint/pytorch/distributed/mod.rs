//! Distributed checkpoints of PyTorch (`torch.distributed.checkpoint`): a directory with an index, `.metadata`, and files of one tensor
//! or box of a tensor after another. Tensors are views on those files; one in several boxes is put together when it is read.

mod index;
mod nest;
mod parts;
mod stacks;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use attnscope_compute::error::{Error, Result};

use self::index::{Index, Listed, Places};
use self::parts::Parts;
pub use self::values::{DIVISIONS, put_together};
use super::value::quote;
use super::{StateDict, in_file, pickle};
use crate::data_file::DataFile;
use crate::made::{Joined, Piece};
use crate::named_paths::directory_of;
use crate::tensor_info::TensorInfo;
use crate::tiling::{self, Chunk};

/// Name of the index.
pub const METADATA: &str = ".metadata";

/// Opens the checkpoint that an index describes, or the model in it that is called `part`.
///
/// Only weights are located: the states of optimisers are not looked at.
///
/// # Errors
/// When the index is damaged or describes no weights, a part is missing or is not what the index says, or the parts of a tensor do
/// not cover it.
pub fn open(metadata: &Path, part: Option<&str>) -> Result<StateDict> {
    let directory = directory_of(metadata);
    let file = DataFile::open_as(metadata, "the index of a distributed checkpoint")?;
    let bytes = whole(&file)?;
    let refused = |problem: String| Error::file(metadata, problem);
    let mut index = Index::read(&bytes).map_err(refused)?;
    let weights =
        nest::weights(&mut index, &file, part).map_err(|problem| in_file(metadata, problem))?;
    if weights.is_empty() {
        let problem = "describes no weights: expected a state dict of tensors, alone or under a name such as model or state_dict";
        return Err(refused(problem.to_owned()));
    }
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    wanted.extend(weights.iter().map(|(_, idx)| &*index.listed[*idx].name));
    let beside = values::beside(&index.listed, |name| wanted.contains(name));
    wanted.extend(beside.iter().map(|value| &*value.name));
    let places = index
        .places(|name| wanted.contains(name))
        .map_err(refused)?;

    let mut parts = Parts::of(&directory, file);
    let mut state = StateDict::default();
    let mut pieces_of = Vec::with_capacity(weights.len());
    for (name, listed_idx) in weights {
        let listed = &index.listed[listed_idx];
        pieces_of.push((name, pieces(&index, listed, &places, &mut parts)?));
    }
    let pieces_of = stacks::taken_apart(pieces_of)
        .map_err(|(name, problem)| Error::tensor(metadata, quote(&name), problem))?;
    for (name, whole) in pieces_of {
        let Some(info) = whole.info() else { continue };
        let next = state.tensors.saved_order.len();
        let place = (info.file_idx, info.bytes.start);
        state.tensors.saved_order.entry(place).or_insert(next);
        if state.tensors.index.insert(name.clone(), info).is_some() {
            return Err(Error::tensor(metadata, quote(&name), "stands twice"));
        }
    }
    values::add(&beside, &places, &mut parts, &mut state.plain_values);
    values::add_arguments(&directory, &mut state.plain_values);
    state.tensors.files = parts.files;
    super::finish(state)
}

/// Reads all bytes of an index.
fn whole(file: &DataFile) -> Result<Vec<u8>> {
    if file.len() > pickle::LONGEST {
        let (most, found) = (pickle::LONGEST, file.len());
        let problem = format!("expected at most {most} bytes, found {found}");
        return Err(Error::file(file.path(), problem));
    }
    Ok(file.read(0..file.len())?.into_owned())
}

/// A tensor as the pieces that it is stored in.
struct Whole {
    shape: Vec<usize>,
    /// At least one.
    pieces: Vec<Piece>,
}

impl Whole {
    /// Describes the tensor: as the view on its only piece, or as one to be put together.
    fn info(self) -> Option<TensorInfo> {
        Joined::whole(self.shape, self.pieces)
    }
}

/// Locates all boxes of a tensor.
fn pieces(
    index: &Index<'_>,
    listed: &Listed<'_>,
    places: &Places,
    parts: &mut Parts<'_>,
) -> Result<Whole> {
    let metadata = parts.files[0].path().to_path_buf();
    let refused = |problem: String| Error::tensor(&metadata, quote(&listed.name), problem);
    let Some(tensor) = &listed.tensor else {
        return Err(refused("expected a tensor".to_owned()));
    };
    let dtype = index.dtype(tensor).map_err(refused)?;
    let chunks = index.chunks(tensor).map_err(refused)?;
    tiling::check(&tensor.shape, &chunks).map_err(refused)?;
    let shape = tensor.shape.clone();
    let is_empty = shape.contains(&0);
    // Processes without elements of a tensor have an empty box of it.
    let filled = chunks
        .iter()
        .filter(|chunk| !chunk.is_empty() || chunk.sizes == shape);
    let mut pieces = Vec::new();
    for Chunk { offsets, sizes } in filled {
        let key = (listed.name.clone(), Some(offsets.clone()));
        let place = places.get(&key).ok_or_else(|| {
            refused(format!(
                "does not say where its part at {offsets:?} is stored"
            ))
        })?;
        if let [transform, ..] = place.transforms.as_slice() {
            let found = quote(transform);
            let problem = format!(
                "its part at {offsets:?} was written through {found}, which is not read; save it without extensions"
            );
            return Err(refused(problem));
        }
        let info = parts.tensor(&listed.name, place, Some(dtype), sizes)?;
        let offsets = offsets.clone();
        pieces.push(Piece { offsets, info });
        if is_empty {
            break;
        }
    }
    if pieces.is_empty() {
        return Err(refused("is stored in no part".to_owned()));
    }
    Ok(Whole { shape, pieces })
}

/// Says which part of a checkpoint in a directory is not written yet, or not copied yet; `None` if all of it is there, or its index
/// is damaged.
pub fn lacking(directory: &Path) -> Option<String> {
    let path = directory.join(METADATA);
    if !path.is_file() {
        return Some(format!("{METADATA} is not there yet"));
    }
    let file = DataFile::open(&path).ok()?;
    let bytes = whole(&file).ok()?;
    let Ok(index) = Index::read(&bytes) else {
        let is_cut_short = bytes.last() != Some(&b'.');
        return is_cut_short.then(|| format!("{METADATA} is not written whole"));
    };
    let mut ends = BTreeMap::new();
    for place in index.all_places() {
        let end: &mut usize = ends.entry(place.file).or_default();
        *end = (*end).max(place.start.saturating_add(place.n_bytes));
    }
    ends.into_iter().find_map(|(name, end)| {
        let len = directory.join(&*name).metadata().map(|about| about.len());
        match len {
            Ok(len) if len >= end as u64 => None,
            Ok(len) => Some(format!(
                "{} is not written whole: it has {len} of {end} bytes so far",
                quote(&name)
            )),
            Err(_) => Some(format!(
                "{METADATA} names {}, which is not there yet",
                quote(&name)
            )),
        }
    })
}

/// Returns the step that a trainer saved in a checkpoint, if it did and the files can be read.
pub fn saved_step(directory: &Path) -> Option<u64> {
    let path = directory.join(METADATA);
    let file = DataFile::open(&path).ok()?;
    let bytes = whole(&file).ok()?;
    let index = Index::read(&bytes).ok()?;
    let beside = values::beside(&index.listed, |_| false);
    let places = index
        .places(|name| beside.iter().any(|value| &*value.name == name))
        .ok()?;
    let mut plain_values = serde_json::Map::new();
    let mut parts = Parts::of(directory, file);
    values::add(&beside, &places, &mut parts, &mut plain_values);
    values::step(&plain_values)
}
