//! Widgets that panels share: frames, charts, heat maps, legends, overlay lists.

pub mod chart;
pub mod chooser;
pub mod frame;
pub mod heatmap;
pub mod help;
pub mod hidden;
pub mod legend;
pub mod margins;
pub mod overlay;
pub mod palette;
pub mod strip;
pub mod text_field;
pub mod thumbnail;
pub mod whole_map;
pub mod window;
pub mod writing;
