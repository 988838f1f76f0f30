//! What is on screen.

mod align_screen;
#[cfg(unix)]
mod answered_keys;
mod atlas_screens;
mod broken_runs;
mod changed_files;
mod checks_screens;
mod compare_screens;
mod concurrent_trainer;
mod effect_screens;
mod exports;
mod failed_questions;
mod filters;
mod history_opening;
mod history_parts;
mod history_screens;
#[cfg(unix)]
mod live_screens;
mod manners;
mod own_commands;
mod panes;
mod picture_screens;
mod prompts_screens;
mod random_events;
#[cfg(unix)]
mod recorded;
mod run_strip;
mod screens;
mod several_heads;
mod story_screens;
mod sweep_screens;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod terminal_answers;
mod tiny_screens;
mod undefined_screens;
mod undo;
mod what_if_screens;
mod writing_screens;
