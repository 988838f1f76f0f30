//! Which cells of the selected head's maps are masked, so that panels leave them blank.

use attnscope_run::{HeadDetail, Pyramid};

use crate::state::scene::Scene;
use crate::widgets::hidden::Hidden;

/// What hides cells of one of a head's maps.
pub fn of_map<'a>(app: Scene<'_>, detail: &'a HeadDetail, values: &Pyramid) -> Hidden<'a> {
    Hidden::of(values, &detail.scores, app.visibility())
}

/// What hides cells of B minus A: a cell that A masks and that does not change.
pub fn of_change<'a>(app: Scene<'a>, change: &Pyramid) -> Hidden<'a> {
    let Some([a, _]) = app.both_details() else {
        return Hidden::Nothing;
    };
    of_map(app, a, change)
}
