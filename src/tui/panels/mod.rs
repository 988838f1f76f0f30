//! The panels: one file each, drawn from the state and the shared selection.

pub mod checks;
mod checks_sides;
pub mod compare;
mod compare_differs;
pub mod effect;
pub mod head;
mod head_grid;
mod head_row;
pub mod head_value;
pub mod history;
mod history_curves;
pub mod history_head;
mod history_strip;
pub mod model;
mod model_change;
pub mod overview;
mod ranking;
pub mod rows;
pub mod scores;
mod scores_change;
pub mod story;
pub mod sweep;
pub mod tokens;
mod tokens_change;

use ratatui::Frame;
use ratatui::layout::Rect;

use super::app::App;
use super::panel::Panel;
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
        Panel::Compare => compare::draw(frame, area, app),
        Panel::History => history::draw(frame, area, app),
        Panel::Rows => rows::draw(frame, area, app),
        Panel::Effect => effect::draw(frame, area, app),
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
        Panel::Compare => compare::click(app, area, at),
        Panel::History => history::click(app, area, at),
        Panel::Rows => rows::click(app, area, at),
        Panel::Effect => effect::click(app, area, at),
        Panel::Story => story::click(app, area, at),
    }
}
