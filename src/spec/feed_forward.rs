//! What a feed-forward layer is made of, as data: one, or many experts of which each token uses a few.

use attnscope_compute::ops::Activation;

use super::source::{LinearSource, NormSource};

/// A feed-forward layer: down(act(up x)), or down(gate rule of gate x and up x).
#[derive(Debug, Clone, PartialEq)]
pub struct MlpSpec {
    pub up: LinearSource,
    pub gate: Option<LinearSource>,
    pub down: LinearSource,
    pub activation: Activation,
    pub gate_rule: GateRule,
    /// An activation with learned curvatures, used instead of `activation`.
    pub learned: Option<LearnedActivation>,
    /// Share of gates set to zero, for normally distributed gates (activation sparsity).
    pub sparsity: Option<f32>,
}

/// Four values of a stored activation (Huang and Schlag 2024, arXiv 2411.13010): for x above 0, p·x² + β·x; below, n·(e^min(x, ε) −
/// 1 − x) + β·x, where p is the softplus of what is stored, and n that of another value, plus β.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearnedActivation {
    pub above: String,
    pub below: String,
    pub slope: String,
    pub limit: String,
}

impl LearnedActivation {
    /// Its tensors with their shapes.
    pub fn tensors(&self) -> [(&String, Vec<usize>); 4] {
        [
            (&self.above, vec![1]),
            (&self.below, vec![1]),
            (&self.slope, Vec::new()),
            (&self.limit, Vec::new()),
        ]
    }
}

impl MlpSpec {
    /// One without a gate.
    pub fn plain(up: LinearSource, down: LinearSource, activation: Activation) -> Self {
        Self {
            up,
            gate: None,
            down,
            activation,
            gate_rule: GateRule::Product,
            learned: None,
            sparsity: None,
        }
    }
}

/// How a gate and what it gates are put together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GateRule {
    /// act(gate) · up.
    Product,
    /// (clamp(up) + 1) · gate·sigmoid(α·gate), both clamped to the limit.
    Clamped { limit: f32, alpha: f32 },
}

/// Many feed-forward layers, of which each token uses a few.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpertsSpec {
    pub router: LinearSource,
    pub rule: RouterRule,
    pub experts: Vec<MlpSpec>,
    /// One that every token uses, and the single output whose sigmoid weighs it.
    pub shared: Option<(MlpSpec, Option<LinearSource>)>,
    /// Maps into and out of the narrower vectors that experts run on; the shared one runs on the input.
    pub latent: Option<[LinearSource; 2]>,
    /// The experts read the residual through norms of their own, not what the shared one reads.
    pub apart: Option<Box<ApartNorms>>,
}

/// Norms around experts that read the residual themselves, and on what the shared one gives.
#[derive(Debug, Clone, PartialEq)]
pub struct ApartNorms {
    /// Before the router.
    pub router: NormSource,
    /// Before the experts.
    pub into: NormSource,
    /// On what the experts give together.
    pub out: NormSource,
    /// On what the shared one gives.
    pub shared_out: NormSource,
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

/// How the router's outputs become weights of experts.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterRule {
    pub n_used: usize,
    pub scores: RouterScores,
    /// Added to the scores for the choice only.
    pub choice_bias: Option<ChoiceBias>,
    pub groups: Option<ExpertGroups>,
    /// Divide the weights of the chosen by their sum.
    pub normalises: bool,
    /// The power of the norm that stands for the sum; 1 for the sum itself.
    pub power: f32,
    /// What the weights are divided by at least.
    pub least_sum: f32,
    pub scale: f32,
    /// Multiplies the weight of each expert. // [expert]
    pub expert_scales: Option<String>,
    /// Weights multiply what experts read, not what they give.
    pub scales_inputs: bool,
}

/// What is added to the scores of experts for the choice among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceBias {
    pub tensor: String,
    /// One value for each expert, perhaps as a matrix of one row.
    pub shape: Vec<usize>,
}

/// Experts stand in groups, of which only some are chosen from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    pub n: usize,
    pub n_kept: usize,
    /// How many of a group's best scores say how good it is.
    pub n_best: usize,
}

/// What turns a router's outputs into scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RouterScores {
    /// Softmax over all experts.
    Softmax,
    /// Softmax over the chosen ones.
    SoftmaxOfChosen,
    Sigmoid,
    /// SparseMixer: two experts chosen one after the other, each weighted by the softmax over the experts close to it (Liu et al. 2024,
    /// arXiv 2409.12136). The number is how close, relative to the score.
    Mixer(f32),
}

/// The feed-forward part of a block.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedForward {
    Dense(Box<MlpSpec>),
    Experts(Box<ExpertsSpec>),
    /// No feed-forward layer.
    None,
}
