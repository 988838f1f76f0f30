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
mod place;
mod progress;
#[cfg(feature = "hub")]
mod snapshot;

pub use self::files::{shards_of, wanted};
pub use self::progress::{Fetched, tell, tells};
#[cfg(feature = "hub")]
pub use self::snapshot::fetch;
