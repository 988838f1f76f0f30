//! How far a download has come, and who shows it.

use std::sync::OnceLock;

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

/// Tells whoever shows progress.
pub fn tell(fetched: Fetched<'_>) {
    if let Some(tell) = TELL.get() {
        tell(fetched);
    }
}
