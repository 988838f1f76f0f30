//! Description of one architecture: the names of its tensors, and how its converter stored them.

/// Names in the file, each with Hugging Face's name.
pub type Table = &'static [(&'static str, &'static str)];

/// How Hugging Face stores queries, keys and values that the file stores as one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fused {
    /// In one tensor, in the same order.
    AsIs,
    /// In one tensor, grouped by shared key: the group's queries, then its key and its value.
    ByGroups,
    /// In three tensors.
    Apart,
}

/// Tensor names of one architecture, and how its converter stored the tensors.
#[derive(Debug)]
pub struct Architecture {
    /// Value of `general.architecture`.
    pub name: &'static str,
    /// Hugging Face's prefix of a layer's number.
    pub layers: &'static str,
    pub top: Table,
    /// Names that override [`USUAL`](super::USUAL).
    pub own: Table,
    /// Further stacks of layers: prefix of a layer's number in the file, prefix in Hugging Face's names, and the names of the
    /// layer's parts.
    pub stacks: &'static [(&'static str, &'static str, Table)],
    /// Inside a layer: Hugging Face's prefix of experts, and the names of their gate, down and up projections.
    pub experts: (&'static str, [&'static str; 3]),
    /// How to store queries, keys and values that the file stores as one tensor.
    pub fused: Fused,
    /// Whether the rows of q and k are stored with the halves of each head interleaved.
    pub halves_alternate: bool,
    /// Whether norm weights are stored with 1 added.
    pub norms_plus_one: bool,
    /// Whether linear weights are stored transposed.
    pub is_transposed: bool,
}
