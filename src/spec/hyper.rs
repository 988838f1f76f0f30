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
pub struct ConnectionSpec {
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
}

impl HyperSpec {
    /// What differs between two models of this kind, in words.
    pub fn words(&self) -> String {
        let branch = |name: &str, branch: &ConnectionSpec| {
            let rounds = branch.rounds.map_or("none".to_owned(), |n| n.to_string());
            let (magnitude, least) = (branch.magnitude, branch.least_post);
            format!("{name}: up to {magnitude} + {least}, Sinkhorn rounds {rounds}")
        };
        let [attn, mlp] = &self.branches;
        let fold = match self.fold {
            FoldSpec::Mean => "mean",
            FoldSpec::Weighted(_) => "weighted sum",
        };
        let (attn, mlp) = (branch("attention", attn), branch("feed-forward", mlp));
        let StreamWeights { eps, least, .. } = self.branches[0].weights;
        format!("hyper-connections ({attn}; {mlp}; weights + {least}, norm + {eps}; end: {fold})")
    }

    /// The weights around attention and around the feed-forward layer, with their names and the number of their factors.
    pub fn weights(&self) -> impl Iterator<Item = (&'static str, &StreamWeights, usize)> {
        let names = ["attn", "mlp"].into_iter();
        names
            .zip(&self.branches)
            .map(|(name, branch)| (name, &branch.weights, branch.n_scales()))
    }
}

impl ConnectionSpec {
    /// Number of factors: for what is read, for what is written, and for streams in streams.
    pub fn n_scales(&self) -> usize {
        2 + usize::from(self.rounds.is_some())
    }
}

impl FoldSpec {
    /// The weights, where not all are equal.
    pub fn weights(&self) -> Option<&StreamWeights> {
        match self {
            Self::Mean => None,
            Self::Weighted(weights) => Some(weights),
        }
    }
}
