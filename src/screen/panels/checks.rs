//! Findings by severity and layer, each with how far past its threshold it is; below them, details of the selected line.

use attnscope_checkpoint::counted::counted;
use attnscope_checks::{Check, Influence, Probed, page};
use attnscope_report::one_line;
use attnscope_run::{Judgement, Pyramid, Subject};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::checks_counts::{title, words};
use super::checks_line::{line, plain};
use super::checks_list::{Entry, lines, selected_check};
use crate::figure::{cut, fit, wrapped};
use crate::state::app::App;
use crate::state::filter::{List, window};
use crate::state::keys::Action;
use crate::state::scene::Scene;
use crate::widgets::frame::{framed, waiting};
use crate::widgets::heatmap::Scale;
use crate::widgets::hidden::Hidden;
use crate::widgets::whole_map::{WholeMap, draw_whole};

/// Columns of the labels next to a finding's parts.
const LABEL: usize = 11;
/// Columns of the influence map's box.
const MAP: u16 = 40;

pub fn judgement(app: Scene<'_>) -> Option<&Judgement> {
    app.run()?.judgement.as_deref()
}

/// Layout of the panel.
struct Parts {
    list: Rect,
    detail: Rect,
    /// Next to the details, if the finding has a map and it fits.
    map: Option<Rect>,
}

fn parts(app: Scene<'_>, area: Rect) -> Parts {
    let n_detail = (area.height * 2 / 5).clamp(9, 18);
    let [list, below] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(n_detail)]).areas(area);
    let has_map = influence(app).is_some() && below.width >= 2 * MAP;
    let mut parts = if has_map {
        let [detail, map] =
            Layout::horizontal([Constraint::Min(0), Constraint::Length(MAP)]).areas(below);
        Parts {
            list,
            detail,
            map: Some(map),
        }
    } else {
        Parts {
            list,
            detail: below,
            map: None,
        }
    };
    let mut panes = vec![&mut parts.list, &mut parts.detail];
    panes.extend(&mut parts.map);
    app.arrange(area, &mut panes);
    parts
}

/// The boxes of the panel.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    let parts = parts(app, area);
    let both = [parts.list, parts.detail].into_iter();
    both.chain(parts.map).collect()
}

/// The influence map, if the selected line has one.
pub fn influence(app: Scene<'_>) -> Option<&Influence> {
    let is_shown = selected_check(app).is_some_and(|check| check.id == "future-leak");
    match &judgement(app)?.probes.future {
        Probed::Ran(probe) if is_shown && !probe.influence.changed.is_empty() => {
            Some(&probe.influence)
        }
        _ => None,
    }
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let parts = parts(app, area);
    let room = (area.width as usize).saturating_sub(4);
    let note = app.filter_note(List::Findings);
    let title = cut(&(title(app, room.saturating_sub(note.len())) + &note), room);
    framed(frame, parts.list, app, title);
    let inside = lines_inside(app, parts.list);
    draw_settings(frame, parts.list, app);
    let Some(run) = app.run() else {
        waiting(frame, inside, app);
        framed(frame, parts.detail, app, "");
        return;
    };
    if judgement(app).is_none() {
        let text = match &run.unjudged {
            _ if run.is_running() => " the checks start when the run ends …".to_owned(),
            _ if run.is_checking() => " checks running …".to_owned(),
            Some(reason) => format!(" not checked: {reason}. Press e to run again."),
            None => {
                " the run did not finish, so nothing was checked. Press e to run again.".to_owned()
            }
        };
        frame.render_widget(Line::styled(text, app.theme.dim()), inside);
        framed(frame, parts.detail, app, "");
        return;
    }
    let lines = lines(app);
    let window = window(lines.shown.len(), lines.at, inside.height as usize);
    let first = window.start;
    let mut drawn: Vec<Line<'static>> = window
        .map(|nth| {
            line(
                app,
                &lines,
                lines.shown[nth],
                nth == first,
                inside.width as usize,
            )
        })
        .collect();
    if drawn.is_empty() && !lines.all.is_empty() {
        drawn.push(Line::styled(
            " no finding and no check matches",
            app.theme.dim(),
        ));
    }
    frame.render_widget(Paragraph::new(drawn), inside);
    draw_detail(frame, parts.detail, app);
    let map = parts.map.filter(|area| !area.is_empty());
    if let (Some(area), Some(influence)) = (map, influence(app)) {
        draw_influence(frame, area, app, influence);
    }
}

/// The inside of the list's frame, without the line about how the checkpoint was read, if there is one.
fn lines_inside(app: Scene<'_>, list: Rect) -> Rect {
    let inside = ratatui::widgets::Block::bordered().inner(list);
    let n_taken = u16::from(!remarks(app).is_empty());
    Rect {
        height: inside.height.saturating_sub(n_taken),
        ..inside
    }
}

fn remarks(app: Scene<'_>) -> Vec<String> {
    app.subject().map_or_else(Vec::new, Subject::remarks)
}

/// Draws the last line of the list: remarks on how the checkpoint was read, such as changes by a settings file next to it.
fn draw_settings(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let remarks = remarks(app);
    if remarks.is_empty() {
        return;
    }
    let said = remarks.join("; ");
    let inside = ratatui::widgets::Block::bordered().inner(area);
    let last = Rect {
        y: inside.bottom().saturating_sub(1),
        height: 1,
        ..inside
    };
    let text = cut(&one_line(&said), last.width.saturating_sub(2) as usize);
    let line = Line::styled(format!(" {text} "), app.theme.notable());
    frame.render_widget(line, last.intersection(inside));
}

/// What is known here of the selected line, in parts with their labels.
pub fn here(app: Scene<'_>) -> Vec<(&'static str, String)> {
    let mut parts = Vec::new();
    let lines = lines(app);
    let Some(entry) = lines.selected() else {
        return parts;
    };
    match entry {
        Entry::Group { group, .. } => {
            parts.push(("where", group.places()));
            parts.push(("seen", group.seen()));
            let (values, threshold) = (group.values(), group.threshold());
            parts.push(("measured", format!("{values} (threshold {threshold})")));
            parts.push(("do", group.worst.advice.clone()));
        }
        Entry::Finding { finding, .. } => {
            let unit = match finding.unit {
                "" => String::new(),
                unit => format!(" {unit}"),
            };
            parts.push(("seen", finding.evidence.clone()));
            let [value, threshold] = [finding.value, finding.threshold].map(plain);
            parts.push(("measured", format!("{value}{unit} (threshold {threshold})")));
            parts.push(("do", finding.advice.clone()));
        }
        Entry::Check(check, verdict) => {
            let status = words(verdict.status);
            parts.push(("says", format!("{status}: {}", verdict.why)));
            if let Some(tester) = verdict.would_test {
                let path = app.state().checkpoint_path();
                let target = path.map_or_else(
                    || "CHECKPOINT".to_owned(),
                    |path| path.display().to_string(),
                );
                parts.push(("tests it", tester.command(&target, check.id)));
            }
        }
    }
    parts
}

fn draw_detail(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let theme = &app.theme;
    let lines = lines(app);
    let Some(entry) = lines.selected() else {
        framed(frame, area, app, "");
        return;
    };
    let mut parts = here(app);
    if let Some(check) = selected_check(app) {
        parts.push(("it matters", why_it_matters(check)));
    }
    let mut title = match entry {
        Entry::Group { group, .. } => {
            let (check, severity) = (group.worst.check, group.worst.severity.label());
            let n = group.counted().map_or(String::new(), |n| format!("· {n} "));
            format!(" {check} · {severity} {n}")
        }
        Entry::Finding { finding, .. } => {
            let (check, severity) = (finding.check, finding.severity.label());
            match finding.place.to_string() {
                whole if whole.is_empty() => format!(" {check} · {severity} "),
                place => format!(" {check} · {severity} · {place} "),
            }
        }
        Entry::Check(check, _) => format!(" {} ", check.id),
    };
    let inside = ratatui::widgets::Block::bordered().inner(area);
    let width = (inside.width as usize).saturating_sub(LABEL + 1);
    let mut drawn = Vec::new();
    for (label, text) in parts {
        for (nth, line) in wrapped(&text, width).into_iter().enumerate() {
            let label = if nth == 0 { label } else { "" };
            drawn.push(Line::from(vec![
                Span::styled(format!(" {}", fit(label, LABEL)), theme.dim()),
                Span::raw(line),
            ]));
        }
    }
    let n_left = drawn.len().saturating_sub(inside.height as usize);
    if n_left > 0 {
        let more = counted(n_left, "more line");
        title += &format!("· {more}: {} ", app.keys.key(Action::OpenPage));
    }
    framed(frame, area, app, title);
    frame.render_widget(Paragraph::new(drawn), inside);
}

/// The part of a check's page that says why it matters, on one line.
fn why_it_matters(check: &Check) -> String {
    let page = page(check);
    let part = page.split("## Why it matters").nth(1).unwrap_or_default();
    let part = part.split("\n## ").next().unwrap_or_default();
    part.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Draws the influence map: changed positions against the positions whose output moved.
fn draw_influence(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, influence: &Influence) {
    let inside = framed(frame, area, app, " influence: changed ↓ moved → ");
    // Pool positions to the available columns; the few changed ones keep their rows.
    let most = influence.changed.len().max(inside.width as usize);
    let map = Pyramid::new(influence.map(most));
    let largest = map.level(usize::MAX).cells[0];
    let whole = WholeMap {
        theme: &app.theme,
        values: &map,
        hidden: Hidden::Nothing,
        scale: Scale {
            low: 0.0,
            high: if largest > 0.0 { largest } else { 1.0 },
            is_log: false,
        },
        crosshair: None,
        margins: None,
    };
    draw_whole(frame, inside, &whole);
}

/// Selects the line under the pointer; the second of two clicks on a group unfolds it or folds it.
pub fn click(app: &mut App, area: Rect, (column, row): (u16, u16)) {
    let list = parts(app.scene(), area).list;
    let inside = lines_inside(app.scene(), list);
    if !inside.contains(Position::new(column, row)) {
        return;
    }
    let lines = lines(app.scene());
    let mut window = window(lines.shown.len(), lines.at, inside.height as usize);
    let Some(nth) = window.nth((row - inside.y) as usize) else {
        return;
    };
    let (is_again, line_idx) = (nth == lines.at, lines.shown[nth]);
    app.checks_view.line_idx = line_idx;
    if is_again {
        app.toggle_fold();
    }
}
