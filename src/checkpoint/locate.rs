//! Finds the weight files of a checkpoint in a directory, whichever program saved it.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use attnscope_compute::error::{Error, Result};

use super::auxiliary_files::is_auxiliary;
use super::distributed_files::{self, index_in, is_distributed_file};
use super::kinds::other_directory;
use super::named_paths::{directory_of, is_inside};
use super::pytorch::METADATA;
use super::sentence::{MODULES, transformer_of};
use super::stand_ins::refuse_dangling;
use super::weight_files::{Located, Weights};
use super::{adapter, gguf, ranks, shards, slices};

const SAFETENSORS: &str = "model.safetensors";
const SAFETENSORS_INDEX: &str = "model.safetensors.index.json";
const PYTORCH: &str = "pytorch_model.bin";
const PYTORCH_INDEX: &str = "pytorch_model.bin.index.json";
/// Name of nanoGPT's file.
const NANOGPT: &str = "ckpt.pt";
/// DeepSpeed's file with the name of the newest directory, and the name of its weights.
const LATEST: &str = "latest";
const DEEPSPEED: &str = "mp_rank_00_model_states.pt";
/// Megatron's file with the number of the newest step.
const MEGATRON_STEP: &str = "latest_checkpointed_iteration.txt";
/// Limit on nested directories that lead to weights.
const DEEPEST: usize = 4;

/// Expected files, for messages.
const LOOKED_FOR: &str = "model.safetensors, model.safetensors.index.json, pytorch_model.bin, \
     pytorch_model.bin.index.json, one .gguf, ckpt.pt, one .pt, .pth or .ckpt, or one other .safetensors";

/// Returns the weights that a file belongs to: itself, or all shards of its set.
///
/// # Errors
/// When a shard is missing.
pub fn of_file(file: &Path) -> Result<Weights> {
    let directory = directory_of(file);
    let index = directory.join(METADATA);
    if is_distributed_file(file) && index.is_file() {
        return Ok(Weights::File(index));
    }
    match shards::set_of(file)? {
        Some(files) => {
            let index = [SAFETENSORS_INDEX, PYTORCH_INDEX].map(|name| directory.join(name));
            // An index beside them is better: it says which tensor is in which shard.
            let names = |index: &PathBuf| {
                let own = file.file_name().unwrap_or_default().to_string_lossy();
                index.is_file()
                    && shards::files_of(index)
                        .is_ok_and(|files| files.iter().any(|name| *name == own))
            };
            Ok(match index.into_iter().find(names) {
                Some(index) => Weights::File(index),
                None => Weights::Shards(files),
            })
        }
        None => Ok(Weights::File(file.to_path_buf())),
    }
}

/// Finds the weights of a directory.
///
/// # Errors
/// When there are none, or several of which one must be named.
pub fn weights_in(directory: &Path) -> Result<Located> {
    search(directory, DEEPEST)?.ok_or_else(|| {
        let problem = other_directory(directory)
            .unwrap_or_else(|| format!("no weights here; expected {LOOKED_FOR}"));
        Error::file(directory, problem)
    })
}

/// Whether a directory holds a complete model, possibly beside an adapter.
pub fn has_own_weights(directory: &Path) -> bool {
    directory.join("config.json").is_file() && matches!(in_directory(directory), Ok(Some(_)))
}

/// Finds the newest adapter in a trainer's directory of steps.
///
/// # Errors
/// When a directory on the way cannot be read.
pub fn adapter_below(directory: &Path) -> Result<Option<PathBuf>> {
    if !directory.is_dir() || has_own_weights(directory) {
        return Ok(None);
    }
    let inside = candidate_directories(directory)?;
    Ok(inside.iter().find_map(|path| adapter::directory_at(path)))
}

fn search(directory: &Path, depth: usize) -> Result<Option<Located>> {
    if let Some(weights) = in_directory(directory)? {
        return Ok(Some(Located {
            directory: directory.to_path_buf(),
            weights,
        }));
    }
    if depth == 0 {
        return Ok(None);
    }
    for inside in candidate_directories(directory)? {
        if let Some(found) = search(&inside, depth - 1)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Finds weights directly in a directory.
fn in_directory(directory: &Path) -> Result<Option<Weights>> {
    let named = |name: &str| {
        let path = directory.join(name);
        path.symlink_metadata().is_ok().then_some(path)
    };
    let by_name = [SAFETENSORS, SAFETENSORS_INDEX, PYTORCH, PYTORCH_INDEX];
    if let Some(found) = by_name.iter().find_map(|name| named(name)) {
        refuse_dangling(&found)?;
        return Ok(Some(Weights::File(found)));
    }
    if let Some(found) = gguf::file_at(directory)? {
        return of_file(&found).map(Some);
    }
    if let Some(found) = [NANOGPT, DEEPSPEED].iter().find_map(|name| named(name)) {
        refuse_more_ranks(directory)?;
        return Ok(Some(Weights::File(found)));
    }
    // Other files beside the parts hold no model, but the step or the training arguments.
    if let Some(index) = index_in(directory)? {
        return Ok(Some(Weights::File(index)));
    }
    if let Some(slices) = slices::slices_in(directory)? {
        return Ok(Some(slices));
    }
    for endings in [
        &["pt", "pth", "ckpt"][..],
        &["safetensors"],
        &["bin"],
        &["tar"],
        &["npz"],
        &["msgpack"],
    ] {
        let mut found = ending_in(directory, endings);
        // Members of one set count as one file.
        if let Some(first) = found.first()
            && let Some(set) = shards::set_of(first)?
            && found.iter().all(|file| set.contains(file))
        {
            return of_file(first).map(Some);
        }
        match found.len() {
            0 => {}
            1 => return Ok(Some(Weights::File(found.remove(0)))),
            n => {
                let kinds: Vec<String> =
                    endings.iter().map(|ending| format!(".{ending}")).collect();
                let problem = format!(
                    "holds {n} files that end in {}; --weights FILE names the one to open",
                    kinds.join(" or ")
                );
                return Err(Error::file(directory, problem));
            }
        }
    }
    Ok(None)
}

/// Lists the directories that may contain the weights of a directory, the likeliest first.
fn candidate_directories(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    if let Some(newest) = named_in(&directory.join(LATEST)) {
        let inside = directory.join(&newest);
        if !inside.is_dir() {
            let problem = format!("names {newest}, which is missing");
            return Err(Error::file(directory.join(LATEST), problem));
        }
        found.push(inside);
    }
    if let Some(newest) = named_in(&directory.join(MEGATRON_STEP)) {
        let step = newest.parse::<u64>();
        let name = step.map_or(newest, |step| format!("iter_{step:07}"));
        found.push(directory.join(name));
    }
    if let Some(part) = transformer_of(&directory.join(MODULES)) {
        found.push(directory.join(part));
    }
    let entries = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .take(10_000);
    let inside: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    let name_of = |path: &PathBuf| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    // With one rank, Megatron's file is the whole model; several are slices.
    let mut ranks = inside
        .iter()
        .filter(|path| path.join(ranks::WEIGHTS).is_file());
    found.extend(ranks.next().cloned());
    found.extend(distributed_files::inside(directory));
    // The newest step of a trainer.
    let mut steps: Vec<(u64, &PathBuf)> = inside
        .iter()
        .filter_map(|path| {
            let name = name_of(path);
            let step = ["checkpoint-", "global_step", "step-", "step", "version_"]
                .iter()
                .find_map(|word| name.strip_prefix(word))?;
            Some((step.parse().ok()?, path))
        })
        .collect();
    steps.sort_by_key(|(step, _)| Reverse(*step));
    found.extend(steps.into_iter().map(|(_, path)| path.clone()));
    for known in [
        "checkpoint",
        "checkpoints",
        "lightning_logs",
        "0_Transformer",
        "model",
    ] {
        found.extend(inside.iter().filter(|path| name_of(path) == known).cloned());
    }
    Ok(found)
}

/// Reads the name of a directory from a short text file.
fn named_in(file: &Path) -> Option<String> {
    const LONGEST: usize = 256;
    if !file.is_file() {
        return None;
    }
    let text = super::read_text(file, LONGEST).ok()?;
    let name = text.trim().to_owned();
    is_inside(&name).then_some(name)
}

/// Refuses several DeepSpeed ranks of one model: only DeepSpeed's configuration says how to join their slices.
fn refuse_more_ranks(directory: &Path) -> Result<()> {
    if directory.join("mp_rank_01_model_states.pt").exists() {
        let problem = "holds several mp_rank_* of one model; DeepSpeed's zero_to_fp32.py or ds_to_universal.py makes one of them";
        return Err(Error::file(directory, problem));
    }
    Ok(())
}

/// Lists files of a directory by extension, sorted, without those that trainers leave beside weights.
fn ending_in(directory: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase());
            path.is_file() && ending.is_some_and(|e| endings.contains(&e.as_str()))
        })
        .filter(|path| !is_auxiliary(path) && !adapter::is_weights(path))
        .collect();
    found.sort();
    found
}
