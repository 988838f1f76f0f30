//! Object store contents as local files: checkpoints and inputs are downloaded to scratch, outputs are uploaded from there.

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

/// Extensions of files that describe weights, and the size from which such a file must be something else.
const ENDINGS: [&str; 8] = [
    "json", "toml", "txt", "model", "jinja", "spm", "vocab", "pkl",
];
const MOST_BESIDE: u64 = 64 << 20;
/// Extensions of files of weights.
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

/// Error text for an address with nothing at it.
const NOTHING: &str = "there is neither an object of this name nor anything below it (404)";
/// Most objects downloaded at the same time.
const AT_ONCE: usize = 16;

/// Staged files, and directories that mirror a prefix.
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

/// Returns the path of an address in scratch.
fn place(kind: &str, address: &Address) -> Result<PathBuf> {
    let path = scratch::directory()?.join(kind).join(&address.bucket);
    Ok(path.join(&address.key))
}

/// Lists the checkpoints below a prefix that is not one itself; `None` for a path, and for the address of one checkpoint.
///
/// # Errors
/// When the store refuses, or there is no checkpoint below.
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

/// Returns files of weights next to each other that are each a checkpoint, such as `step-50.safetensors`.
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

/// Lists the files that a checkpoint needs, except shards that only its index names, and the prefix that contains them.
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

/// Returns names, sizes and versions of a checkpoint's files, to detect changes; `None` for a path.
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

/// Returns where a target was already staged.
fn known(address: &Address) -> Option<PathBuf> {
    let staged = staged_so_far();
    staged.as_ref()?.targets.get(&address.to_string()).cloned()
}

/// Downloads the needed files of a checkpoint to scratch, once per process. Returns a path unchanged.
///
/// # Errors
/// When the store refuses, there is no checkpoint, or there is too little space.
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
        // The shards are known once the index has been downloaded.
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

/// Removes the staged files of a target that is done.
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
    // Ignore errors: the rest is removed with the whole directory.
    let _ = if is_file {
        std::fs::remove_file(&found)
    } else {
        std::fs::remove_dir_all(&found)
    };
}

/// Downloads an object, or everything below a prefix, to scratch. Returns a path unchanged.
///
/// # Errors
/// When the store refuses, or there is nothing at the address.
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
    // Many small objects: latency dominates, so download several at once.
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

/// Returns a scratch directory whose files are uploaded to a prefix when they are complete. Returns a path unchanged.
///
/// # Errors
/// When the address or scratch cannot be used.
pub fn mirrored(path: &Path) -> Result<PathBuf> {
    let Some(address) = Address::parse(path)? else {
        return Ok(path.to_path_buf());
    };
    // Fail now if the bucket does not exist.
    bucket::level(&address)?;
    let to = place("out", &address)?;
    std::fs::create_dir_all(&to).map_err(|e| Error::file(&to, format!("cannot be made ({e})")))?;
    if let Some(all) = staged_so_far().as_mut() {
        all.mirrors.insert(to.clone(), address);
    }
    Ok(to)
}

/// Returns a scratch file that is uploaded to an address when it is complete; an existing object is downloaded. Returns a path
/// unchanged.
///
/// # Errors
/// When the store refuses, or the address does not name an object.
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

/// Returns the address of a file in a mirrored directory.
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

/// Downloads a file of a mirrored directory that is missing locally. Errors count as missing.
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

/// Uploads a file of a mirrored directory.
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
