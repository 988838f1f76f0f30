//! The screen: the only room that names ratatui or crossterm.

mod app;
mod chart_text;
mod chooser;
mod editor;
mod effect;
mod events;
mod export;
mod figure;
mod find;
mod full_part;
mod input;
mod keys;
mod mouse;
mod panels;
mod places;
mod plot;
mod run_view;
mod selection;
mod story_view;
mod supposed;
mod sweep_view;
mod terminal;
mod theme;
mod update;
mod view;
mod widgets;

pub use app::{App, Axis, Effect, HeadView, Msg, Panel};
pub use chart_text::{figure_text, terminal_width};
pub use export::{Export, Written, export_page};
pub use keys::{key_problems, keys_page};
pub use plot::{Plot, Shown, plot};
pub use story_view::{StoryView, Storyteller};
pub use terminal::{InFront, Start, run, run_alignment};
pub use theme::{Depth, Ground, Theme};
pub use view::{SMALLEST, draw};
pub use widgets::chart::draw_chart;
