//! Limits on the unpacked size of a compressed file, whatever it claims.

use super::data_file::DataFile;
use crate::machine::mebibytes;

/// Limit on the size of an array relative to its file, and a size that is always allowed because it is read in seconds.
const MOST_INFLATION: u64 = 64;
const ALWAYS_READ: u64 = 64 << 20;

/// Describes the expected size if a file's arrays would take too much memory; `None` if they would not.
pub(super) fn too_large(file: &DataFile, n_bytes: u64) -> Option<String> {
    let stored = file.len() as u64;
    let most = ALWAYS_READ.saturating_add(stored.saturating_mul(MOST_INFLATION));
    (n_bytes > most).then(|| {
        format!(
            "expected at most {} of a file of {}: save it without compression",
            mebibytes(most),
            mebibytes(stored)
        )
    })
}
