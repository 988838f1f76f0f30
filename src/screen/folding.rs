//! Unfolding and folding findings that are alike, in the Checks panel.

use super::panels::checks_list::{Entry, lines};
use super::state::app::App;

impl App {
    /// Moves in the list of findings: up and down from line to line, to the right into a group, to the left out of it.
    pub(super) fn step_findings(&mut self, across: isize, down: isize) {
        let shown = lines(self.scene());
        if let Some(here) = shown.shown.get(shown.at) {
            self.checks_view.line_idx = *here;
        }
        if down != 0 {
            self.step_match(down, false);
        }
        match across {
            0 => {}
            1.. => self.unfold(),
            _ => self.fold(),
        }
    }

    /// Unfolds the selected group or folds it; returns whether a group is selected.
    pub(super) fn toggle_fold(&mut self) -> bool {
        let fold = match lines(self.scene()).selected() {
            Some(Entry::Group { fold, .. }) => *fold,
            _ => return false,
        };
        let unfolded = &mut self.checks_view.unfolded;
        if !unfolded.remove(&fold) {
            unfolded.insert(fold);
        }
        true
    }

    /// Unfolds the selected group; goes to its first finding if that was done already.
    fn unfold(&mut self) {
        let fold = match lines(self.scene()).selected() {
            Some(Entry::Group { fold, .. }) => *fold,
            _ => return,
        };
        if !self.checks_view.unfolded.insert(fold) {
            self.step_match(1, false);
        }
    }

    /// Folds the selected group, or that of the selected finding.
    fn fold(&mut self) {
        let lines = lines(self.scene());
        let here = lines.shown.get(lines.at).copied().unwrap_or(0);
        let (idx, fold) = match (lines.all.get(here), group_of(&lines.all, here)) {
            (Some(Entry::Group { fold, .. }), _) => (here, *fold),
            (_, Some(group)) => group,
            _ => return,
        };
        self.checks_view.unfolded.remove(&fold);
        self.checks_view.line_idx = idx;
    }

    /// Unfolds the group of the selected finding if that hides it.
    pub(super) fn reveal_finding(&mut self) {
        let lines = lines(self.scene());
        let here = self.checks_view.line_idx;
        if !lines.shown.contains(&here)
            && let Some((_, fold)) = group_of(&lines.all, here)
        {
            self.checks_view.unfolded.insert(fold);
        }
    }
}

/// The line and the fold of the group that a finding belongs to.
fn group_of(all: &[Entry<'_>], idx: usize) -> Option<(usize, super::state::views::Fold)> {
    let Some(Entry::Finding {
        group_idx: Some(group_idx),
        ..
    }) = all.get(idx)
    else {
        return None;
    };
    match all.get(*group_idx)? {
        Entry::Group { fold, .. } => Some((*group_idx, *fold)),
        _ => None,
    }
}
