//! How much a compressed file may unpack to, whatever it claims.

use super::data_file::DataFile;
use crate::machine::mebibytes;

/// How many times larger than its file an array may be in memory, and how large it may be in any case: one that is read in seconds.
const MOST_INFLATION: u64 = 64;
const ALWAYS_READ: u64 = 64 << 20;

/// Says what is expected of a file whose arrays take too many bytes in memory; `None` where they do not.
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
