//! Fetches models from the Hugging Face hub into the cache that its own tools use: only the files that are needed, each written
//! whole or not at all, and a download that was cut off goes on where it stopped. The header of a file is its first part.

mod blob;
mod client;
mod files;
mod headers;
mod pieces;
mod progress;
mod repository;

pub use self::progress::{Fetched, tells};
pub use self::repository::Repository;
