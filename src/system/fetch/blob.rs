//! One file of a model: downloaded into the cache's blobs, checked, and linked into a snapshot.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use attnscope_checkpoint::hub::Address;
use attnscope_checkpoint::open_regular;
use attnscope_compute::error::{Error, Result};
use sha2::{Digest, Sha256};

use super::client::{About, Client, Refusal};
use super::files;
use super::pieces::{Pieces, stall};
use super::place::{Place, make_directory_of};
use super::progress::{Fetched, tell};

/// Most attempts to resume an interrupted download, and the pause before each.
const MOST_TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// Bytes read at a time.
const AT_ONCE: usize = 1 << 16;

/// Downloads a file of a commit; returns the directory of its snapshot.
///
/// # Errors
/// When the hub refuses, the bytes do not match its digest, or the disk cannot be written.
pub fn fetch(
    client: &Client,
    place: &Place,
    address: &Address,
    commit: &str,
    file: &str,
) -> Result<PathBuf> {
    let name = format!("{}/{file}", address.repository);
    let about = client.about(address, commit, file);
    let about = about.map_err(|refusal| Error::file(&name, refusal.words(address)))?;
    let is_commit =
        |found: &String| !found.is_empty() && found.bytes().all(|b| b.is_ascii_hexdigit());
    let commit_of = about
        .commit
        .clone()
        .filter(is_commit)
        .unwrap_or_else(|| commit.to_owned());
    let snapshot = place.repository.join("snapshots").join(&commit_of);
    let link = snapshot.join(file);
    let blob = place.repository.join("blobs").join(&about.etag);
    make_directory_of(&blob)?;
    make_directory_of(&link)?;
    if !blob.is_file() {
        let partial = blob.with_file_name(format!("{}.incomplete", about.etag));
        let mut to = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&partial)
            .map_err(|e| Error::file(&partial, format!("cannot be written ({e})")))?;
        // Another program may be downloading the same file: wait for it.
        to.lock()
            .map_err(|e| Error::file(&partial, format!("cannot be locked ({e})")))?;
        if !blob.is_file() {
            download(
                client,
                address,
                &commit_of,
                file,
                &about,
                (&mut to, &partial),
            )?;
            check(&partial, &about, &name)?;
            std::fs::rename(&partial, &blob)
                .map_err(|e| Error::file(&blob, format!("cannot be written ({e})")))?;
        }
    }
    point(&link, file, &about.etag, &blob)?;
    Ok(snapshot)
}

/// Downloads the missing bytes, resuming if the connection breaks.
fn download(
    client: &Client,
    address: &Address,
    commit: &str,
    file: &str,
    about: &About,
    (to, path): (&mut File, &Path),
) -> Result<()> {
    let name = format!("{}/{file}", address.repository);
    let unwritable = |e: std::io::Error| Error::file(path, format!("cannot be written ({e})"));
    let most = files::most_bytes(file);
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
    let mut cut = String::new();
    for attempt in 0..MOST_TRIES {
        if attempt > 0 {
            std::thread::sleep(PAUSE * attempt);
        }
        let mut n_held = to.metadata().map_err(unwritable)?.len();
        if about.n_bytes.is_some_and(|n| n_held > n) {
            to.set_len(0).map_err(unwritable)?;
            n_held = 0;
        }
        if about.n_bytes == Some(n_held) {
            return Ok(());
        }
        let answer = match client.bytes(address, commit, file, n_held) {
            Ok(answer) => answer,
            Err(refusal @ Refusal::Status(..)) => {
                return Err(Error::file(&name, refusal.words(address)));
            }
            Err(Refusal::Other(problem)) => {
                cut = problem;
                continue;
            }
        };
        // A server without range support starts again from the beginning.
        if n_held > 0 && answer.status().as_u16() != 206 {
            to.set_len(0).map_err(unwritable)?;
            n_held = 0;
        }
        let mut from = Pieces::of(answer.into_body().into_reader());
        // More bytes than the hub announced: not the right file.
        while about.n_bytes.is_none_or(|n| n_held <= n) {
            match from.next(stall()) {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => {
                    n_held += bytes.len() as u64;
                    check_length(n_held)?;
                    to.write_all(&bytes).map_err(unwritable)?;
                    tell(Fetched {
                        file: &name,
                        n_bytes: n_held,
                        n_all: about.n_bytes,
                    });
                }
                Err(e) => {
                    cut = e.to_string();
                    break;
                }
            }
        }
        match about.n_bytes {
            Some(n) if n_held < n => {}
            Some(n) if n_held == n => return Ok(()),
            // Without a known size, the end of the response is the end of the file.
            None if cut.is_empty() => return Ok(()),
            _ => {
                to.set_len(0).map_err(unwritable)?;
            }
        }
    }
    let n_held = to.metadata().map_err(unwritable)?.len();
    let all = about.n_bytes.map_or(String::new(), |n| format!(" of {n}"));
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
fn point(link: &Path, file: &str, etag: &str, blob: &Path) -> Result<()> {
    if link.exists() {
        return Ok(());
    }
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
