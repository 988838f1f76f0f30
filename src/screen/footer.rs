//! The last line: a notice, the last file written, the cell under the pointer, a tip, or the keys that matter here.

use attnscope_checkpoint::counted::counted;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};

use super::figure::{cut, wrapped};
use super::panels;
use super::state::app::Overlay;
use super::state::keys::{Action, Binding};
use super::state::panel::Panel;
use super::state::scene::Scene;

/// Text before the hints.
const MOVE: &str = " ←↓↑→ move";

/// Lines of a message at most.
const MOST: usize = 4;

/// Builds the line, or the lines of a message that is too long for one.
pub fn footer(app: Scene<'_>, width: u16) -> Vec<Line<'static>> {
    message(app, width).unwrap_or_else(|| vec![hint_line(app, width)])
}

/// Number of lines that the footer takes.
pub fn n_lines(app: Scene<'_>, width: u16) -> u16 {
    message(app, width).map_or(1, |lines| lines.len().max(1) as u16)
}

/// The lines of a notice, or of what was written; `None` if there is neither.
fn message(app: Scene<'_>, width: u16) -> Option<Vec<Line<'static>>> {
    let message = match (&app.notice, &app.written, &app.overlay) {
        (_, _, Some(Overlay::Filter { .. })) => None,
        (Some(notice), ..) => Some((notice, app.theme.notable())),
        (None, Some(written), _) => Some((written, app.theme.good())),
        (None, None, _) => None,
    };
    let room = (width as usize).saturating_sub(1);
    let (text, style) = message?;
    let mut lines = wrapped(text, room.saturating_sub(1).max(1));
    if lines.len() > MOST {
        lines.truncate(MOST);
        if let Some(last) = lines.last_mut() {
            last.push_str(" ………");
        }
    }
    let lines = lines.into_iter();
    let lines = lines.map(|line| Line::styled(format!(" {}", cut(&line, room)), style));
    Some(lines.collect())
}

/// The filter that is typed, what lies under the pointer, a tip, or the keys that matter here.
fn hint_line(app: Scene<'_>, width: u16) -> Line<'static> {
    let theme = &app.theme;
    let room = (width as usize).saturating_sub(1);
    if let Some(typed) = typed_filter(app) {
        return Line::styled(format!(" {}", cut(&typed, room)), theme.accent());
    }
    // What lies over the panel names its own keys, and takes those of the panel.
    if app.overlay.is_some() {
        return Line::default();
    }
    if let Some(told) = under_pointer(app) {
        return Line::raw(format!(" {}", cut(&told, room)));
    }
    if let Some(tip) = app.tips.front() {
        return Line::styled(format!(" {}", cut(tip, room)), theme.accent());
    }
    let first = match lead(app) {
        Some(lead) => Span::styled(cut(&lead, room), theme.notable()),
        None => Span::styled(MOVE, theme.dim()),
    };
    let mut spans = vec![first];
    for (binding, shown) in hints(app, width) {
        spans.push(Span::styled(format!("   {shown}"), theme.accent()));
        spans.push(Span::styled(format!(" {}", binding.label), theme.dim()));
    }
    Line::from(spans)
}

/// The filter while it is typed, with how many rows match and the keys that matter.
fn typed_filter(app: Scene<'_>) -> Option<String> {
    let list = app.list_here()?;
    if !matches!(app.overlay, Some(Overlay::Filter { .. })) {
        return None;
    }
    let rows = list.rows();
    let keys = "Enter keeps · Esc shows all · ↑↓ next · !word leaves out · Tab finds anything";
    Some(match app.filter_of(list) {
        Some(filter) => {
            let (n, n_all) = (filter.matches.len(), filter.n_all);
            format!("/{}▏ {n} of {n_all} {rows} · {keys}", filter.query)
        }
        None => format!("/▏ filters {rows} · {keys}"),
    })
}

/// What stands before the hints in place of the keys that move: the filter or the search in force here, or the marked heads.
fn lead(app: Scene<'_>) -> Option<String> {
    let key = |action: Action| app.keys.key(action);
    let steps = format!("{} {}", key(Action::NextMatch), key(Action::PreviousMatch));
    if let Some((list, filter)) = app.filter_here() {
        let (n, n_all, rows) = (filter.matches.len(), filter.n_all, list.rows());
        let back = key(Action::Back);
        return Some(format!(
            " /{} {n} of {n_all} {rows} · {steps} next, previous · {back} shows all",
            filter.query
        ));
    }
    if let Some(search) = app.search_here() {
        let (at, n) = (search.at + 1, search.targets.len());
        let back = key(Action::Back);
        return Some(format!(
            " /{} {at} of {n} · {steps} next, previous · {back} ends",
            search.query
        ));
    }
    if app.shows_one_pane() {
        let n = panels::panes(app, app.areas().body).len();
        let at = app.focused_pane().unwrap_or(0) + 1;
        let [next, zoom] = [Action::FocusNext, Action::ZoomPane].map(key);
        let all = if app.is_zoomed() {
            format!(" · {zoom} shows all")
        } else {
            String::new()
        };
        return (n > 1).then(|| format!(" pane {at} of {n} · {next} next{all}"));
    }
    if app.marks.is_empty() || matches!(app.panel, Panel::Model | Panel::Checks | Panel::Story) {
        return None;
    }
    let keys = [
        Action::DropMarked,
        Action::CompareMarked,
        Action::ClearMarks,
    ]
    .map(key);
    let [drops, compares, clears] = keys;
    let n = counted(app.marks.len(), "marked head");
    Some(format!(
        " {n} · {drops} drops · {compares} compares · {clears} unmarks"
    ))
}

/// Columns of what stands before the hints.
fn lead_width(app: Scene<'_>, width: u16) -> usize {
    let lead = lead(app).map(|lead| cut(&lead, (width as usize).saturating_sub(1)));
    Span::raw(lead.as_deref().unwrap_or(MOVE)).width()
}

/// Description of the place under the pointer, as the panel gives it.
fn under_pointer(app: Scene<'_>) -> Option<String> {
    let at = app.pointer.filter(|_| app.overlay.is_none())?;
    panels::told_at(app, app.areas().body, at)
}

/// Width of a hint in columns.
fn width_of((binding, shown): &(&Binding, String)) -> usize {
    3 + Span::raw(shown.as_str()).width() + 1 + binding.label.chars().count()
}

/// The hints that fit.
fn hints(app: Scene<'_>, width: u16) -> Vec<(&'static Binding, String)> {
    // While there are matches, their keys mean nothing else.
    let has_matches = app.filter_here().is_some() || app.search_here().is_some();
    let next_match = has_matches.then(|| app.keys.key(Action::NextMatch));
    // A panel that waits for something to show has nothing for keys of its own to change.
    let is_empty = app.subject().is_none() && !matches!(app.panel, Panel::History | Panel::Story);
    let is_idle = |binding: &Binding| is_empty && !binding.panels.is_empty();
    let enabled: Vec<(&'static Binding, String)> = app
        .keys
        .footer_of(app.panel)
        .filter(|(binding, _)| !is_idle(binding))
        .filter(|(binding, _)| app.lacks(binding.needs).is_none())
        .filter(|(_, shown)| next_match.as_deref() != Some(shown))
        .map(|(binding, shown)| (binding, shown.to_owned()))
        .collect();
    // These help a user who is lost, so they always stay; the others get the remaining room.
    let is_kept = |hint: &(&Binding, String)| matches!(hint.0.action, Action::Help | Action::Quit);
    let kept: usize = enabled
        .iter()
        .filter(|hint| is_kept(hint))
        .map(width_of)
        .sum();
    let mut room = (width as usize).saturating_sub(lead_width(app, width) + 1 + kept);
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
    let mut start = line.x as usize + lead_width(app, line.width);
    hints(app, line.width).into_iter().find_map(|hint| {
        let end = start + width_of(&hint);
        // The gap between two hints belongs to neither.
        let is_hit = (start + 3..end).contains(&(column as usize));
        start = end;
        is_hit.then_some(hint.0.action)
    })
}
