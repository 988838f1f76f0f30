//! Text of a view that can be copied.

/// Text that can be copied, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The key that copies it.
    pub key: char,
    pub what: &'static str,
    pub text: String,
}
