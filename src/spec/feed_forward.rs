//! The parts of a feed-forward layer, as data: one layer, or many experts of which each token uses a few.

use attnscope_compute::ops::Activation;

use super::grid_maps::HiddenConvolution;
use super::norm_source::NormSource;
use super::source::LinearSource;

/// A feed-forward layer: down(act(up x)), or down(rule(gate x, up x)) with a [`GateRule`].
#[derive(Debug, Clone, PartialEq)]
pub struct MlpSpec {
    pub up: LinearSource,
    pub gate: Option<LinearSource>,
    pub down: LinearSource,
    pub activation: Activation,
    pub gate_rule: GateRule,
    /// An activation with stored values, used instead of `activation`.
    pub learned: Option<LearnedActivation>,
    /// Reads the patches around each, before the activation. A layer with a gate has none.
    pub convolution: Option<Box<HiddenConvolution>>,
    /// A norm of the hidden vector, between the activation and the down projection (sub-LN).
    pub hidden_norm: Option<NormSource>,
    /// Share of gates set to zero, for normally distributed gates (activation sparsity).
    pub sparsity: Option<f32>,
    /// Applied to what the down projection gives.
    pub out_activation: Option<Activation>,
}

/// An activation with stored values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LearnedActivation {
    /// Four values (Huang and Schlag 2024, arXiv 2411.13010). For x above 0: p·x² + β·x; below: n·(e^min(x, ε) − 1 − x) + β·x. p is the
    /// softplus of `above`, n the softplus of `below` plus β, β is `slope` and ε is `limit`.
    Curved {
        above: String,
        below: String,
        slope: String,
        limit: String,
    },
    /// x if positive, otherwise x times this value (He et al. 2015, arXiv 1502.01852).
    Leaky(String),
}

impl LearnedActivation {
    /// The stored tensors, with their shapes and what they are.
    pub fn tensors(&self) -> Vec<(&'static str, &String, Vec<usize>)> {
        match self {
            Self::Curved {
                above,
                below,
                slope,
                limit,
            } => vec![
                ("above", above, vec![1]),
                ("below", below, vec![1]),
                ("slope", slope, Vec::new()),
                ("limit", limit, Vec::new()),
            ],
            Self::Leaky(slope) => vec![("slope", slope, vec![1])],
        }
    }

    /// Names it, for comparisons.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Curved { .. } => "learned",
            Self::Leaky(_) => "prelu",
        }
    }
}

impl MlpSpec {
    /// A feed-forward layer without a gate.
    pub fn plain(up: LinearSource, down: LinearSource, activation: Activation) -> Self {
        Self {
            up,
            gate: None,
            down,
            activation,
            gate_rule: GateRule::Product,
            learned: None,
            convolution: None,
            hidden_norm: None,
            sparsity: None,
            out_activation: None,
        }
    }
}

/// How the gate and the up projection are combined.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GateRule {
    /// act(gate) · up.
    Product,
    /// (clamp(up) + 1) · gate·sigmoid(α·gate), both clamped to the limit.
    Clamped { limit: f32, alpha: f32 },
    /// act(gate) · up, each clipped to ±limit.
    Limited { limit: f32 },
    /// act(gate) · up, before which the gate is lowered to the limit and up is clipped to ±limit.
    LimitedBefore { limit: f32 },
}

/// A mixture of experts: many feed-forward layers, of which each token uses a few.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpertsSpec {
    pub router: LinearSource,
    pub rule: RouterRule,
    pub experts: Vec<MlpSpec>,
    /// An expert that every token uses, and optionally a map to one output whose sigmoid weighs it.
    pub shared: Option<(MlpSpec, Option<LinearSource>)>,
    /// Maps into and out of the narrower vectors that the routed experts run on; the shared expert runs on the full input.
    pub latent: Option<[LinearSource; 2]>,
    /// Norms of what the routed experts read, and of what each of them gives, before it is weighed.
    pub norms: Option<Box<ExpertNorms>>,
    /// Set if the routed experts read the residual through norms of their own, instead of the shared expert's input.
    pub apart: Option<Box<ApartNorms>>,
}

/// Norms around each routed expert, as wide as what it reads.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpertNorms {
    pub into: NormSource,
    pub out: NormSource,
}

/// Norms around experts that read the residual directly, and on the output of the shared expert.
#[derive(Debug, Clone, PartialEq)]
pub struct ApartNorms {
    /// Before the router.
    pub router: NormSource,
    /// Before the experts.
    pub into: NormSource,
    /// On the summed output of the experts.
    pub out: NormSource,
    /// On the output of the shared expert.
    pub shared_out: NormSource,
}

impl ExpertNorms {
    pub fn all(&self) -> [(&'static str, &NormSource); 2] {
        [("in", &self.into), ("out", &self.out)]
    }
}

impl ApartNorms {
    pub fn all(&self) -> [(&'static str, &NormSource); 4] {
        [
            ("router", &self.router),
            ("into", &self.into),
            ("out", &self.out),
            ("shared_out", &self.shared_out),
        ]
    }
}

/// How the router's outputs become expert weights.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterRule {
    pub n_used: usize,
    pub scores: RouterScores,
    /// Added to the scores only to choose experts, not to weigh them.
    pub choice_bias: Option<ChoiceBias>,
    /// A stored table of the experts of each token, which chooses them in the place of the scores. These still weigh them.
    pub by_token: Option<ExpertsByToken>,
    /// Number of experts after the stored ones that compute nothing: their output is their input.
    pub n_identities: usize,
    /// Number of stored experts, the last ones, that every token uses besides those it chooses. They share in the weights.
    pub n_always: usize,
    pub groups: Option<ExpertGroups>,
    /// Divides the weights of the chosen experts by their sum.
    pub normalises: bool,
    /// Exponent of the p-norm that replaces the sum; 1 is the sum itself.
    pub power: f32,
    /// Lower limit of the divisor.
    pub least_sum: f32,
    pub scale: f32,
    /// Multiplies the weight of each expert. // [expert]
    pub expert_scales: Option<String>,
    /// The weights multiply the experts' inputs instead of their outputs.
    pub scales_inputs: bool,
    /// An expert runs on at most this many tokens of a sequence, the first that choose it.
    pub capacity: Option<usize>,
}

impl RouterRule {
    /// Weighs the chosen experts by their scores as they are.
    pub fn plain(n_used: usize, scores: RouterScores) -> Self {
        Self {
            n_used,
            scores,
            choice_bias: None,
            by_token: None,
            n_identities: 0,
            n_always: 0,
            groups: None,
            normalises: false,
            power: 1.0,
            least_sum: 0.0,
            scale: 1.0,
            expert_scales: None,
            scales_inputs: false,
            capacity: None,
        }
    }
}

/// A bias added to the router scores only to choose experts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceBias {
    pub tensor: String,
    /// One value per expert, possibly stored as a matrix, of which the first row counts.
    pub shape: Vec<usize>,
}

/// Numbers of the experts of each token of a vocabulary. // [token, n_used]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpertsByToken {
    pub tensor: String,
    pub d_vocab: usize,
}

/// Groups of experts: only the best groups are chosen from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    pub n: usize,
    pub n_kept: usize,
    /// Number of top scores in a group that are summed to rank the group.
    pub n_best: usize,
}

/// How a router's outputs become scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RouterScores {
    /// Softmax over all experts.
    Softmax,
    /// Softmax over the chosen experts.
    SoftmaxOfChosen,
    Sigmoid,
    /// √ln(1 + e^x).
    RootSoftplus,
    /// Sigmoid of the chosen experts, which are chosen by the outputs themselves.
    SigmoidOfChosen,
    /// SparseMixer: chooses two experts one after the other and weighs each by the softmax over the experts close to it (Liu et
    /// al. 2024, arXiv 2409.12136). The number is the largest distance, relative to the score.
    Mixer(f32),
}

/// The feed-forward layer of a block.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedForward {
    Dense(Box<MlpSpec>),
    Experts(Box<ExpertsSpec>),
    /// No feed-forward layer.
    None,
}

impl FeedForward {
    /// Whether experts leave out tokens once they are full, so that a token's output depends on the tokens before it.
    pub fn is_limited(&self) -> bool {
        matches!(self, Self::Experts(spec) if spec.rule.capacity.is_some())
    }

    /// Whether the token itself, and not its residual alone, decides what the layer gives.
    pub fn reads_tokens(&self) -> bool {
        matches!(self, Self::Experts(spec) if spec.rule.by_token.is_some())
    }
}
