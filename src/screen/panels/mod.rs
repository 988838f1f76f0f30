//! The panels: one file each, drawn from the state and the shared selection.

pub mod atlas;
mod atlas_cells;
pub mod atlas_layout;
mod atlas_legend;
pub mod atlas_written;
pub mod cell;
pub mod checks;
pub mod checks_counts;
pub mod checks_line;
pub mod checks_list;
mod checks_sides;
pub mod compare;
mod compare_differs;
pub mod effect;
pub mod effect_path;
mod effect_ranking;
mod grid_scale;
pub mod head;
mod head_grid;
pub mod head_layout;
pub mod head_preview;
mod head_row;
pub mod head_value;
mod hidden_cells;
pub mod history;
pub mod history_curves;
mod history_events;
pub mod history_head;
mod history_strip;
pub mod marked;
pub mod model;
mod model_change;
pub mod overview;
mod overview_layout;
pub mod prompts;
mod prompts_head;
pub mod prompts_scatter;
pub mod ranking;
pub mod rows;
pub mod scores;
mod scores_change;
mod statistic_figure;
pub mod story;
mod summary_line;
pub mod sweep;
pub mod tokens;
mod tokens_change;
mod tokens_picture;
pub mod tokens_shades;
mod tokens_shares;

use attnscope_spec::Place;
use ratatui::Frame;
use ratatui::layout::Rect;

use self::cell::told_of_cell;
use crate::figure::figure;
use crate::state::app::App;
use crate::state::panel::Panel;
use crate::state::scene::Scene;
use crate::widgets::frame::{framed, waiting};

/// Draws the open panel.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    if app.subject().is_none() && !matches!(app.panel, Panel::History | Panel::Story) {
        // Nothing is open: one box says why, instead of each of the panel's.
        let title = format!(" {} ", app.panel.title().to_lowercase());
        let inside = framed(frame, area, app, title);
        return waiting(frame, inside, app);
    }
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
        Panel::Prompts => prompts::draw(frame, area, app),
        Panel::Story => story::draw(frame, area, app),
    }
}

/// The panes of the open panel: boxes that can have the focus. Those that are not shown are empty.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    match app.panel {
        Panel::Overview => overview::panes(app, area),
        Panel::Head => head_layout::panes(app, area),
        Panel::Scores => scores::panes(app, area),
        Panel::Tokens => tokens::panes(app, area),
        Panel::Model => model::panes(app, area),
        Panel::Checks => checks::panes(app, area),
        Panel::Compare => compare::panes(app, area),
        Panel::History => history::panes(app, area),
        Panel::Rows => rows::panes(app, area),
        Panel::Effect => effect::panes(app, area),
        Panel::Prompts => prompts::panes(app, area),
        Panel::Sweep | Panel::Story => Vec::new(),
    }
}

/// Handles a click inside the open panel.
pub fn click(app: &mut App, area: Rect, at: (u16, u16)) {
    match app.panel {
        Panel::Overview => overview::click(app, area, at),
        Panel::Head => head::click(app, area, at),
        Panel::Scores => scores::click(app, area, at),
        Panel::Sweep => {}
        Panel::Tokens => tokens::click(app, area, at),
        Panel::Model => model::click(app, area, at),
        Panel::Checks => checks::click(app, area, at),
        Panel::Compare => compare::click(app, area, at),
        Panel::History => history::click(app, area, at),
        Panel::Rows => rows::click(app, area, at),
        Panel::Effect => effect::click(app, area, at),
        Panel::Prompts => prompts::click(app, area, at),
        Panel::Story => story::click(app, area, at),
    }
}

/// The open panel's description of the place under the pointer, such as the value of a cell; `None` if there is none.
pub fn told_at(app: Scene<'_>, area: Rect, at: (u16, u16)) -> Option<String> {
    match app.panel {
        Panel::Overview => told_of_head(app, overview::head_at(app, area, at)?),
        Panel::Compare => told_of_head(app, compare::head_at(app, area, at)?),
        Panel::Head => {
            let (query_idx, key_idx) = head::place_at(app, area, at)?;
            app.shown_detail()?;
            Some(told_of_cell(app, query_idx, key_idx))
        }
        Panel::Tokens => {
            let idx = tokens::token_at(app, area, at)?;
            app.shown_detail()?;
            let at = app.selection;
            Some(if app.tokens_view.shows_received {
                told_of_cell(app, idx, at.key_idx)
            } else {
                told_of_cell(app, at.query_idx, idx)
            })
        }
        Panel::History => history::told_at(app, area, at),
        Panel::Prompts => prompts::told_at(app, area, at),
        _ => None,
    }
}

/// Describes a head and its value of the shown statistic.
fn told_of_head(app: Scene<'_>, place: Place) -> Option<String> {
    let value = head_value::value(app, place.grid(), place.layer_idx?, place.head_idx);
    let statistic = app.statistic();
    let what = if app.shows_distance() {
        "distance of the patterns"
    } else {
        statistic.title
    };
    let change = if app.grid_differs() { "change of " } else { "" };
    let value = figure(value, 0);
    let unit = if app.shows_distance() {
        "nats"
    } else {
        statistic.unit
    };
    Some(
        format!("{place} · {change}{what}: {value} {unit}")
            .trim_end()
            .to_owned(),
    )
}

/// The value of the selected head in the open panel; `None` if there is none.
pub fn selected_value(app: Scene<'_>) -> Option<f64> {
    let at = app.selection;
    let value = match app.panel {
        Panel::Effect => effect::selected_value(app)?,
        Panel::Prompts => {
            let [x, _] = app.scatter_axes();
            let mean = app.head_over_prompts()?.spread(x).mean();
            return mean.is_finite().then_some(mean);
        }
        _ => head_value::value(app, at.stack, at.layer_idx, Some(at.head_idx)),
    };
    (app.layer().is_some() && !value.is_nan()).then_some(value)
}
