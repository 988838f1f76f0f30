//! Back and forward through views, as a browser does.

use super::state::app::App;
use super::state::keys::{Action, Group};
use super::state::look::Look;

impl App {
    /// Notes that a jump left a view behind: another panel, or another place that no moving key leads to.
    pub(super) fn note_jump(&mut self, before: Look, action: Option<Action>) {
        let moves = action.is_some_and(|action| {
            let mut rows = super::state::keys::BINDINGS.iter();
            rows.any(|row| row.action == action && row.group == Group::Moving)
        });
        let goes = matches!(action, Some(Action::Backward | Action::Forward));
        let now = self.look();
        let is_far = now.panel != before.panel || !moves && !now.is_at(&before);
        if is_far && !goes {
            self.views.leave(before);
        }
    }

    /// Goes back to the view before the last jump, or forward again.
    pub(super) fn go_along(&mut self, is_back: bool) {
        let here = self.look();
        let found = if is_back {
            self.views.back(here)
        } else {
            self.views.forward(here)
        };
        match found {
            Some(look) => self.go_to_look(&look),
            None => {
                let where_to = if is_back { "before" } else { "after" };
                self.notice = Some(format!("there is no view {where_to} this one"));
            }
        }
    }
}
