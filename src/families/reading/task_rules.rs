//! What the heads of a family's task classes do otherwise than those of most families, as data.

use attnscope_compute::ops::Activation;
use attnscope_spec::Pooled;

/// How the heads of a family's task classes differ from those of most families.
#[derive(Debug, Clone, Copy)]
pub struct TaskRules {
    /// The activation after the dense layer of a classifier.
    pub dense: HeadActivation,
    /// The activation after the map of the first token's state.
    pub pooler: HeadActivation,
    /// The activation after the map of a text's summary if the configuration names none.
    pub summary: Option<&'static str>,
    /// The activation before the score of the replaced-token discriminator.
    pub discriminator: HeadActivation,
    /// What a classifier of texts reads by default.
    pub text: TextSummary,
    /// What a classifier of pictures reads, given the number of learned tokens before the patches.
    pub picture: fn(usize) -> Pooled,
    /// When a classifier of pictures reads the mean of the patches through a norm instead.
    pub normed_mean: Option<NormedMean>,
    /// The head of a tower whose class projects it.
    pub projection: Option<Projection>,
}

impl TaskRules {
    /// The rules of most families.
    pub const USUAL: Self = Self {
        dense: HeadActivation::Always(Activation::Tanh),
        pooler: HeadActivation::Always(Activation::Tanh),
        summary: None,
        discriminator: HeadActivation::Always(Activation::Gelu),
        text: TextSummary::ByTensors,
        picture: |_| Pooled::First,
        normed_mean: None,
        projection: None,
    };
}

/// A classifier of pictures that reads the mean of the patches through a norm.
#[derive(Debug, Clone, Copy)]
pub struct NormedMean {
    /// The switch, and whether it is on if the configuration does not say; `None` if the mean is always read.
    pub key: Option<(&'static str, bool)>,
    /// How the name of the norm ends.
    pub norm: &'static str,
    /// Its epsilon; `None` if it is that of the norms of blocks.
    pub eps: Option<f64>,
}

/// An activation between the maps of a head.
#[derive(Debug, Clone, Copy)]
pub enum HeadActivation {
    Always(Activation),
    /// The one that a key of the configuration names, and the name if the key is absent.
    Key(&'static str, &'static str),
}

/// What a classifier of texts reads if the configuration does not say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextSummary {
    /// What the names of the head's tensors and the mask imply.
    ByTensors,
    /// Every state, through a layer called `dense` and GELU; the outputs are averaged.
    MeanOfOutputs,
    /// The last state, without a map.
    Last,
}

/// The head that turns a tower's output into one vector of the width that both towers share.
#[derive(Debug, Clone, Copy)]
pub enum Projection {
    /// A map of the first state after a norm; the norm's name follows the tower's prefix.
    First {
        map: &'static str,
        norm: &'static str,
    },
    /// A map of the state of the token that ends a caption.
    End { map: &'static str },
    /// A map of the last state; its name follows the tower's prefix.
    Last { map: &'static str },
    /// A learned query that attends to all patches; the name of its tensors follows the tower's prefix.
    ByAttention { at: &'static str },
}
