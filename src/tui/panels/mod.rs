//! The panels: one file each, drawn from the state and the shared selection.

pub mod checks;
pub mod head;
mod head_grid;
mod head_row;
pub mod model;
pub mod overview;
mod ranking;
pub mod rows;
pub mod scores;
mod scores_change;
pub mod story;
pub mod sweep;
pub mod tokens;
mod tokens_change;
pub mod what_if;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::Paragraph;

use super::app::App;
use super::panel::Panel;
use super::run::{Preparing, RunState};
use crate::tui::scene::Scene;

/// Draws the panel that is open.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    match app.panel {
        Panel::Overview => overview::draw(frame, area, app),
        Panel::Head => head::draw(frame, area, app),
        Panel::Scores => scores::draw(frame, area, app),
        Panel::Tokens => tokens::draw(frame, area, app),
        Panel::Model => model::draw(frame, area, app),
        Panel::Checks => checks::draw(frame, area, app),
        Panel::WhatIf => what_if::draw(frame, area, app),
        Panel::Rows => rows::draw(frame, area, app),
        Panel::Sweep => sweep::draw(frame, area, app),
        Panel::Story => story::draw(frame, area, app),
    }
}

/// Takes a click inside the panel that is open.
pub fn click(app: &mut App, area: Rect, at: (u16, u16)) {
    match app.panel {
        Panel::Overview => overview::click(app, area, at),
        Panel::Head => head::click(app, area, at),
        Panel::Scores | Panel::Sweep => {}
        Panel::Tokens => tokens::click(app, area, at),
        Panel::Model => model::click(app, area, at),
        Panel::Checks => checks::click(app, area, at),
        Panel::WhatIf => what_if::click(app, area, at),
        Panel::Rows => rows::click(app, area, at),
        Panel::Story => story::click(app, area, at),
    }
}

/// The selection as a frame's title: the same words in every panel.
fn selection_title(app: Scene<'_>, rest: &str) -> String {
    format!(" {}{rest} ", app.selection.head())
}

/// What a panel says while there is nothing to draw yet.
fn waiting(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let layer_idx = app.selection.layer_idx;
    let text = match (app.subject(), app.run()) {
        (None, _) => "opening the checkpoint …".to_owned(),
        (Some(_), None) if app.preparing.is_none() => "nothing has run: press e".to_owned(),
        (Some(_), None) => match app.preparing {
            Some(Preparing::Target { n_written, n_most }) => {
                format!("writing the target: {n_written} of at most {n_most} tokens … c stops")
            }
            _ => "reading the text …".to_owned(),
        },
        (_, Some(run)) => match &run.state {
            RunState::Ended(reason) | RunState::Broken(reason) => {
                let again = match &app.changed {
                    Some(_) => "R to read the checkpoint again",
                    None => "e to run again",
                };
                format!("layer {layer_idx} did not run: {reason}. Press {again}.")
            }
            _ if app.layers_of(app.selection.stack).len() <= layer_idx => {
                format!("layer {layer_idx} has not run yet …")
            }
            _ if run.failure_of(app.wanted_head()).is_some() => format!(
                "layer {layer_idx} head {} could not be computed: {}. Press e to run again.",
                app.selection.head_idx,
                run.failure_of(app.wanted_head()).unwrap_or_default()
            ),
            _ => format!(
                "computing layer {layer_idx} head {} …",
                app.selection.head_idx
            ),
        },
    };
    frame.render_widget(
        Paragraph::new(format!(" {text}")).style(app.theme.dim()),
        area,
    );
}
