//! One file of a model: downloaded into the cache's blobs, checked, and linked into a snapshot.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use attnscope_checkpoint::{INCOMPLETE, open_regular};
use attnscope_compute::error::{Error, Result};
use sha2::{Digest, Sha256};

use super::client::{About, Refusal};
use super::files;
use super::pieces::{Pieces, stall};
use super::progress::{Fetched, tell};
use super::repository::{Repository, make_directory_of};

/// Most attempts to resume an interrupted download, and the pause before each.
const MOST_TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes read at a time.
const AT_ONCE: usize = 1 << 16;

/// A file of the cache that is being downloaded. Other programs wait until this is dropped.
pub struct Blob<'a> {
    file: File,
    path: &'a Path,
}

impl<'a> Blob<'a> {
    /// Opens the incomplete file of a blob, and waits while another program downloads it.
    pub fn open(blob: &Path, partial: &'a Path) -> Result<Self> {
        make_directory_of(blob)?;
        let file = OpenOptions::new().append(true).create(true).open(partial);
        let file = file.map_err(|e| Error::file(partial, format!("cannot be written ({e})")))?;
        file.lock()
            .map_err(|e| Error::file(partial, format!("cannot be locked ({e})")))?;
        Ok(Self {
            file,
            path: partial,
        })
    }

    /// Bytes that are downloaded.
    pub fn len(&self) -> Result<u64> {
        let about = self.file.metadata().map_err(|e| self.unwritable(e))?;
        Ok(about.len())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        written.map_err(|e| self.unwritable(e))
    }

    fn clear(&mut self) -> Result<()> {
        self.file.set_len(0).map_err(|e| self.unwritable(e))
    }

    fn unwritable(&self, e: std::io::Error) -> Error {
        Error::file(self.path, format!("cannot be written ({e})"))
    }
}

impl Repository {
    /// Path of a blob.
    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.directory.join("blobs").join(etag)
    }

    /// Downloads a file; returns the directory of its snapshot.
    ///
    /// # Errors
    /// When the hub refuses, the bytes do not match its digest, or the disk cannot be written.
    pub(super) fn download(&self, file: &str) -> Result<PathBuf> {
        let about = self.about(file)?;
        let is_commit =
            |found: &&String| !found.is_empty() && found.bytes().all(|b| b.is_ascii_hexdigit());
        let commit = about.commit.as_ref().filter(is_commit);
        let commit = commit.unwrap_or(&self.commit);
        let snapshot = self.directory.join("snapshots").join(commit);
        let link = snapshot.join(file);
        let blob = self.blob(&about.etag);
        if !blob.is_file() {
            let partial = blob.with_extension(INCOMPLETE);
            let mut held = Blob::open(&blob, &partial)?;
            if !blob.is_file() {
                self.fill(&mut held, file, &about, None)?;
                check(&partial, &about, &self.name(file))?;
                std::fs::rename(&partial, &blob)
                    .map_err(|e| Error::file(&blob, format!("cannot be written ({e})")))?;
            }
        }
        point(&link, file, &about.etag, &blob)?;
        Ok(snapshot)
    }

    /// Downloads the missing bytes of a file, or of its first `upto` bytes, resuming if the connection breaks.
    pub(super) fn fill(
        &self,
        to: &mut Blob<'_>,
        file: &str,
        about: &About,
        upto: Option<u64>,
    ) -> Result<()> {
        let name = self.name(file);
        let most = files::most_bytes(file);
        let path = to.path;
        let check_length = |n: u64| match most {
            Some(most) if n > most => {
                let problem = format!("expected at most {most} bytes, found {n} or more");
                // Keep nothing of a file that cannot belong to a model.
                let _ = std::fs::remove_file(path);
                Err(Error::file(&name, problem))
            }
            _ => Ok(()),
        };
        check_length(about.n_bytes.unwrap_or(0))?;
        let is_enough = |n: u64| upto.is_some_and(|upto| n >= upto);
        let mut cut = String::new();
        for attempt in 0..MOST_TRIES {
            if attempt > 0 {
                std::thread::sleep(PAUSE * attempt);
            }
            let mut n_held = to.len()?;
            if about.n_bytes.is_some_and(|n| n_held > n) {
                to.clear()?;
                n_held = 0;
            }
            if about.n_bytes == Some(n_held) || is_enough(n_held) {
                return Ok(());
            }
            let range = (n_held, upto);
            let answer = match self.client.bytes(&self.address, &self.commit, file, range) {
                Ok(answer) => answer,
                Err(refusal @ Refusal::Status(..)) => {
                    return Err(Error::file(&name, refusal.words(&self.address)));
                }
                Err(Refusal::Other(problem)) => {
                    cut = problem;
                    continue;
                }
            };
            // A server without range support starts again from the beginning.
            if n_held > 0 && answer.status().as_u16() != 206 {
                to.clear()?;
                n_held = 0;
            }
            let mut from = Pieces::of(answer.into_body().into_reader());
            // More bytes than the hub announced: not the right file.
            while about.n_bytes.is_none_or(|n| n_held <= n) && !is_enough(n_held) {
                match from.next(stall()) {
                    Ok(bytes) if bytes.is_empty() => break,
                    Ok(bytes) => {
                        n_held += bytes.len() as u64;
                        check_length(n_held)?;
                        to.write(&bytes)?;
                        if upto.is_none() {
                            tell(Fetched {
                                file: &name,
                                n_bytes: n_held,
                                n_all: about.n_bytes,
                            });
                        }
                    }
                    Err(e) => {
                        cut = e.to_string();
                        break;
                    }
                }
            }
            match about.n_bytes {
                _ if is_enough(n_held) => return Ok(()),
                Some(n) if n_held < n => {}
                Some(n) if n_held == n => return Ok(()),
                // Without a known size, the end of the response is the end of the file.
                None if cut.is_empty() => return Ok(()),
                _ => to.clear()?,
            }
        }
        let n_held = to.len()?;
        let wanted = upto.or(about.n_bytes);
        let all = wanted.map_or(String::new(), |n| format!(" of {n}"));
        let why = if cut.is_empty() {
            String::new()
        } else {
            format!(" ({cut})")
        };
        let problem = format!(
            "the download stopped after {n_held}{all} bytes{why}; run the command again to continue it"
        );
        Err(Error::file(name, problem))
    }
}

/// Checks a download against the hub's size, and its digest if the blob is named by one.
fn check(path: &Path, about: &About, name: &str) -> Result<()> {
    let is_digest = about.etag.len() == 64 && about.etag.bytes().all(|b| b.is_ascii_hexdigit());
    if !is_digest {
        return Ok(());
    }
    let unreadable = |e: std::io::Error| Error::file(path, format!("cannot be read ({e})"));
    let mut file = open_regular(path).map_err(unreadable)?;
    let mut digest = Sha256::new();
    let mut bytes = vec![0; AT_ONCE];
    loop {
        let n = file.read(&mut bytes).map_err(unreadable)?;
        if n == 0 {
            break;
        }
        digest.update(&bytes[..n]);
    }
    let found: String = digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if found.eq_ignore_ascii_case(&about.etag) {
        return Ok(());
    }
    std::fs::remove_file(path).map_err(unreadable)?;
    let problem =
        "the download does not match the hub's checksum and was deleted; run the command again";
    Err(Error::file(name, problem))
}

/// Links a file of a snapshot to its blob by a relative path, so that the cache can be moved.
pub fn point(link: &Path, file: &str, etag: &str, blob: &Path) -> Result<()> {
    if link.exists() {
        return Ok(());
    }
    make_directory_of(link)?;
    let refused = |e: std::io::Error| Error::file(link, format!("cannot be written ({e})"));
    if link.symlink_metadata().is_ok() {
        std::fs::remove_file(link).map_err(refused)?;
    }
    let up = "../".repeat(2 + file.matches('/').count());
    let linked = symlink(&format!("{up}blobs/{etag}"), link);
    // Copy the file on file systems without links.
    let linked = linked.or_else(|_| std::fs::copy(blob, link).map(drop));
    linked.map_err(refused)
}

#[cfg(unix)]
fn symlink(to: &str, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(to, link)
}

#[cfg(not(unix))]
fn symlink(_to: &str, _link: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
