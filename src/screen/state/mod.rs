//! The state of the screen: what is open, what ran, what is selected, how panels show it, and the actions of keys. Nothing here
//! draws.

pub mod aligned;
pub mod app;
pub mod chooser;
pub mod chord;
pub mod copied;
pub mod editor;
pub mod effect_view;
pub mod find;
pub mod history_view;
pub mod keymap;
pub mod keys;
pub mod known;
pub mod limits;
pub mod look;
pub mod msg;
pub mod needs;
pub mod panel;
pub mod protocol;
pub mod remembered;
pub mod rows_view;
pub mod run;
pub mod runs;
pub mod scene;
pub mod selection;
pub mod setup;
pub mod shown;
pub mod statistics;
pub mod story_view;
pub mod sweep_view;
pub mod views;
pub mod writing_view;
pub mod written;
