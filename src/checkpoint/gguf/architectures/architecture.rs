//! Description of one architecture: the names of its tensors, how its converter stored them, and how its metadata become a
//! configuration.

use attnscope_compute::error::Result;
use serde_json::{Map, Value};

use crate::gguf::facts::{Facts, Sizes};
use crate::gguf::left_out::LeftOut;
use crate::gguf::metadata::Metadata;
use crate::tensors::Tensors;

/// Names or endings of keys in the file, each with Hugging Face's name.
pub type Table = &'static [(&'static str, &'static str)];

/// Everything that is particular to one architecture. Other code never compares its name: each difference is a field.
#[derive(Debug)]
pub struct Architecture {
    /// Value of `general.architecture`.
    pub name: &'static str,
    /// Another kind of model that files store under this name, and how to tell it.
    pub variant: Option<(&'static Self, IsVariant)>,

    /// Hugging Face's prefix of a layer's number.
    pub layers: &'static str,
    /// Names of tensors outside of layers.
    pub top: Table,
    /// Names of a layer's parts that override [`USUAL`](super::USUAL).
    pub names: Table,
    /// Further stacks of layers: prefix of a layer's number in the file, prefix in Hugging Face's names, and the names of the
    /// layer's parts.
    pub stacks: &'static [(&'static str, &'static str, Table)],
    /// Inside a layer: Hugging Face's prefix of experts, and the names of their gate, down and up projections.
    pub experts: (&'static str, [&'static str; 3]),
    /// How to store queries, keys and values that the file stores as one tensor.
    pub fused: Fused,
    /// Joins, renames or adds tensors, after all others have their names.
    pub rework: Option<Rework>,

    /// Hugging Face's `model_type`, if it is not the name; `special` may set another.
    pub model_type: Option<&'static str>,
    /// Numbers: ending of the file's key, and Hugging Face's key.
    pub numbers: Table,
    /// Switches: Hugging Face's key, and the tensor that turns it on. The tensor is given by its name in `model.layers.0`, by its
    /// whole name, or by `*` and the end of its name in any layer.
    pub switches: Table,
    /// Values that files do not state, because all models of the architecture have them.
    pub fixed: &'static [(&'static str, Fixed)],
    /// Hugging Face's key of the activation, and the activation; an empty key omits it.
    pub activation: (&'static str, &'static str),
    /// Ending of the key of the norms' epsilon, and Hugging Face's key; an empty key omits it.
    pub eps: (&'static str, &'static str),
    pub rotary: Rotary,
    /// Layers with a window: all but every n-th if the file states no pattern; 0 for all layers.
    pub full_every: Option<u64>,
    /// Endings of further keys that the architecture reads: they may have unusual values, or a list with a value per layer.
    pub known: &'static [&'static str],
    /// Usual configuration keys, and this architecture's names for them; an empty name omits the key.
    pub renames: Table,
    /// Writes all settings in place of these tables.
    pub settings: Option<Settings>,
    /// Writes settings that the tables cannot express.
    pub special: Option<Settings>,
    /// A setting that files do not state.
    pub left_out: LeftOut,

    pub quirks: &'static [Quirk],
}

/// Whether a file holds the variant: `has` asks for a tensor by the end of its name, `states` for a key of the architecture.
pub type IsVariant = fn(has: &dyn Fn(&str) -> bool, states: &dyn Fn(&str) -> bool) -> bool;

/// Changes tensors that have Hugging Face's names.
pub type Rework = fn(&Metadata<'_>, Sizes, &mut Tensors) -> Result<()>;

/// Writes settings into a configuration.
pub type Settings = fn(&Facts<'_>, &mut Map<String, Value>) -> Result<()>;

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

/// A value that all models of an architecture have.
#[derive(Debug, Clone, Copy)]
pub enum Fixed {
    Flag(bool),
    Number(f64),
    Word(&'static str),
    Words(&'static [&'static str]),
}

/// How much of a head rotates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotary {
    Whole,
    /// As many dimensions as the file states; the configuration always states their share of the head.
    Part,
    /// As many dimensions as the file states; the configuration states their share only if part of the head does not rotate.
    PartIfSmaller,
    /// Only the pairs that the stored frequency factors select; the architecture's own code reads the factors.
    ByFactors,
}

/// A way in which files or configurations of an architecture differ from the usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quirk {
    /// The rows of q and k are stored with the halves of each head interleaved.
    HalvesAlternate,
    /// The rows of q and k that rotate are stored as two halves of each head where Hugging Face pairs neighbours.
    NeighboursApart,
    /// The biases of q and k are stored in order, although the rows of the weights are interleaved.
    BiasesInOrder,
    /// Norm weights are stored with 1 added.
    NormsPlusOne,
    /// Linear weights are stored transposed.
    Transposed,
    /// Norms of all heads are one tensor, for which Hugging Face has one tensor per head.
    NormPerHead,
    /// Hugging Face stacks all experts of a projection in one matrix.
    StacksExperts,
    /// Hugging Face stores the bias that chooses experts as a row.
    BiasIsRow,
    /// A state space has decays for each channel (Mamba 1), not one for each head.
    DecaysByChannel,
    /// Heads have a part that rotates, whose width counts as the head's, and one that does not (latent attention).
    HeadsInParts,
    /// The configuration omits the head width if it is hidden size / heads.
    DerivesHeadWidth,
    /// Attention is bidirectional.
    SeesBoth,
    /// The configuration must state unscaled rotary embeddings, because the family has another default.
    StatesUnscaled,
    /// The configuration lists the types of layers even if none has a window.
    ListsLayers,
}

impl Architecture {
    pub fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }

    /// Whether the architecture reads the file's key with this ending.
    pub fn reads(&self, tail: &str) -> bool {
        self.known.contains(&tail) || self.numbers.iter().any(|(known, _)| *known == tail)
    }

    /// Returns the architecture that a file means by this one's name.
    pub fn meant(
        &'static self,
        has: &dyn Fn(&str) -> bool,
        states: &dyn Fn(&str) -> bool,
    ) -> &'static Self {
        match self.variant {
            Some((variant, is_variant)) if is_variant(has, states) => variant,
            _ => self,
        }
    }
}
