//! Heads over many prompts: all heads by two statistics, how the selected head spreads, and the places that excite it most.

use attnscope_checkpoint::counted::counted;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};

use super::{prompts_head, prompts_scatter};
use crate::figure::cut;
use crate::state::app::App;
use crate::state::keys::Action;
use crate::state::prompts_view::End;
use crate::state::scene::Scene;
use crate::widgets::frame::{draw_reason, framed, waiting};

/// The parts of the panel.
struct Parts {
    scatter: Rect,
    spread: Rect,
    places: Rect,
}

/// Rows of the spreads of two statistics, with their border.
const SPREADS: u16 = 10;

fn parts(app: Scene<'_>, area: Rect) -> Parts {
    let left = if area.width < 100 { 50 } else { 55 };
    let [scatter, right] =
        Layout::horizontal([Constraint::Percentage(left), Constraint::Min(0)]).areas(area);
    let [spread, places] =
        Layout::vertical([Constraint::Length(SPREADS), Constraint::Min(0)]).areas(right);
    let mut parts = Parts {
        scatter,
        spread,
        places,
    };
    let mut panes = [&mut parts.scatter, &mut parts.spread, &mut parts.places];
    app.arrange(area, &mut panes);
    parts
}

/// The boxes of the panel, once there are figures.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    if app.over_prompts().is_none() {
        return Vec::new();
    }
    let parts = parts(app, area);
    vec![parts.scatter, parts.spread, parts.places]
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let is_model = app
        .subject()
        .is_none_or(|subject| subject.model().is_some());
    if !is_model {
        let inside = framed(frame, area, app, " heads over many prompts ");
        let text = "there is no model to run: this needs a checkpoint";
        return draw_reason(frame, inside, app, text);
    }
    if app.over_prompts().is_none() {
        let inside = framed(frame, area, app, " heads over many prompts ");
        return match nothing_yet(app) {
            Some(text) => draw_reason(frame, inside, app, &text),
            None => waiting(frame, inside, app),
        };
    }
    let parts = parts(app, area);
    if !parts.scatter.is_empty() {
        prompts_scatter::draw(frame, parts.scatter, app);
    }
    if !parts.spread.is_empty() {
        prompts_head::draw_spreads(frame, parts.spread, app);
    }
    if !parts.places.is_empty() {
        prompts_head::draw_places(frame, parts.places, app);
    }
}

/// Why nothing is shown, once prompts were requested.
fn nothing_yet(app: Scene<'_>) -> Option<String> {
    let view = &app.prompts_view;
    let n = view.asked.as_ref()?.set.len();
    let [stops, again] = [Action::StopRun, Action::RunPrompts].map(|a| app.keys.key(a));
    Some(match &view.end {
        End::Because(reason) => format!("{reason} · {again} starts again"),
        End::Going | End::Done if n == 1 => format!("running the prompt … {stops} stops"),
        End::Going | End::Done => format!("running the first of {n} prompts … {stops} stops"),
    })
}

/// How many prompts the figures are of.
pub fn counted_prompts(app: Scene<'_>) -> String {
    let n_done = app.over_prompts().map_or(0, |over| over.n_prompts);
    let view = &app.prompts_view;
    let n = view.asked.as_ref().map_or(0, |query| query.set.len());
    let of = if n_done == n {
        counted(n, "prompt")
    } else {
        format!("{n_done} of {n} prompts")
    };
    match (&view.end, &view.given) {
        (End::Going, _) => format!("{of} … {} stops", app.keys.key(Action::StopRun)),
        (End::Because(_), _) => format!("{of} · {} starts again", app.keys.key(Action::RunPrompts)),
        (End::Done, None) => format!("{of} of this session"),
        (End::Done, Some(_)) => of,
    }
}

/// Selects the head nearest to a click in the scatter, or the place that is clicked in the list.
pub fn click(app: &mut App, area: Rect, (column, row): (u16, u16)) {
    let parts = parts(app.scene(), area);
    let at = Position::new(column, row);
    if parts.scatter.contains(at) {
        if let Some(place) = prompts_scatter::head_at(app.scene(), parts.scatter, (column, row)) {
            app.select_over_prompts(place);
        }
    } else if let Some(nth) = prompts_head::place_at(app.scene(), parts.places, (column, row)) {
        app.prompts_view.place_idx = nth;
    }
}

/// Describes the head under the pointer.
pub fn told_at(app: Scene<'_>, area: Rect, at: (u16, u16)) -> Option<String> {
    let parts = parts(app, area);
    let place = prompts_scatter::head_at(app, parts.scatter, at)?;
    prompts_scatter::told_of(app, place)
}

/// A title of a part, cut to its width.
pub(super) fn title(text: String, area: Rect) -> String {
    cut(&text, (area.width as usize).saturating_sub(4))
}
