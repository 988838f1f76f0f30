//! Megatron's checkpoints of several ranks: one file for each division of every matrix (tensor parallel) and of the layers (pipeline
//! parallel), in directories `mp_rank_00`, `mp_rank_01`, … or `mp_rank_00_000`, `mp_rank_00_001`, ….

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};
use serde_json::Value as Json;

use super::pytorch::{DIVISIONS, StateDict, put_together as undivided};
use super::slices::{Division, put_together};

const RANK: &str = "mp_rank_";
/// The name of a rank's weights.
pub(super) const WEIGHTS: &str = "model_optim_rng.pt";
const LAYERS: &str = "decoder.layers.";
/// Limit on the entries of a directory that are looked at.
const MOST_ENTRIES: usize = 10_000;

/// The ranks of a checkpoint: the file of each, pipeline stage by stage.
#[derive(Debug)]
pub struct Grid {
    first: PathBuf,
    n_tensor: usize,
    n_stages: usize,
}

/// Lists the weights of all ranks in a step's directory, stage by stage; `None` if there are not several.
pub fn files_in(directory: &Path) -> Option<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut ranks: Vec<((usize, usize), PathBuf)> = entries
        .take(MOST_ENTRIES)
        .flatten()
        .filter_map(|entry| {
            let file = entry.path().join(WEIGHTS);
            Some((place_of(&file)?, file))
        })
        .filter(|(_, file)| file.is_file())
        .collect();
    ranks.sort();
    (ranks.len() > 1).then(|| ranks.into_iter().map(|(_, file)| file).collect())
}

/// Returns the stage and the division of a rank's file, by its directory.
fn place_of(file: &Path) -> Option<(usize, usize)> {
    let rank = file.parent()?.file_name()?.to_str()?.strip_prefix(RANK)?;
    let (tensor, stage) = rank.split_once('_').unwrap_or((rank, "0"));
    Some((stage.parse().ok()?, tensor.parse().ok()?))
}

/// Returns the ranks that files belong to; `None` if they are no ranks of Megatron.
///
/// # Errors
/// Names the first rank that is missing.
pub fn grid(files: &[PathBuf]) -> Result<Option<Grid>> {
    let places: Option<Vec<_>> = files.iter().map(|file| place_of(file)).collect();
    let (Some(places), Some(first)) = (places, files.first()) else {
        return Ok(None);
    };
    let n_of = |of: fn(&(usize, usize)) -> usize| places.iter().map(of).max().unwrap_or(0) + 1;
    let (n_stages, n_tensor) = (n_of(|place| place.0), n_of(|place| place.1));
    let all = (0..n_stages).flat_map(|stage| (0..n_tensor).map(move |rank| (stage, rank)));
    if let Some((stage, rank)) = all.take(MOST_ENTRIES).find(|place| !places.contains(place)) {
        let name = match n_stages {
            1 => format!("{RANK}{rank:02}"),
            _ => format!("{RANK}{rank:02}_{stage:03}"),
        };
        let step = first
            .parent()
            .and_then(Path::parent)
            .unwrap_or(Path::new("."));
        let problem = "missing, while other ranks are there; copy it again";
        return Err(Error::file(step.join(name).join(WEIGHTS), problem));
    }
    Ok(Some(Grid {
        first: first.clone(),
        n_tensor,
        n_stages,
    }))
}

/// Joins the ranks: queries, keys, values, up-projections and tables of tokens by rows, projections to the residual by columns; a gate
/// and what it gates are halves of one matrix in each rank. Layers of each stage are counted on from those before it.
///
/// # Errors
/// When the training arguments say another number of ranks, or a tensor is not divided in a way that is known.
pub fn joined(grid: &Grid, mut slices: Vec<StateDict>) -> Result<StateDict> {
    let stated = |key: &str| {
        let args = slices.first()?.plain_values.get("args")?;
        args.get(key).and_then(Json::as_u64)
    };
    for (key, n) in DIVISIONS.iter().zip([grid.n_tensor, grid.n_stages]) {
        if let Some(stated) = stated(key).filter(|stated| *stated != n as u64) {
            let problem = format!("args {key} is {stated}, while files of {n} are there");
            return Err(Error::file(&grid.first, problem));
        }
    }
    let mut n_before = 0;
    for stage in slices.chunks_mut(grid.n_tensor) {
        let mut n_layers = 0;
        for slice in stage {
            let renamed = |name: &str| {
                let (idx, rest) = name.strip_prefix(LAYERS)?.split_once('.')?;
                let idx: usize = idx.parse().ok()?;
                Some((idx, rest.to_owned()))
            };
            // Transformer Engine's own state is no weight.
            let states = slice.tensors.iter().map(|(name, _)| name.to_owned());
            let states: Vec<String> = states
                .filter(|name| name.ends_with("_extra_state"))
                .collect();
            states.iter().for_each(|name| slice.tensors.forget(name));
            let of_layers = slice.tensors.iter().filter_map(|(name, _)| renamed(name));
            let n = of_layers
                .map(|(idx, _)| idx.saturating_add(1))
                .max()
                .unwrap_or(0);
            n_layers = n_layers.max(n);
            slice.tensors.rename(|name| {
                let (idx, rest) = renamed(name)?;
                Some(format!("{LAYERS}{}.{rest}", idx.saturating_add(n_before)))
            })?;
        }
        n_before = n_layers.saturating_add(n_before);
    }
    let gated = slices.first().is_some_and(is_gated);
    // Both ends of a model with tied tables have the table; the first counts.
    let mut seen = BTreeSet::new();
    for stage in slices.chunks_mut(grid.n_tensor) {
        let names: Vec<String> = stage
            .iter()
            .flat_map(|slice| slice.tensors.iter().map(|(name, _)| name.to_owned()))
            .collect();
        for name in names.iter().filter(|name| seen.contains(*name)) {
            stage
                .iter_mut()
                .for_each(|slice| slice.tensors.forget(name));
        }
        seen.extend(names);
    }
    let mut whole = put_together(slices, grid.n_tensor, |name, part| {
        division(name, part.shape.len(), gated)
    })?;
    undivided(&mut whole.plain_values);
    Ok(whole)
}

/// Whether the up-projection holds a gate too, by its size.
fn is_gated(slice: &StateDict) -> bool {
    let shape_of = |map: &str| {
        let end = format!(".mlp.{map}.weight");
        let mut all = slice.tensors.iter();
        let (_, info) = all.find(|(name, _)| name.ends_with(&end))?;
        <[usize; 2]>::try_from(info.shape.as_slice()).ok()
    };
    match (shape_of("linear_fc1"), shape_of("linear_fc2")) {
        (Some([d_up, _]), Some([_, d_mlp])) => d_mlp.checked_mul(2) == Some(d_up),
        _ => false,
    }
}

/// How a tensor is divided among tensor-parallel ranks, by its name.
fn division(name: &str, n_axes: usize, is_gated: bool) -> Option<Division> {
    let (module, kind) = name.rsplit_once('.')?;
    let module = module.rsplit('.').next()?;
    Some(match (module, kind) {
        ("linear_fc1", "weight" | "bias") if is_gated => Division::Halves,
        ("linear_qkv" | "linear_fc1" | "output_layer", "weight" | "bias")
        | ("word_embeddings", "weight") => Division::Along(0),
        ("linear_proj" | "linear_fc2", "weight") => Division::Along(1),
        ("position_embeddings", "weight") => Division::Same,
        // Norms, also those that Transformer Engine keeps in the map after them, and biases of what writes to the residual.
        _ if n_axes == 1 => Division::Same,
        _ => return None,
    })
}
