//! What is known of one architecture: what it calls its tensors, and how its converter stored them.

/// The file's words for tensors, and Hugging Face's.
pub type Table = &'static [(&'static str, &'static str)];

/// How Hugging Face keeps queries, keys and values that the file holds one after another in one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fused {
    /// In one tensor, in the same order.
    AsIs,
    /// In one tensor, the heads that share a key behind each other, with their key and their value.
    ByGroups,
    /// In three tensors.
    Apart,
}

/// What a kind of file calls its tensors, and how its converter stored them.
#[derive(Debug)]
pub struct Architecture {
    /// The word under `general.architecture`.
    pub name: &'static str,
    /// What stands before a layer's number.
    pub layers: &'static str,
    pub top: Table,
    /// Names that differ from [`USUAL`](super::USUAL).
    pub own: Table,
    /// Stacks of layers beside the usual one: what stands before a layer's number in the file, what in Hugging Face's names,
    /// and the names under it.
    pub stacks: &'static [(&'static str, &'static str, Table)],
    /// Under a layer: where experts stand, and Hugging Face's words for their gate, down and up.
    pub experts: (&'static str, [&'static str; 3]),
    /// What becomes of queries, keys and values that the file holds as one tensor.
    pub fused: Fused,
    /// Whether the rows of q and k are stored with the halves of each head alternating.
    pub halves_alternate: bool,
    /// Whether norms are stored with 1 added.
    pub norms_plus_one: bool,
    /// Whether linear maps are stored the other way round than Hugging Face's.
    pub is_transposed: bool,
}
