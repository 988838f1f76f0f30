//! The last line: a notice, the last file written, the cell under the pointer, a tip, or the keys that matter here.

use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};

use super::figure::cut;
use super::panels;
use super::state::keys::{Action, Binding};
use super::state::scene::Scene;

/// Text before the hints.
const MOVE: &str = " ←↓↑→ move";

/// Builds the line.
pub fn footer(app: Scene<'_>, width: u16) -> Line<'static> {
    let theme = &app.theme;
    let room = (width as usize).saturating_sub(1);
    if let Some(notice) = &app.notice {
        return Line::styled(format!(" {}", cut(notice, room)), theme.notable());
    }
    if let Some(written) = &app.written {
        return Line::styled(format!(" {}", cut(written, room)), theme.good());
    }
    if let Some(told) = under_pointer(app) {
        return Line::raw(format!(" {}", cut(&told, room)));
    }
    if let Some(tip) = app.tips.front() {
        return Line::styled(format!(" {}", cut(tip, room)), theme.accent());
    }
    let mut spans = vec![Span::styled(MOVE, theme.dim())];
    for (binding, shown) in hints(app, width) {
        spans.push(Span::styled(format!("   {shown}"), theme.accent()));
        spans.push(Span::styled(format!(" {}", binding.label), theme.dim()));
    }
    Line::from(spans)
}

/// Description of the place under the pointer, as the panel gives it.
fn under_pointer(app: Scene<'_>) -> Option<String> {
    let at = app.pointer.filter(|_| app.overlay.is_none())?;
    panels::told_at(app, super::areas::areas(app.size).body, at)
}

/// Width of a hint in columns.
fn width_of((binding, shown): &(&Binding, String)) -> usize {
    3 + Span::raw(shown.as_str()).width() + 1 + binding.label.chars().count()
}

/// The hints that fit.
fn hints(app: Scene<'_>, width: u16) -> Vec<(&'static Binding, String)> {
    let enabled: Vec<(&'static Binding, String)> = app
        .keys
        .footer_of(app.panel)
        .filter(|(binding, _)| app.lacks(binding.needs).is_none())
        .map(|(binding, shown)| (binding, shown.to_owned()))
        .collect();
    // These help a user who is lost, so they always stay; the others get the remaining room.
    let is_kept = |hint: &(&Binding, String)| matches!(hint.0.action, Action::Help | Action::Quit);
    let kept: usize = enabled
        .iter()
        .filter(|hint| is_kept(hint))
        .map(width_of)
        .sum();
    let mut room = (width as usize).saturating_sub(MOVE.chars().count() + 1 + kept);
    let mut is_full = false;
    let mut shown = Vec::new();
    for hint in enabled {
        if !is_kept(&hint) {
            is_full |= width_of(&hint) > room;
            if is_full {
                continue;
            }
            room -= width_of(&hint);
        }
        shown.push(hint);
    }
    shown
}

/// The action whose hint is at a position of the line.
pub fn action_at(app: Scene<'_>, line: Rect, (column, row): (u16, u16)) -> Option<Action> {
    let says_else = app.notice.is_some() || app.written.is_some() || !app.tips.is_empty();
    if says_else || !line.contains(Position::new(column, row)) {
        return None;
    }
    let mut start = line.x as usize + MOVE.chars().count();
    hints(app, line.width).into_iter().find_map(|hint| {
        let end = start + width_of(&hint);
        // The gap between two hints belongs to neither.
        let is_hit = (start + 3..end).contains(&(column as usize));
        start = end;
        is_hit.then_some(hint.0.action)
    })
}
