//! Display choices and scroll positions of each panel.

use std::collections::{BTreeMap, BTreeSet};

use attnscope_checks::{Finding, Severity};
use attnscope_run::{HeadMap, TensorStats};

/// An axis of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    Query,
    Key,
}

/// The matrix that the Head panel shows, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeadView {
    /// The chosen map; the pattern is shown instead if it is not available.
    pub map: HeadMap,
    pub is_log: bool,
    pub hides_first_key: bool,
    /// Whether to show single cells even if the whole map is pooled.
    pub is_full: bool,
    /// Pixels per cell when 1 or more, 2^−zoom cells per pixel when 0 or less; `None` fits the map to the panel.
    pub zoom: Option<i32>,
    /// First query and key shown; scrolled so that the crosshair is visible.
    pub first_query: usize,
    pub first_key: usize,
}

/// Scroll position and direction of the Tokens panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokensView {
    /// Shade by the attention that the selected key receives, instead of that from the selected query.
    pub shows_received: bool,
}

/// Scroll position of the Model panel, and the tensor statistics that have arrived.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelView {
    pub tensor_idx: usize,
    pub knob_scroll: usize,
    /// `None` while being computed, `Some(None)` if there are none.
    pub stats: BTreeMap<String, Option<Option<TensorStats>>>,
}

/// Which of two runs have a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sides {
    OnlyB,
    OnlyA,
    Both,
}

/// Findings of the Checks panel that are one line until it is unfolded: those of one check, severity, limit and kind of place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fold {
    check: &'static str,
    severity: Severity,
    /// Bits of the limit.
    threshold: u64,
    is_of_layers: bool,
    is_of_heads: bool,
    /// Which runs have them, if two are compared.
    sides: Option<Sides>,
}

impl Fold {
    /// The fold of a finding.
    pub fn of(finding: &Finding, sides: Option<Sides>) -> Self {
        Self {
            check: finding.check,
            severity: finding.severity,
            threshold: finding.threshold.to_bits(),
            is_of_layers: finding.place.layer_idx.is_some(),
            is_of_heads: finding.place.head_idx.is_some(),
            sides,
        }
    }
}

/// The selected line of the Checks panel, counted with all lines unfolded, and what is unfolded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChecksView {
    pub line_idx: usize,
    pub unfolded: BTreeSet<Fold>,
}

/// Display choices of the Compare panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompareView {
    /// Whether to show heads by the distance of their patterns instead of the chosen statistic.
    pub is_by_distance: bool,
    /// Whether to show the marked heads side by side instead of A and B.
    pub shows_marked: bool,
}

/// What the Overview panel shows of each head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OverviewView {
    /// Numbers of the chosen statistic instead of maps.
    pub shows_numbers: bool,
    /// Only the heads of the selected layer, as large maps.
    pub is_of_layer: bool,
}

impl OverviewView {
    /// Whether heads are shown as maps.
    pub fn shows_maps(self) -> bool {
        !self.shows_numbers
    }
}
