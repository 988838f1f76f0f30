//! Something of a view that can be copied.

/// Something that can be copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The key that copies it.
    pub key: char,
    pub what: &'static str,
    pub text: String,
}
