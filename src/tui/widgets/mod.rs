//! Pieces that panels share: heat maps, legends, lists over the panels.

pub mod chooser;
pub mod heatmap;
pub mod legend;
pub mod overlay;
