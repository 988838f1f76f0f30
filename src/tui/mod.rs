//! The screen: the only room that names ratatui or crossterm.

mod app;
mod chart_text;
mod editor;
mod figure;
mod find;
mod full_part;
mod keys;
mod panels;
mod places;
mod run_view;
mod selection;
mod terminal;
mod theme;
mod update;
mod view;
mod widgets;

pub use app::{App, Axis, Effect, Msg, Panel};
pub use chart_text::{figure_text, terminal_width};
pub use keys::{key_problems, keys_page};
pub use terminal::{Start, run};
pub use theme::{Depth, Theme};
pub use view::draw;
pub use widgets::chart::draw_chart;
