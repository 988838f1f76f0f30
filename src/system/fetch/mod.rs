//! Fetches models from the Hugging Face hub into the cache that its own tools use: only the files that are needed, each written
//! whole or not at all, and a download that was cut off goes on where it stopped. Which files those are, and how far one has come, also
//! serve object stores.

#[cfg(feature = "hub")]
mod blob;
#[cfg(feature = "hub")]
mod client;
mod files;
#[cfg(feature = "hub")]
mod pieces;
#[cfg(feature = "hub")]
mod snapshot;

use std::sync::OnceLock;

#[cfg(feature = "hub")]
use self::client::Refusal;
pub use self::files::{shards_of, wanted};
#[cfg(feature = "hub")]
pub use self::snapshot::fetch;
#[cfg(feature = "hub")]
use self::snapshot::{Place, make_directory_of};

/// How far a file has come.
#[derive(Debug, Clone, Copy)]
pub struct Fetched<'a> {
    pub file: &'a str,
    pub n_bytes: u64,
    /// Bytes of the whole file, where that is told.
    pub n_all: Option<u64>,
}

/// Whoever shows progress.
static TELL: OnceLock<fn(Fetched<'_>)> = OnceLock::new();

/// Says who shows progress; the first who asks does.
pub fn tells(tell: fn(Fetched<'_>)) {
    TELL.get_or_init(|| tell);
}

pub fn tell(fetched: Fetched<'_>) {
    if let Some(tell) = TELL.get() {
        tell(fetched);
    }
}
