//! What is on screen.

mod align_screen;
mod exports;
mod screens;
mod story_screens;
mod sweep_screens;
mod what_if_screens;
