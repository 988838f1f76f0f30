//! Fetches models from the Hugging Face hub into the cache that its own tools use: only the files that are needed, each written
//! whole or not at all, and a download that was cut off goes on where it stopped.

mod blob;
mod client;
mod files;
mod pieces;
mod place;
mod progress;
mod snapshot;

pub use self::progress::{Fetched, tells};
pub use self::snapshot::fetch;
