//! Hyper-connections: several residual streams of equal rank, which every branch of a block reads as one weighted sum and writes back to all.

use super::source::LinearSource;

/// The hyper-connections of a block (Zhu et al. 2024, arXiv 2409.19606; Xie et al. 2025, arXiv 2512.24880).
#[derive(Debug, Clone, PartialEq)]
pub struct HyperSpec {
    /// Number of streams.
    pub n: usize,
    /// Around attention, and around the feed-forward layer.
    pub branches: [ConnectionSpec; 2],
    /// What makes one residual of the streams behind the block, for hooks and the lens: that of the stack.
    pub fold: FoldSpec,
}

/// What a branch reads of the streams, and how its output and the streams become those behind it. All weights are computed for every
/// token from its streams.
#[derive(Debug, Clone, PartialEq)]
pub enum ConnectionSpec {
    /// One weight for each stream.
    Weighted(Box<WeightedConnection>),
    /// One weight for each column of each stream.
    Gated(Box<GatedConnection>),
}

/// What a branch reads is the mean of all streams behind their norms, each column times a gate; twice the sigmoid of a map of the normed
/// streams, over their number, weighs its output in each.
#[derive(Debug, Clone, PartialEq)]
pub struct GatedConnection {
    pub gates: StreamGates,
    /// All normed streams of a token, one after another → n.
    pub inject: LinearSource,
}

/// sigmoid(up(silu(down(x) / n))), where x are the n streams, each divided by its root mean square and multiplied by a gain.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamGates {
    /// 1 plus these values multiply the columns of all streams. // [n · d_model]
    pub gain: String,
    /// Added to the mean square.
    pub eps: f32,
    pub down: LinearSource,
    pub up: LinearSource,
}

/// Weights of streams, and of a branch's output in them.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedConnection {
    pub weights: StreamWeights,
    /// The largest weight of the branch's output in a stream, without `least_post`.
    pub magnitude: f32,
    /// Added to the weights of the branch's output.
    pub least_post: f32,
    /// How often the weights of streams in streams are divided by their sums, over columns and over rows in turn (Sinkhorn); `None`
    /// where each stream goes on by itself.
    pub rounds: Option<usize>,
}

/// scale · (map · streams / their root mean square) + base, of which the first n, through a sigmoid, weigh the streams.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamWeights {
    /// All streams of a token, one after another → weights.
    pub map: LinearSource,
    /// Added to the mean square.
    pub eps: f32,
    /// One factor for each kind of weights.
    pub scale: String,
    pub base: String,
    /// Added to each weight of a stream.
    pub least: f32,
}

/// What makes one residual of all streams.
#[derive(Debug, Clone, PartialEq)]
pub enum FoldSpec {
    Mean,
    Weighted(Box<StreamWeights>),
    /// What a branch with such gates would read.
    Gated(Box<StreamGates>),
}

impl HyperSpec {
    /// What differs between two models of this kind, in words.
    pub fn words(&self) -> String {
        let branch = |name: &str, branch: &ConnectionSpec| {
            let ConnectionSpec::Weighted(branch) = branch else {
                return format!("{name}: gates of columns");
            };
            let StreamWeights {
                eps, least: own, ..
            } = branch.weights;
            let rounds = branch.rounds.map_or("none".to_owned(), |n| n.to_string());
            let (magnitude, least) = (branch.magnitude, branch.least_post);
            format!(
                "{name}: up to {magnitude} + {least}, Sinkhorn rounds {rounds}, weights + {own}, norm + {eps}"
            )
        };
        let [attn, mlp] = &self.branches;
        let fold = match self.fold {
            FoldSpec::Mean => "mean",
            FoldSpec::Weighted(_) => "weighted sum",
            FoldSpec::Gated(_) => "mean of gated columns",
        };
        let (attn, mlp) = (branch("attention", attn), branch("feed-forward", mlp));
        format!("hyper-connections ({attn}; {mlp}; end: {fold})")
    }

    /// The weights around attention and around the feed-forward layer, with their names and the number of their factors.
    pub fn weights(&self) -> impl Iterator<Item = (&'static str, &StreamWeights, usize)> {
        self.named().filter_map(|(name, branch)| match branch {
            ConnectionSpec::Weighted(of) => Some((name, &of.weights, of.n_scales())),
            ConnectionSpec::Gated(_) => None,
        })
    }

    /// The gates around attention and around the feed-forward layer, with their names.
    pub fn gated(&self) -> impl Iterator<Item = (&'static str, &GatedConnection)> {
        self.named().filter_map(|(name, branch)| match branch {
            ConnectionSpec::Gated(of) => Some((name, &**of)),
            ConnectionSpec::Weighted(_) => None,
        })
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, &ConnectionSpec)> {
        ["attn", "mlp"].into_iter().zip(&self.branches)
    }
}

impl ConnectionSpec {
    pub(super) fn linears_mut(&mut self) -> Vec<&mut LinearSource> {
        match self {
            Self::Weighted(of) => vec![&mut of.weights.map],
            Self::Gated(of) => vec![&mut of.gates.down, &mut of.gates.up, &mut of.inject],
        }
    }
}

impl WeightedConnection {
    /// Number of factors: for what is read, for what is written, and for streams in streams.
    pub fn n_scales(&self) -> usize {
        2 + usize::from(self.rounds.is_some())
    }
}

impl FoldSpec {
    /// The weights, where not all are equal.
    pub fn weights(&self) -> Option<&StreamWeights> {
        match self {
            Self::Mean | Self::Gated(_) => None,
            Self::Weighted(weights) => Some(weights),
        }
    }

    /// The gates, where columns are gated.
    pub fn gates(&self) -> Option<&StreamGates> {
        match self {
            Self::Mean | Self::Weighted(_) => None,
            Self::Gated(gates) => Some(gates),
        }
    }
}
