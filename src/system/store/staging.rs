//! What lies in an object store as files: checkpoints and inputs are brought to scratch, outputs are mirrored there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use attnscope_checkpoint::read_regular;
use attnscope_compute::error::{Error, Result};

use super::address::Address;
use super::bucket::{self, Level, Object};
use super::scratch;
use crate::fetch::{shards_of, wanted};

/// Endings of files beside weights that say how these are read, and the size from which such a file says something else.
const ENDINGS: [&str; 8] = [
    "json", "toml", "txt", "model", "jinja", "spm", "vocab", "pkl",
];
const MOST_BESIDE: u64 = 64 << 20;
/// Endings of weights.
const WEIGHTS: [&str; 8] = [
    "safetensors",
    "gguf",
    "bin",
    "pt",
    "pth",
    "ckpt",
    "npz",
    "h5",
];

/// What is said of an address that leads nowhere.
const NOTHING: &str = "there is neither an object of this name nor anything below it (404)";
/// Objects that are asked for at the same time.
const AT_ONCE: usize = 16;

/// What was staged, and which directories are copies of what.
#[derive(Debug, Default)]
struct Staged {
    targets: BTreeMap<String, PathBuf>,
    mirrors: BTreeMap<PathBuf, Address>,
}

static STAGED: Mutex<Option<Staged>> = Mutex::new(None);

fn staged_so_far() -> MutexGuard<'static, Option<Staged>> {
    let mut staged = STAGED.lock().unwrap_or_else(PoisonError::into_inner);
    staged.get_or_insert_default();
    staged
}

fn ending(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

fn is_weights(object: &Object) -> bool {
    WEIGHTS.contains(&ending(object.address.name()))
}

/// Where an address lies in scratch.
fn place(kind: &str, address: &Address) -> Result<PathBuf> {
    let path = scratch::directory()?.join(kind).join(&address.bucket);
    Ok(path.join(&address.key))
}

/// The checkpoints below a prefix that is none itself; `None` for a path, and for an address that names one checkpoint.
///
/// # Errors
/// When the store refuses, or nothing below is a checkpoint.
pub fn expanded(path: &Path) -> Result<Option<Vec<PathBuf>>> {
    let Some(address) = Address::parse(path)? else {
        return Ok(None);
    };
    if WEIGHTS.contains(&ending(address.name())) && bucket::object(&address)?.is_some() {
        return Ok(None);
    }
    let level = bucket::level(&address)?;
    let weights: Vec<&Object> = level.objects.iter().filter(|one| is_weights(one)).collect();
    if !weights.is_empty() {
        return Ok(steps(&weights));
    }
    let is_empty = level.objects.is_empty() && level.prefixes.is_empty();
    let mut found = Vec::new();
    for prefix in level.prefixes {
        let below = bucket::level(&prefix)?;
        if below.objects.iter().any(is_weights) {
            found.push(PathBuf::from(prefix.to_string()));
        }
    }
    if found.is_empty() && is_empty {
        return Err(Error::file(path, NOTHING));
    }
    if found.is_empty() {
        let problem = "holds no checkpoint, neither itself nor one level below";
        return Err(Error::file(path, problem));
    }
    Ok(Some(found))
}

/// Weights that lie beside one another and are a checkpoint each, as `step-50.safetensors`.
fn steps(weights: &[&Object]) -> Option<Vec<PathBuf>> {
    let is_step = |object: &&&Object| {
        let name = object.address.name();
        let stem = name.split('.').next().unwrap_or_default();
        let is_shard = stem.contains("-of-");
        !is_shard && stem.ends_with(|c: char| c.is_ascii_digit())
    };
    let are_steps = weights.len() > 1 && weights.iter().filter(is_step).count() == weights.len();
    let paths = weights
        .iter()
        .map(|object| PathBuf::from(object.address.to_string()));
    are_steps.then(|| paths.collect())
}

/// The files that a checkpoint needs, but for shards that only its index names, and the prefix that they lie in.
fn needed(path: &Path, address: &Address) -> Result<(Address, Level, Vec<Object>)> {
    let is_file = WEIGHTS.contains(&ending(address.name())) && bucket::object(address)?.is_some();
    let prefix = if is_file {
        Address {
            bucket: address.bucket.clone(),
            key: address
                .key
                .rsplit_once('/')
                .map_or("", |(above, _)| above)
                .to_owned(),
        }
    } else {
        address.clone()
    };
    let level = bucket::level(&prefix)?;
    let names: Vec<String> = level
        .objects
        .iter()
        .map(|o| o.address.name().to_owned())
        .collect();
    if names.is_empty() {
        return Err(Error::file(path, NOTHING));
    }
    let named = is_file.then(|| address.name());
    let wanted = wanted(&names, named).map_err(|problem| {
        Error::file(
            path,
            problem.replace("hf://ORG/NAME/", &format!("{prefix}/")),
        )
    })?;
    let is_needed = |object: &&Object| {
        let name = object.address.name();
        let says = ENDINGS.contains(&ending(name)) && object.n_bytes <= MOST_BESIDE;
        wanted.iter().any(|wanted| wanted == name) || says
    };
    let needed = level.objects.iter().filter(is_needed).cloned().collect();
    Ok((prefix, level, needed))
}

/// Names, sizes and versions of a checkpoint's files, by which a change is noticed; `None` for a path.
///
/// # Errors
/// When the store refuses.
pub fn listed(path: &Path) -> Result<Option<String>> {
    let Some(address) = Address::parse(path)? else {
        return Ok(None);
    };
    let (_, level, _) = needed(path, &address)?;
    let mut said = String::new();
    for object in &level.objects {
        let name = object.address.name();
        let _ = writeln!(said, "{name:?} {} {}", object.n_bytes, object.etag);
    }
    Ok(Some(said))
}

/// Where a target was staged before.
fn known(address: &Address) -> Option<PathBuf> {
    let staged = staged_so_far();
    staged.as_ref()?.targets.get(&address.to_string()).cloned()
}

/// Brings a checkpoint to scratch, once in a process: only the files that are needed. A path is its own place.
///
/// # Errors
/// When the store refuses, there is no checkpoint, or too little space.
pub fn staged(path: &Path) -> Result<PathBuf> {
    let Some(address) = Address::parse(path)? else {
        return Ok(path.to_path_buf());
    };
    if let Some(known) = known(&address) {
        return Ok(known);
    }
    let (prefix, level, mut queue) = needed(path, &address)?;
    let directory = place("in", &prefix)?;
    let n_bytes = |objects: &[Object]| objects.iter().map(|object| object.n_bytes).sum();
    scratch::check_space(&address.to_string(), n_bytes(&queue))?;
    let mut at = 0;
    while let Some(object) = queue.get(at).cloned() {
        at += 1;
        let to = directory.join(object.address.name());
        bucket::get(&object, &to, is_weights(&object))?;
        // The shards of a model are known once its index is there.
        if object.address.name().ends_with(".index.json") {
            let named = shards_of(&to)?;
            let shards = level.objects.iter().filter(|shard| {
                let name = shard.address.name();
                named.iter().any(|named| named == name) && !queue.contains(shard)
            });
            let shards: Vec<Object> = shards.cloned().collect();
            scratch::check_space(&address.to_string(), n_bytes(&shards))?;
            queue.extend(shards);
        }
    }
    let is_file = prefix != address;
    let found = if is_file {
        directory.join(address.name())
    } else {
        directory
    };
    if let Some(all) = staged_so_far().as_mut() {
        all.targets.insert(address.to_string(), found.clone());
    }
    Ok(found)
}

/// Removes what was staged of a target: its turn is over.
pub fn release(target: &Path) {
    let Ok(Some(address)) = Address::parse(target) else {
        return;
    };
    let mut staged = staged_so_far();
    let Some(all) = staged.as_mut() else {
        return;
    };
    let Some(found) = all.targets.remove(&address.to_string()) else {
        return;
    };
    let is_file = found.is_file();
    // What cannot be removed now is removed with the whole directory.
    let _ = if is_file {
        std::fs::remove_file(&found)
    } else {
        std::fs::remove_dir_all(&found)
    };
}

/// Brings an object, or everything below a prefix, to scratch. A path is its own place.
///
/// # Errors
/// When the store refuses, or there is nothing.
pub fn fetched(path: &Path) -> Result<PathBuf> {
    let Some(address) = Address::parse(path)? else {
        return Ok(path.to_path_buf());
    };
    let to = place("in", &address)?;
    if let Some(object) = bucket::object(&address)? {
        scratch::check_space(&address.to_string(), object.n_bytes)?;
        bucket::get(&object, &to, true)?;
        return Ok(to);
    }
    let mut found = Vec::new();
    let mut open = vec![address.clone()];
    while let Some(prefix) = open.pop() {
        let level = bucket::level(&prefix)?;
        found.extend(level.objects);
        open.extend(level.prefixes);
    }
    if found.is_empty() {
        return Err(Error::file(path, NOTHING));
    }
    scratch::check_space(
        &address.to_string(),
        found.iter().map(|one| one.n_bytes).sum(),
    )?;
    // Many small objects: the time is that of the answers.
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(object) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
            let below = object
                .address
                .key
                .strip_prefix(&address.key)
                .unwrap_or_default();
            bucket::get(object, &to.join(below.trim_start_matches('/')), false)?;
        }
        Ok(())
    };
    let ended: Vec<Result<()>> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..AT_ONCE.min(found.len()))
            .map(|_| scope.spawn(work))
            .collect();
        all.into_iter().filter_map(|one| one.join().ok()).collect()
    });
    ended.into_iter().collect::<Result<()>>()?;
    Ok(to)
}

/// A directory of scratch whose files are written to a prefix as they get their names. A path is its own place.
///
/// # Errors
/// When the address or scratch cannot be used.
pub fn mirrored(path: &Path) -> Result<PathBuf> {
    let Some(address) = Address::parse(path)? else {
        return Ok(path.to_path_buf());
    };
    // Tells at once whether the bucket is there.
    bucket::level(&address)?;
    let to = place("out", &address)?;
    std::fs::create_dir_all(&to).map_err(|e| Error::file(&to, format!("cannot be made ({e})")))?;
    if let Some(all) = staged_so_far().as_mut() {
        all.mirrors.insert(to.clone(), address);
    }
    Ok(to)
}

/// A file of scratch that is written to an address once it gets its name; what is there already is brought. A path is its own place.
///
/// # Errors
/// When the store refuses, or the address names no object.
pub fn written(path: &Path) -> Result<PathBuf> {
    let Some(address) = Address::parse(path)? else {
        return Ok(path.to_path_buf());
    };
    if address.key.is_empty() {
        return Err(Error::file(path, "expected s3://BUCKET/KEY, found no key"));
    }
    let (above, name) = address.key.rsplit_once('/').unwrap_or(("", &address.key));
    let above = Address {
        bucket: address.bucket.clone(),
        key: above.to_owned(),
    };
    let to = mirrored(Path::new(&above.to_string()))?.join(name);
    if let Some(object) = bucket::object(&address)? {
        bucket::get(&object, &to, false)?;
    }
    Ok(to)
}

/// The address of a file in a mirrored directory.
fn source(local: &Path) -> Option<Address> {
    let staged = staged_so_far();
    let mirrors = &staged.as_ref()?.mirrors;
    let (directory, address) = local
        .ancestors()
        .find_map(|above| mirrors.get_key_value(above))?;
    let below = local.strip_prefix(directory).ok()?;
    let parts: Option<Vec<&str>> = below.iter().map(|part| part.to_str()).collect();
    Some(address.join(&parts?.join("/")))
}

/// Brings a file of a mirrored directory that is not there yet, where the store has it; what fails counts as missing.
pub fn pull(local: &Path) {
    if local.exists() {
        return;
    }
    if let Some(address) = source(local)
        && let Ok(Some(object)) = bucket::object(&address)
    {
        let _ = bucket::get(&object, local, false);
    }
}

/// Writes a file of a mirrored directory to the store.
///
/// # Errors
/// When the store refuses.
pub fn push(local: &Path) -> Result<()> {
    let Some(address) = source(local) else {
        return Ok(());
    };
    let content = read_regular(local, usize::MAX)
        .map_err(|e| Error::file(local, format!("cannot be read ({e})")))?;
    bucket::put(&address, content)
}
