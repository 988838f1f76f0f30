//! Finds the steps of a training: directories of checkpoints, also nested ones, single files, and the names that trainers give
//! to files they are still writing.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{distributed_at, is_trainer_state};
use attnscope_compute::error::{Error, Result};
use attnscope_report::record::{natural, step_of};

/// Extensions of files of weights.
const WEIGHTS: [&str; 6] = ["safetensors", "bin", "pt", "pth", "ckpt", "gguf"];
/// Most directory levels between a directory and its checkpoints.
const DEEPEST: usize = 4;

/// A checkpoint found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub path: PathBuf,
    /// Path relative to the searched directory, or the base name.
    pub name: String,
    pub step: Option<u64>,
}

/// Returns the checkpoints of a training in a directory that is not a checkpoint itself, or has them next to its own weights, as
/// transformers' Trainer leaves them. `None` for a single checkpoint, and for anything that is not a directory.
///
/// # Errors
/// When the directory cannot be listed, or holds several trainings.
pub fn training_in(directory: &Path) -> Result<Option<Vec<Found>>> {
    if !directory.is_dir() {
        return Ok(None);
    }
    let mut found = below(directory, DEEPEST)?;
    if let [only] = found.as_slice()
        && only.path.is_dir()
        && !is_checkpoint(directory)
        && let Some(inside) = training_in(&only.path)?
    {
        return Ok(Some(inside));
    }
    if found.is_empty() {
        found = first_step(directory)?;
    }
    for found in &mut found {
        let name = found.path.strip_prefix(directory).unwrap_or(&found.path);
        found.name = name.to_string_lossy().into_owned();
        found.step = step_of(&found.path, &found.name);
    }
    // A directory that is a checkpoint itself is a training only if the others are its steps.
    if is_checkpoint(directory) && !found.iter().all(|found| found.step.is_some()) {
        return Ok(None);
    }
    if found.is_empty() {
        return Ok(None);
    }
    if is_checkpoint(directory) {
        let name = base_name(directory);
        let own = step_of(directory, &name);
        // The last step is saved twice: under its number, and at the end.
        if own.is_some() && found.iter().all(|found| found.step != own) {
            found.push(Found {
                path: directory.to_path_buf(),
                name,
                step: own,
            });
        }
    }
    found.sort_by(in_order);
    Ok(Some(found))
}

/// Returns the only file of weights in a directory if its name has a step: the others are still to come.
fn first_step(directory: &Path) -> Result<Vec<Found>> {
    let mut files = entries_of(directory)?;
    files.retain(|path| is_weights(path) && !is_being_written(path) && !is_shard(path));
    // Pass no directory, so that a trainer's state file is not used.
    let has_step = |path: &Path| step_of(Path::new(""), &base_name(path)).is_some();
    Ok(match files.as_slice() {
        [only] if has_step(only) => vec![alone(only)],
        _ => Vec::new(),
    })
}

/// Returns the checkpoints below a directory, without the directory itself.
fn below(directory: &Path, depth: usize) -> Result<Vec<Found>> {
    let direct = directly_in(directory)?;
    if !direct.is_empty() || depth == 0 {
        return Ok(direct);
    }
    // Each step may have its own directory around it, or all of them may be in one directory further down.
    let mut trainings: Vec<(PathBuf, Vec<Found>)> = Vec::new();
    let mut alone = Vec::new();
    for inside in directories_in(directory)? {
        let mut found = below(&inside, depth - 1).unwrap_or_default();
        match found.len() {
            0 => {}
            1 => alone.append(&mut found),
            _ => trainings.push((inside, found)),
        }
    }
    match trainings.len() {
        0 => Ok(alone),
        1 if alone.is_empty() => Ok(trainings.remove(0).1),
        _ => {
            let mut names: Vec<String> =
                trainings.iter().map(|(path, _)| base_name(path)).collect();
            names.sort_by(|a, b| natural(a, b));
            names.truncate(3);
            let problem = format!(
                "expected the checkpoints of one training, found several: {}, …; name one of them",
                names.join(", ")
            );
            Err(Error::file(directory, problem))
        }
    }
}

/// Returns the checkpoints directly in a directory, in natural order.
pub fn directly_in(directory: &Path) -> Result<Vec<Found>> {
    let mut files = Vec::new();
    let mut inside = Vec::new();
    for path in entries_of(directory)? {
        if is_being_written(&path) {
            continue;
        }
        if path.is_dir() && is_checkpoint(&path) {
            inside.push(path);
        } else if is_weights(&path) {
            files.push(path);
        }
    }
    // One file, or the shards of one model, is a checkpoint without a configuration, named after the directory.
    let have_steps = || files.iter().all(|file| alone(file).step.is_some());
    let is_one = files.len() < 2
        || files.iter().any(|file| is_shard(file))
        || (has_config(directory) && !have_steps());
    if !is_one {
        inside.extend(files);
    }
    let mut found: Vec<Found> = inside.into_iter().map(|path| alone(&path)).collect();
    found.sort_by(|a, b| natural(&a.path.to_string_lossy(), &b.path.to_string_lossy()));
    Ok(found)
}

/// Makes a checkpoint named by its base name.
pub fn alone(path: &Path) -> Found {
    let name = base_name(path);
    Found {
        step: step_of(path, &name),
        name,
        path: path.to_path_buf(),
    }
}

fn entries_of(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory);
    let entries = entries.map_err(|e| Error::file(directory, format!("cannot be listed ({e})")))?;
    Ok(entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect())
}

fn directories_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut inside = entries_of(directory)?;
    inside.retain(|path| {
        // A link may form a cycle.
        let is_link = path
            .symlink_metadata()
            .is_ok_and(|about| about.is_symlink());
        path.is_dir() && !is_link && !is_being_written(path)
    });
    inside.sort();
    Ok(inside)
}

/// Returns the base name, also of `.`.
fn base_name(path: &Path) -> String {
    let named = |path: &Path| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let whole = || path.canonicalize().ok().as_deref().and_then(named);
    named(path)
        .or_else(whole)
        .unwrap_or_else(|| path.display().to_string())
}

/// Whether trainers and copy tools use the name for files that they rename at the end.
pub fn is_being_written(path: &Path) -> bool {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let begins = ["tmp-", "tmp_", "."];
    let ends = [
        ".tmp",
        ".part",
        ".partial",
        ".incomplete",
        ".writing",
        "~",
        ".new",
    ];
    begins.iter().any(|start| name.starts_with(start)) || ends.iter().any(|end| name.ends_with(end))
}

/// Orders by step; checkpoints without a step come first, by name.
fn in_order(a: &Found, b: &Found) -> Ordering {
    a.step.cmp(&b.step).then_with(|| natural(&a.name, &b.name))
}

fn has_config(directory: &Path) -> bool {
    ["config.json", "params.json"]
        .iter()
        .any(|name| directory.join(name).is_file())
}

/// Whether a directory contains one model, judged by file names.
pub fn is_checkpoint(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).is_file();
    let names = [
        "config.json",
        "params.json",
        "model.safetensors",
        "model.safetensors.index.json",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
    ];
    if names.into_iter().any(has) {
        return true;
    }
    let files = entries_of(directory).unwrap_or_default();
    // Ranks and parts are several files; the reader decides whether they can be read.
    let is_rank = |file: &PathBuf| base_name(file).ends_with("model_states.pt");
    if files.iter().any(is_rank) || distributed_at(directory).is_some() {
        return true;
    }
    let has_rank = |path: &PathBuf| path.join("model_optim_rng.pt").is_file();
    if files.iter().filter(|path| has_rank(path)).count() > 1 {
        return true;
    }
    let weights: Vec<PathBuf> = files.into_iter().filter(|file| is_weights(file)).collect();
    weights.len() == 1 || weights.iter().any(|file| is_shard(file))
}

/// Whether a file contains weights, judged by its name.
pub fn is_weights(path: &Path) -> bool {
    !is_trainer_state(path)
        && path.is_file()
        && path.extension().is_some_and(|ending| {
            WEIGHTS
                .iter()
                .any(|known| ending.eq_ignore_ascii_case(known))
        })
}

/// Whether a file is one of several shards of a model: `model-00001-of-00002.safetensors`.
pub fn is_shard(path: &Path) -> bool {
    shards_of(path).is_some()
}

/// Returns the number of shards in a shard's name.
pub fn shards_of(path: &Path) -> Option<usize> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let (before, n) = name.rsplit_once("-of-")?;
    let number = |text: &str| text.parse::<usize>().ok();
    let (_, nth) = before.rsplit_once('-')?;
    number(nth)?;
    number(n)
}
