//! Downloads models from the Hugging Face hub into the cache of its own tools: only the needed files, each written
//! completely or not at all, and resumed after an interruption. The choice of files and the progress reports are also used for
//! object stores.

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

/// Progress of a file.
#[derive(Debug, Clone, Copy)]
pub struct Fetched<'a> {
    pub file: &'a str,
    pub n_bytes: u64,
    /// Size of the whole file, if known.
    pub n_all: Option<u64>,
}

/// Callback that shows progress.
static TELL: OnceLock<fn(Fetched<'_>)> = OnceLock::new();

/// Sets the callback for progress; only the first call has an effect.
pub fn tells(tell: fn(Fetched<'_>)) {
    TELL.get_or_init(|| tell);
}

pub fn tell(fetched: Fetched<'_>) {
    if let Some(tell) = TELL.get() {
        tell(fetched);
    }
}
