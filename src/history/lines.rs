//! Threshold lines: which check each belongs to, which side is unhealthy, and what counted as ordinary before.

use attnscope_checks::{Severity, Thresholds};

use super::value::History;

/// The unhealthy side of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Below,
    Above,
}

/// The unit that has one series of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Heads,
    /// Whole layers, by a statistic that only layers have.
    Layers,
    /// Whole layers, by the share of their heads with almost all attention on the first key.
    SinkLayers,
    /// Heads, by the norm of their output relative to the median head of their layer.
    Outputs,
}

/// A threshold line of a check.
#[derive(Debug)]
pub struct Line {
    pub check: &'static str,
    pub statistic: &'static str,
    /// The threshold itself.
    threshold: fn(&Thresholds) -> f64,
    pub side: Side,
    pub scope: Scope,
    /// Factor of the threshold that a statistic must have reached on the healthy side for its crossing to count as a collapse
    /// rather than as a drift along the line.
    ordinary: f64,
    /// Report growth in percent, and fit it on a logarithmic scale.
    pub is_ratio: bool,
    /// Whether heads of a known type may cross it by design.
    pub excuses_design: bool,
    /// Whether a crossing is a fault in itself; otherwise it is information unless the loss suffers.
    pub is_fault: bool,
    /// Set where a mask keeps it at exactly 0, so that anything else after that is a leak, whatever the loss does.
    pub leak: Option<Leak>,
    /// What to do about it.
    pub advice: &'static str,
}

/// Keys that a mask hides.
#[derive(Debug)]
pub struct Leak {
    /// What keys they are.
    pub what: &'static str,
    /// Whether they are hidden only in a model that predicts the next token.
    pub needs_next: bool,
    /// Severity and advice where a log has it from its first record on.
    pub standing: (Severity, &'static str),
}

/// What the lines of all leaks share.
const OF_LEAKS: Line = Line {
    check: "",
    statistic: "",
    threshold: |_| f64::NAN,
    side: Side::Above,
    scope: Scope::Heads,
    ordinary: 0.5,
    is_ratio: false,
    excuses_design: false,
    is_fault: true,
    leak: None,
    advice: "",
};

const LOWER_RATE: &str = "lower the learning rate, or go back to a checkpoint before it and add QK-norm, QK-Clip or a warm-up";

const SEPARATE: &str = "documents of a packed row see each other: use a block-diagonal mask, or cumulative sequence lengths";

/// Every line, one entry each.
pub static LINES: &[Line] = &[
    Line {
        check: "entropy-collapse",
        statistic: "entropy_relative",
        threshold: |of| of.entropy_collapse.relative_entropy,
        side: Side::Below,
        scope: Scope::Heads,
        ordinary: 4.0,
        is_ratio: true,
        excuses_design: true,
        is_fault: true,
        leak: None,
        advice: LOWER_RATE,
    },
    Line {
        check: "softmax-saturation",
        statistic: "saturated_rows",
        threshold: |of| of.softmax_saturation.saturated_rows,
        side: Side::Above,
        scope: Scope::Heads,
        ordinary: 0.6,
        is_ratio: false,
        excuses_design: true,
        is_fault: true,
        leak: None,
        advice: LOWER_RATE,
    },
    Line {
        check: "score-explosion",
        statistic: "max_abs_score",
        threshold: |of| of.score_explosion.max_abs_score,
        side: Side::Above,
        scope: Scope::Heads,
        ordinary: 0.5,
        is_ratio: true,
        excuses_design: false,
        is_fault: true,
        leak: None,
        advice: "clip W_Q and W_K of this head (QK-Clip), add QK-norm, or lower the learning rate",
    },
    Line {
        check: "entropy-uniform",
        statistic: "entropy_relative",
        threshold: |of| of.entropy_uniform.relative_entropy,
        side: Side::Above,
        scope: Scope::Heads,
        ordinary: 0.8,
        is_ratio: false,
        excuses_design: false,
        is_fault: false,
        leak: None,
        advice: "look at the norms of this head's W_Q and W_K: scores this flat do not select any key",
    },
    Line {
        check: "attention-sink",
        statistic: "first_key_mass",
        threshold: |of| of.attention_sink.massive_heads,
        side: Side::Above,
        scope: Scope::SinkLayers,
        ordinary: 0.6,
        is_ratio: false,
        excuses_design: false,
        is_fault: true,
        leak: None,
        advice: "most heads of the layer attend to the first token only: look at the learning rate, and at the scale of the scores",
    },
    Line {
        check: "rank-collapse",
        statistic: "resid_spread",
        threshold: |of| of.rank_collapse.resid_spread,
        side: Side::Below,
        scope: Scope::Layers,
        ordinary: 4.0,
        is_ratio: true,
        excuses_design: false,
        is_fault: true,
        leak: None,
        advice: "all tokens become alike: look at residual connections, norms and the learning rate",
    },
    Line {
        check: "dead-head",
        statistic: "head_output_norm",
        threshold: |of| of.dead_head.share_of_median,
        side: Side::Below,
        scope: Scope::Outputs,
        ordinary: 4.0,
        is_ratio: true,
        excuses_design: false,
        is_fault: false,
        leak: None,
        advice: "the head no longer writes anything: look at W_V, W_O and weight decay",
    },
    Line {
        check: "future-leak",
        statistic: "later_mass",
        threshold: |of| of.mask_mass.error_mass,
        leak: Some(Leak {
            what: "later keys",
            needs_next: true,
            standing: (
                Severity::Error,
                "apply a causal mask to the scores before the softmax, and train again",
            ),
        }),
        advice: "a causal mask was lost here: look at what changed in the mask, and train again from before it",
        ..OF_LEAKS
    },
    Line {
        check: "padding-leak",
        statistic: "pad_mass",
        threshold: |of| of.pad_mass.error_mass,
        leak: Some(Leak {
            what: "keys that are padding",
            needs_next: false,
            standing: (
                Severity::Error,
                "the mask that the model is given does not reach this attention: pass it on",
            ),
        }),
        advice: "the padding mask was lost here: pass it to attention again",
        ..OF_LEAKS
    },
    Line {
        check: "document-leak",
        statistic: "document_mass",
        threshold: |of| of.document_leak.error_mass,
        leak: Some(Leak {
            what: "keys of other documents",
            needs_next: false,
            // Some train across documents on purpose.
            standing: (Severity::Warning, SEPARATE),
        }),
        advice: SEPARATE,
        ..OF_LEAKS
    },
];

/// Probability that a mask leaves of forbidden keys, at most: rounding.
pub(super) const NO_MASS: f64 = 1e-6;

/// Weight on the first key from which a head gives it almost all attention, as in the check.
const MASSIVE: f64 = 0.95;
/// Factor by which a statistic must be back on the healthy side to count as released. Within this band nothing changes, so
/// that noise around the line is one finding instead of many.
const RELEASE: f64 = 1.2;
/// Types of heads that attend to one kind of place by design.
const DESIGNS: [(&str, &str); 6] = [
    ("sink_mass", "its learned sink"),
    ("first_key_mass", "the first token"),
    ("previous_mass", "the previous token"),
    ("diagonal_mass", "the query's own token"),
    ("duplicate_mass", "earlier copies of the token"),
    (
        "induction_mass",
        "what followed earlier copies of the token",
    ),
];

impl Line {
    /// Returns the value of the threshold.
    pub fn at(&self, thresholds: &Thresholds) -> f64 {
        (self.threshold)(thresholds)
    }

    /// Whether a value is on the unhealthy side.
    pub fn is_crossed(&self, value: f64, at: f64) -> bool {
        match self.side {
            Side::Below => value < at,
            Side::Above => value > at,
        }
    }

    /// Whether a value is clearly back on the healthy side.
    pub fn is_released(&self, value: f64, at: f64) -> bool {
        match self.side {
            Side::Below => value >= at * RELEASE,
            Side::Above => value <= at / RELEASE,
        }
    }

    /// Whether an earlier value was so far on the healthy side that crossing the line since then is a collapse.
    pub fn is_ordinary(&self, value: f64, at: f64) -> bool {
        match self.side {
            Side::Below => value >= at * self.ordinary,
            Side::Above => value <= at * self.ordinary,
        }
    }

    /// Whether one value is closer to the fault than another.
    pub fn is_worse(&self, value: f64, than: f64) -> bool {
        match self.side {
            Side::Below => value < than,
            Side::Above => value > than,
        }
    }

    /// Returns the number of series.
    pub fn n_units(&self, history: &History) -> usize {
        match self.scope {
            Scope::Heads | Scope::Outputs => history.grid().n_heads(),
            Scope::Layers | Scope::SinkLayers => history.grid().layers().len(),
        }
    }

    /// Returns the cell of a series in the grid.
    pub fn cell(&self, history: &History, unit: usize) -> usize {
        match self.scope {
            Scope::Heads | Scope::Outputs => unit,
            Scope::Layers | Scope::SinkLayers => history.grid().n_heads() + unit,
        }
    }

    /// Returns the value compared with the line; NaN if it is unknown.
    pub fn value(&self, history: &History, record_idx: usize, unit: usize) -> f64 {
        let Some(column) = history.column(self.statistic) else {
            return f64::NAN;
        };
        let of = |cell| history.value(record_idx, column, cell);
        match self.scope {
            Scope::Heads | Scope::Layers => of(self.cell(history, unit)),
            Scope::SinkLayers => {
                let heads = history.grid().heads_of(unit);
                let n = heads.len();
                let known: Vec<f64> = heads.map(of).filter(|mass| !mass.is_nan()).collect();
                let n_massive = known.iter().filter(|mass| **mass > MASSIVE).count();
                if known.is_empty() {
                    f64::NAN
                } else {
                    n_massive as f64 / n as f64
                }
            }
            Scope::Outputs => {
                let layer = history.grid().layer_of(unit);
                let heads = history.grid().heads_of(layer).map(of);
                of(unit) / super::robust::median(heads.filter(|value| value.is_finite()))
            }
        }
    }

    /// Returns the type of a head by design at a record, if it has one and the history knows it.
    pub fn design(
        &self,
        history: &History,
        record_idx: usize,
        cell: usize,
        thresholds: &Thresholds,
    ) -> Option<&'static str> {
        if !self.excuses_design {
            return None;
        }
        design_of(history, record_idx, cell, thresholds)
    }

    /// Whether it is about heads that are too sharp: what a collapse of attention shows.
    pub fn is_of_sharpness(&self) -> bool {
        self.scope == Scope::Heads && self.is_fault && self.leak.is_none()
    }

    /// Returns the kind of line from which severities follow.
    pub fn kind(&self) -> attnscope_checks::weight::Line {
        attnscope_checks::weight::Line {
            is_fault: self.is_fault,
            excuses_design: self.excuses_design,
            is_of_heads: self.scope == Scope::Heads,
        }
    }
}

/// Returns the type of a head by design at a record: the kind of place with most of its attention, if the history knows it.
pub fn design_of(
    history: &History,
    record_idx: usize,
    cell: usize,
    thresholds: &Thresholds,
) -> Option<&'static str> {
    let least = thresholds.entropy_collapse.by_design;
    let shares = DESIGNS.map(|(id, what)| (history.at(record_idx, id, cell), what));
    let strongest = shares
        .into_iter()
        .filter(|(share, _)| *share >= least)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    strongest.map(|(_, what)| what)
}

/// Returns the lines of a statistic for a chart: check and threshold.
pub fn lines_of(statistic: &str, thresholds: &Thresholds) -> Vec<(&'static str, f64)> {
    let of = LINES.iter().filter(|line| {
        line.statistic == statistic && matches!(line.scope, Scope::Heads | Scope::Layers)
    });
    of.map(|line| (line.check, line.at(thresholds))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_checks::find;
    use attnscope_checks::stats::index_of;

    #[test]
    fn every_line_names_an_existing_check_and_statistic() {
        let thresholds = Thresholds::default();
        for line in LINES {
            assert!(find(line.check).is_some(), "{}", line.check);
            assert!(index_of(line.statistic).is_some(), "{}", line.statistic);
            let at = line.at(&thresholds);
            assert!(at.is_finite(), "{}", line.check);
            let healthy = match line.side {
                Side::Below => at * line.ordinary.max(RELEASE),
                Side::Above => at * line.ordinary.min(1.0 / RELEASE),
            };
            assert!(line.is_ordinary(healthy, at) && line.is_released(healthy, at));
            assert!(!line.is_crossed(healthy, at), "{}", line.check);
        }
        for (id, _) in DESIGNS {
            assert!(index_of(id).is_some(), "{id}");
        }
    }
}
