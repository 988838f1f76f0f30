//! What can be measured of heads, the question for it, and what is known so far.

use std::collections::BTreeMap;

use attnscope_spec::Place;
use attnscope_studies::effect::LensRow;

use super::run_id::RunId;

/// What is measured of every head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Measure {
    /// What a head adds to the logit of the likeliest token after the selected query.
    #[default]
    Attribution,
    /// How much the loss grows when a head is zeroed.
    Ablation,
    /// The length of what a head adds, of all that it carries.
    Contribution,
    /// Whether a head raises the tokens that it looks at, by its weights.
    Copying,
    /// Whether a head copies from far away, on random tokens.
    Retrieval,
}

impl Measure {
    pub const ALL: [Self; 5] = [
        Self::Attribution,
        Self::Ablation,
        Self::Contribution,
        Self::Copying,
        Self::Retrieval,
    ];

    /// What it is called.
    pub fn title(self) -> &'static str {
        match self {
            Self::Attribution => "attribution",
            Self::Ablation => "ablation",
            Self::Contribution => "contribution",
            Self::Copying => "copying",
            Self::Retrieval => "retrieval",
        }
    }

    /// What its numbers are.
    pub fn about(self) -> &'static str {
        match self {
            Self::Attribution => "what each head adds to the logit of the likeliest next token",
            Self::Ablation => {
                "change of the loss (KL without one) when the head is zeroed, in nats"
            }
            Self::Contribution => "mean Σ α·‖v W_O‖: how much each head carries",
            Self::Copying => "Σ Re λ / Σ |λ| of W_E W_V W_O W_U: 1 raises what it looks at",
            Self::Retrieval => {
                "share of a needle's tokens that a head looks at while they are written"
            }
        }
    }

    /// Whether it is told from predictions, or from the weights that make them.
    pub fn needs_predictions(self) -> bool {
        self != Self::Contribution
    }

    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|measure| *measure == self);
        Self::ALL[(at.unwrap_or(0) + 1) % Self::ALL.len()]
    }
}

/// What is asked: a run, a measure, and the position that logits are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectQuery {
    pub run: RunId,
    pub measure: Measure,
    pub position_idx: usize,
}

/// What is known so far.
#[derive(Debug, Clone, Default)]
pub struct EffectShown {
    /// Heads whose values have come.
    pub heads: Vec<(Place, f64)>,
    /// Other parts: what they are called, and their values.
    pub others: Vec<(String, f64)>,
    /// The lens at the position, by depth.
    pub lens: Vec<LensRow>,
    /// The logit so far, by depth; empty where logits are no sum of shares.
    pub path: Vec<f64>,
    /// The token whose logit is looked at.
    pub token: Option<u32>,
    pub labels: BTreeMap<u32, String>,
    /// How many of all values have come.
    pub progress: (usize, usize),
    /// Why there is no value, or what is to be known of them.
    pub note: Option<String>,
}
