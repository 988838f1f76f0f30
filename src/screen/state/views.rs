//! How panels show what they show: the choices and scroll positions of each.

use std::collections::BTreeMap;

use attnscope_run::{HeadMap, TensorStats};

/// An axis of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    Query,
    Key,
}

/// Which matrix the Head panel shows, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeadView {
    /// What was asked for; where it is not known, the pattern stands in its place.
    pub map: HeadMap,
    pub is_log: bool,
    pub hides_first_key: bool,
    /// Single cells even where the map as a whole is pooled.
    pub is_full: bool,
    /// Pixels per cell when 1 or more, 2^−zoom cells per pixel when 0 or less; `None` fits the map to the panel.
    pub zoom: Option<i32>,
    /// First query and key shown; moved so that the crosshair is in sight.
    pub first_query: usize,
    pub first_key: usize,
}

/// Scroll and direction of the Tokens panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokensView {
    /// Shade by what the selected key receives, not by what the selected query gives.
    pub shows_received: bool,
}

/// Scroll of the Model panel, and figures that have arrived.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelView {
    pub tensor_idx: usize,
    pub knob_scroll: usize,
    /// `None` while being computed, `Some(None)` where there are none.
    pub stats: BTreeMap<String, Option<Option<TensorStats>>>,
}

/// Which line of the Checks panel is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChecksView {
    pub line_idx: usize,
}

/// What the Compare panel shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompareView {
    /// Heads by the distance of their patterns, not by the chosen statistic.
    pub is_by_distance: bool,
}
