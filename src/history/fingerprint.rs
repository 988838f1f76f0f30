//! Identity of a checkpoint's files: detects a step that was rewritten, and is the cache's
//! key for weights.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{described_above, is_distributed_file, open_regular};
use sha2::{Digest, Sha256};

use super::sources::is_weights;

/// Bytes read from the beginning of a file: headers, and small files completely.
const HEAD: u64 = 1 << 16;
/// Number of pieces sampled from the rest of a large file, and bytes of each.
const PIECES: u64 = 8;
const PIECE: u64 = 1 << 12;
/// Most files that are considered, more than any checkpoint has.
const MOST_FILES: usize = 4096;
/// Extensions of files that describe how to read the weights.
const DESCRIPTION_EXTENSIONS: [&str; 8] = [
    "json", "toml", "txt", "model", "jinja", "spm", "vocab", "pkl",
];

/// Names, sizes, inodes and times of the files of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(Vec<Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    path: PathBuf,
    len: u64,
    inode: (u64, u64),
    /// Seconds and nanoseconds of the last write, and of the last change of any kind.
    times: [(i64, i64); 2],
}

impl Fingerprint {
    /// Fingerprint of a checkpoint's places ([`Opening::places`](attnscope_checkpoint::Opening::places)). `None` if the first
    /// place, which is the checkpoint itself, does not exist, or holds nothing, not even in a directory of weights.
    pub fn of(places: &[PathBuf]) -> Option<Self> {
        let (first, others) = places.split_first()?;
        let mut files = Self::files_at(first)?;
        let mut inside = others.iter().filter(|place| place.starts_with(first));
        let holds_any =
            |place: &PathBuf| Self::files_at(place).is_some_and(|files| !files.is_empty());
        if files.is_empty() && !inside.any(holds_any) {
            return None;
        }
        files.extend(
            others
                .iter()
                .filter_map(|place| Self::files_at(place))
                .flatten(),
        );
        files.sort();
        files.dedup();
        let entries: Option<Vec<Entry>> = files.into_iter().map(Entry::of).collect();
        entries.map(Self)
    }

    /// Returns the files of a directory that define the weights; for a file, itself and the files that describe it.
    fn files_at(path: &Path) -> Option<Vec<PathBuf>> {
        let mut files = Vec::new();
        let is_file = path.is_file();
        let directory = if is_file { path.parent()? } else { path };
        let directory = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        for entry in std::fs::read_dir(directory).ok()?.flatten() {
            let file = entry.path();
            let ending = file
                .extension()
                .unwrap_or_default()
                .to_string_lossy()
                .to_lowercase();
            // Files of weights next to a file are other steps.
            let counts = ((is_weights(&file) || is_distributed_file(&file)) && !is_file)
                || DESCRIPTION_EXTENSIONS.contains(&ending.as_str());
            if counts && file.is_file() {
                files.push(file);
            }
            if files.len() > MOST_FILES {
                break;
            }
        }
        if is_file {
            files.push(path.to_path_buf());
        }
        files.extend(described_above(directory));
        Some(files)
    }

    /// Digests sizes, times, and each file's header and sampled bytes. `None` if a file cannot be read.
    pub fn digest(&self) -> Option<[u8; 32]> {
        let mut digest = Sha256::new();
        for entry in &self.0 {
            let name = entry.path.file_name().unwrap_or_default().to_string_lossy();
            digest.update((name.len() as u64).to_le_bytes());
            digest.update(name.as_bytes());
            digest.update(entry.len.to_le_bytes());
            for (seconds, nanoseconds) in entry.times {
                digest.update(seconds.to_le_bytes());
                digest.update(nanoseconds.to_le_bytes());
            }
            sample(&entry.path, entry.len, &mut digest).ok()?;
        }
        Some(digest.finalize().into())
    }
}

impl Entry {
    #[cfg(unix)]
    fn of(path: PathBuf) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let about = path.metadata().ok()?;
        Some(Self {
            len: about.len(),
            inode: (about.dev(), about.ino()),
            times: [
                (about.mtime(), about.mtime_nsec()),
                (about.ctime(), about.ctime_nsec()),
            ],
            path,
        })
    }

    #[cfg(not(unix))]
    fn of(path: PathBuf) -> Option<Self> {
        let about = path.metadata().ok()?;
        let modified = about
            .modified()
            .ok()?
            .duration_since(std::time::UNIX_EPOCH)
            .ok()?;
        Some(Self {
            len: about.len(),
            inode: (0, 0),
            times: [(
                modified.as_secs() as i64,
                i64::from(modified.subsec_nanos()),
            ); 2],
            path,
        })
    }
}

fn sample(path: &Path, len: u64, digest: &mut Sha256) -> std::io::Result<()> {
    let mut file = open_regular(path)?;
    let mut bytes = Vec::new();
    (&mut file).take(HEAD).read_to_end(&mut bytes)?;
    if len > HEAD {
        for piece in 1..=PIECES {
            let at = HEAD.max((len - PIECE) / PIECES * piece);
            file.seek(SeekFrom::Start(at))?;
            (&mut file).take(PIECE).read_to_end(&mut bytes)?;
        }
        file.seek(SeekFrom::Start(len.saturating_sub(PIECE)))?;
        (&mut file).take(PIECE).read_to_end(&mut bytes)?;
    }
    digest.update(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn writing_or_replacing_a_file_changes_the_fingerprint_and_reading_does_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::write(at("model.safetensors"), [1; 100]).expect("writes");
        fs::write(at("config.json"), "{}").expect("writes");
        fs::write(at("optimizer.pt"), [0; 10]).expect("writes");
        let of = || Fingerprint::of(&[directory.path().to_path_buf()]).expect("files");
        let (first, digest) = (of(), of().digest().expect("reads"));
        fs::read(at("model.safetensors")).expect("reads");
        fs::write(at("optimizer.pt"), [1; 20]).expect("writes");
        assert_eq!(of(), first);
        // Same size and modification time: only what nobody can set back differs.
        let modified = at("model.safetensors")
            .metadata()
            .and_then(|about| about.modified());
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(at("new"), [2; 100]).expect("writes");
        fs::rename(at("new"), at("model.safetensors")).expect("renames");
        let file = fs::File::options()
            .write(true)
            .open(at("model.safetensors"))
            .expect("opens");
        file.set_modified(modified.expect("a time")).expect("sets");
        assert_ne!(of(), first);
        assert_ne!(of().digest().expect("reads"), digest);
        fs::remove_file(at("model.safetensors")).expect("removes");
        assert_ne!(of(), first);
        assert_eq!(Fingerprint::of(&[at("nowhere")]), None);
    }
}
