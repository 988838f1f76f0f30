//! Measures of head effects, the query for one, and its partial result.

use std::collections::BTreeMap;

use attnscope_spec::Place;
use attnscope_studies::effect::LensRow;

use super::run_id::RunId;

/// Measure of a head's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Measure {
    /// The head's contribution to the logit of the likeliest token after the selected query.
    #[default]
    Attribution,
    /// Increase of the loss when the head is zeroed.
    Ablation,
    /// Norm of the head's contributions, averaged over queries: mean Σ α·‖v W_O‖.
    Contribution,
    /// Whether the head's weights raise the logits of the tokens it attends to.
    Copying,
    /// Whether the head copies from far away, measured on random tokens.
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

    /// Returns its name.
    pub fn title(self) -> &'static str {
        match self {
            Self::Attribution => "attribution",
            Self::Ablation => "ablation",
            Self::Contribution => "contribution",
            Self::Copying => "copying",
            Self::Retrieval => "retrieval",
        }
    }

    /// Returns the definition of its values.
    pub fn about(self) -> &'static str {
        match self {
            Self::Attribution => "what each head adds to the logit of the likeliest next token",
            Self::Ablation => {
                "change of the loss (KL without one) when the head is zeroed, in nats"
            }
            Self::Contribution => "mean Σ α·‖v W_O‖: how much each head carries",
            Self::Copying => {
                "Σ Re λ / Σ |λ| of W_E W_V W_O W_U: at 1, the head raises the tokens that it attends to"
            }
            Self::Retrieval => {
                "share of a needle's tokens that the head attends to when they come next"
            }
        }
    }

    /// Whether it needs predictions, or the weights that make them.
    pub fn needs_predictions(self) -> bool {
        self != Self::Contribution
    }

    /// Whether its values can be negative.
    pub fn is_signed(self) -> bool {
        !matches!(self, Self::Contribution | Self::Retrieval)
    }

    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|measure| *measure == self);
        Self::ALL[(at.unwrap_or(0) + 1) % Self::ALL.len()]
    }
}

/// Query for a measure of a run, with the position whose logits are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectQuery {
    pub run: RunId,
    pub measure: Measure,
    pub position_idx: usize,
}

/// Result of a measurement, possibly partial.
#[derive(Debug, Clone, Default)]
pub struct EffectShown {
    /// Heads measured so far.
    pub heads: Vec<(Place, f64)>,
    /// Other parts of the model: names and values.
    pub others: Vec<(String, f64)>,
    /// Logit lens at the position, by depth.
    pub lens: Vec<LensRow>,
    /// The logit accumulated up to each depth; empty if logits are not a sum of shares.
    pub path: Vec<f64>,
    /// The token whose logit is measured.
    pub token: Option<u32>,
    pub labels: BTreeMap<u32, String>,
    /// Number of values computed, and the total.
    pub progress: (usize, usize),
    /// Why values are missing, or a remark on them.
    pub note: Option<String>,
}
