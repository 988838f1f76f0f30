//! The headers of a model's weights, read before the weights are downloaded. They are the first bytes of each file, where its later
//! download goes on.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use attnscope_checkpoint::{INCOMPLETE, data_start, described_bytes, open_regular};
use attnscope_compute::error::{Error, Result};

use super::blob::{Blob, point};
use super::repository::Repository;

/// Directory of a model in the cache with the files that describe it, and its weights as far as they are downloaded.
const HEADERS: &str = "headers";
/// Bytes that are read of each file at first: nearly all headers are shorter.
const FIRST: u64 = 1 << 17;
/// Bytes of a header's length.
const LENGTH: u64 = 8;
/// Files that are asked for at the same time.
const AT_ONCE: usize = 6;

impl Repository {
    /// Reads the headers of all weights and checks them. Returns a directory that opens like the model's snapshot, but whose weights
    /// may have no values; `None` if the weights are of a format that has no header at its beginning.
    ///
    /// # Errors
    /// When the hub refuses, a header does not describe its file, or the disk cannot be written.
    pub fn headers(&self) -> Result<Option<PathBuf>> {
        let (descriptions, weights) = self.describe()?;
        if weights.iter().any(|file| !file.ends_with(".safetensors")) {
            return Ok(None);
        }
        let directory = self.directory.join(HEADERS).join(&self.commit);
        for file in &descriptions {
            let etag = &self.about(file)?.etag;
            point(&directory.join(file), file, etag, &self.blob(etag))?;
        }
        let next = AtomicUsize::new(0);
        let some = || -> Result<()> {
            while let Some(file) = weights.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.header(file, &directory)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let n = weights.len().min(AT_ONCE);
            let threads: Vec<_> = (0..n).map(|_| scope.spawn(some)).collect();
            let stopped = || Error::file(&self.address.repository, "reading its headers stopped");
            let mut ends = threads.into_iter().map(|of| of.join());
            ends.try_for_each(|end| end.map_err(|_| stopped())?)
        })?;
        Ok(Some(directory))
    }

    /// Reads the header of a file, and links it into a directory.
    fn header(&self, file: &str, directory: &Path) -> Result<()> {
        let about = self.about(file)?;
        let blob = self.blob(&about.etag);
        let partial = blob.with_extension(INCOMPLETE);
        let link = directory.join(file);
        let n_bytes = about.n_bytes.unwrap_or(u64::MAX);
        if blob.is_file() {
            return point(&link, file, &about.etag, &blob);
        }
        // A download of the whole file may be going on: what it has is enough.
        if end_of(&partial, n_bytes).is_none() {
            let mut held = Blob::open(&blob, &partial)?;
            let first = n_bytes.min(FIRST);
            self.fill(&mut held, file, &about, Some(first))?;
            let refused = |problem: String| self.refused(&partial, file, &problem);
            let end = data_start(&beginning(&partial), n_bytes).map_err(refused)?;
            self.fill(&mut held, file, &about, Some(end))?;
            if held.len()? < end {
                let n = held.len()?;
                return Err(refused(format!(
                    "its header is cut off: expected {end} bytes, found {n}"
                )));
            }
        }
        let described = described_bytes(&partial).map_err(|e| {
            let problem = e.to_string();
            let problem = problem.strip_prefix(&format!("{}: ", partial.display()));
            self.refused(&partial, file, problem.unwrap_or(&e.to_string()))
        })?;
        if about.n_bytes.is_some_and(|n| n != described) {
            let problem = format!("its header describes {described} bytes, the hub has {n_bytes}");
            return Err(self.refused(&partial, file, &problem));
        }
        point(
            &link,
            file,
            &format!("{}.{INCOMPLETE}", about.etag),
            &partial,
        )
    }

    /// The error of a header that does not fit its file; nothing of the file is kept.
    fn refused(&self, partial: &Path, file: &str, problem: &str) -> Error {
        if let Err(e) = std::fs::remove_file(partial) {
            log::debug!("{}: {e}", partial.display());
        }
        Error::file(self.name(file), problem)
    }
}

/// Returns the first bytes of a file, at most those of a header's length.
fn beginning(path: &Path) -> Vec<u8> {
    let mut bytes = [0; LENGTH as usize];
    let read = open_regular(path).and_then(|file| file.read_at(&mut bytes, 0));
    bytes[..read.unwrap_or(0)].to_vec()
}

/// Returns the end of a file's header, if all of the header is there.
fn end_of(partial: &Path, n_bytes: u64) -> Option<u64> {
    let n_held = partial.metadata().ok()?.len();
    let end = data_start(&beginning(partial), n_bytes).ok()?;
    (n_held >= end).then_some(end)
}
