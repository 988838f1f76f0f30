//! Findings by severity and layer, each with how far past its threshold it is; below them, details of the selected line.

use std::cmp::Ordering;

use attnscope_checkpoint::counted::counted;
use attnscope_checks::{Check, Finding, Influence, Probed, Severity, Verdict, page};
use attnscope_report::one_line;
use attnscope_run::{Judgement, Pyramid, Subject};
use attnscope_terminal::theme::Theme;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::checks_counts::{glyph, rank, title, words};
use super::checks_sides::{Sides, both_findings};
use crate::figure::{bar, cut, figure, fit, wrapped};
use crate::state::app::App;
use crate::state::filter::{List, Row};
use crate::state::find::{Item, Target};
use crate::state::keys::Action;
use crate::state::scene::Scene;
use crate::widgets::frame::{framed, waiting};
use crate::widgets::heatmap::Scale;
use crate::widgets::hidden::Hidden;
use crate::widgets::whole_map::{WholeMap, draw_whole};

/// Columns of a finding's bar, and how many times its threshold fills it.
const BAR: usize = 10;
const LEAST_BAR: usize = 3;
const FULL_BAR: f64 = 100.0;
/// Columns of a check's name and of a place.
const NAME: usize = 18;
const PLACE: usize = 22;
/// Columns of the label for which of two runs have a finding.
const SIDES: usize = 12;
/// Columns of the labels next to a finding's parts.
const LABEL: usize = 11;
/// Columns of the influence map's box.
const MAP: u16 = 40;

/// One line of the list.
enum Entry<'a> {
    Finding(&'a Finding),
    /// A finding of A, of B or of both, when the screen shows the difference.
    Side(&'a Finding, Sides),
    /// A check without findings.
    Check(&'static Check, &'a Verdict),
}

fn judgement(app: Scene<'_>) -> Option<&Judgement> {
    app.run()?.judgement.as_deref()
}

/// Entries of the list: findings, then checks that were not run, then the other checks without findings.
fn entries(app: Scene<'_>) -> Vec<Entry<'_>> {
    let both = both_findings(app).map(|both| {
        let entry = |(finding, sides)| Entry::Side(finding, sides);
        both.into_iter().map(entry).collect()
    });
    let own = || app.findings().iter().map(Entry::Finding).collect();
    let mut entries: Vec<Entry<'_>> = both.unwrap_or_else(own);
    let Some(judgement) = judgement(app) else {
        return entries;
    };
    let mut quiet: Vec<(&'static Check, &Verdict)> = judgement
        .verdicts
        .iter()
        .filter(|(_, verdict)| verdict.findings.is_empty())
        .map(|(check, verdict)| (*check, verdict))
        .collect();
    quiet.sort_by_key(|(_, verdict)| rank(verdict));
    entries.extend(
        quiet
            .into_iter()
            .map(|(check, verdict)| Entry::Check(check, verdict)),
    );
    entries
}

/// Findings and checks as the palette lists them.
pub fn palette_items(app: Scene<'_>) -> Vec<Item> {
    let of = |(idx, entry): (usize, &Entry<'_>)| match entry {
        Entry::Finding(finding) | Entry::Side(finding, _) => Item {
            about: finding.evidence.clone(),
            ..Item::new(
                format!("{} {}", finding.check, finding.place),
                "finding",
                Target::Finding(idx),
            )
        },
        Entry::Check(check, verdict) => Item {
            about: format!("{}: {}", words(verdict.status), verdict.why),
            ..Item::new(check.id, "check", Target::Finding(idx))
        },
    };
    entries(app).iter().enumerate().map(of).collect()
}

/// The lines as they are searched: check, place and severity, or what became of the check.
pub fn rows(app: Scene<'_>) -> Vec<Row> {
    let text = |entry: &Entry<'_>| match entry {
        Entry::Finding(finding) | Entry::Side(finding, _) => {
            let severity = finding.severity.label();
            format!("{} {} {severity}", finding.check, finding.place)
        }
        Entry::Check(check, verdict) => format!("{} {}", check.id, words(verdict.status)),
    };
    let entries = entries(app);
    let texts = entries.iter().map(text).enumerate();
    texts.map(|(key, text)| Row { key, text }).collect()
}

/// Index of the first line about a check.
pub fn line_of(app: Scene<'_>, id: &str) -> Option<usize> {
    entries(app).iter().position(|entry| match entry {
        Entry::Finding(finding) | Entry::Side(finding, _) => finding.check == id,
        Entry::Check(check, _) => check.id == id,
    })
}

pub fn n_lines(app: Scene<'_>) -> usize {
    entries(app).len()
}

fn selected(app: Scene<'_>) -> Option<Entry<'_>> {
    let mut entries = entries(app);
    let at = app
        .checks_view
        .line_idx
        .min(entries.len().saturating_sub(1));
    (!entries.is_empty()).then(|| entries.swap_remove(at))
}

pub fn selected_finding(app: Scene<'_>) -> Option<&Finding> {
    match selected(app)? {
        Entry::Finding(finding) | Entry::Side(finding, _) => Some(finding),
        Entry::Check(..) => None,
    }
}

pub fn selected_check(app: Scene<'_>) -> Option<&'static Check> {
    match selected(app)? {
        Entry::Finding(finding) | Entry::Side(finding, _) => attnscope_checks::find(finding.check),
        Entry::Check(check, _) => Some(check),
    }
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
    let entries = entries(app);
    let n_shown = inside.height as usize;
    let at = app
        .checks_view
        .line_idx
        .min(entries.len().saturating_sub(1));
    let shown = app.visible(List::Findings, entries.len(), at, n_shown);
    let mut lines: Vec<Line<'static>> = shown
        .iter()
        .map(|idx| line(app, &entries[*idx], *idx == at, inside.width as usize))
        .collect();
    if lines.is_empty() && !entries.is_empty() {
        lines.push(Line::styled(
            " no finding and no check matches",
            app.theme.dim(),
        ));
    }
    frame.render_widget(Paragraph::new(lines), inside);
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

/// A glyph for each severity, to tell them apart without colour.
pub fn mark(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "✖",
        Severity::Warning => "!",
        Severity::Info => "i",
    }
}

pub fn style_of(theme: &Theme, severity: Severity) -> Style {
    match severity {
        Severity::Error => theme.bad(),
        Severity::Warning => theme.notable(),
        Severity::Info => theme.dim(),
    }
}

fn line(app: Scene<'_>, entry: &Entry<'_>, is_selected: bool, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let base = if is_selected {
        theme.selected()
    } else {
        Style::new()
    };
    let spans = match entry {
        Entry::Finding(finding) | Entry::Side(finding, _) => {
            let style = style_of(theme, finding.severity);
            let against = compared(finding);
            let place = match finding.place.to_string() {
                empty if empty.is_empty() => "whole model".to_owned(),
                place => place,
            };
            let n_sides = if matches!(entry, Entry::Side(..)) {
                SIDES
            } else {
                0
            };
            let used = 4 + n_sides + NAME + PLACE + BAR + 3 + 20;
            let room = width.saturating_sub(used);
            // What was measured must not be cut: the bar gives way first, then the place.
            let over = used.saturating_sub(width);
            let n_bar = BAR.saturating_sub(over).max(LEAST_BAR);
            let n_place = PLACE - over.saturating_sub(BAR - n_bar).min(PLACE / 3);
            // In very little room, leave the evidence to the box below.
            let evidence = if room >= 16 {
                fit(&finding.evidence, room)
            } else {
                String::new()
            };
            let labels = app.runs.b.as_ref().map(|second| second.way.labels());
            let sides = match (entry, labels) {
                (Entry::Side(_, Sides::OnlyA), Some([a, _])) => format!("only {a}"),
                (Entry::Side(_, Sides::OnlyB), Some([_, b])) => format!("only {b}"),
                (Entry::Side(_, Sides::Both), _) => "both".to_owned(),
                _ => String::new(),
            };
            let sides = if sides.is_empty() {
                sides
            } else {
                fit(&sides, SIDES)
            };
            vec![
                Span::styled(
                    format!(" {} ", mark(finding.severity)),
                    if is_selected { base } else { style },
                ),
                Span::styled(sides, theme.accent()),
                Span::styled(fit(finding.check, NAME), base),
                Span::styled(format!(" {}", fit(&place, n_place - 1)), base),
                Span::raw("▕"),
                Span::styled(fit(&bar(excess(finding), n_bar), n_bar), style),
                Span::raw("▏"),
                Span::raw(format!(" {}", fit(&against, 19))),
                Span::styled(evidence, theme.dim()),
            ]
        }
        Entry::Check(check, verdict) => {
            let glyph = glyph(verdict);
            let why = fit(&verdict.why, width.saturating_sub(4 + NAME + 17));
            vec![
                Span::styled(format!(" {glyph} "), base),
                Span::styled(fit(check.id, NAME), base),
                Span::styled(format!(" {}", fit(words(verdict.status), 16)), theme.dim()),
                Span::styled(why, theme.dim()),
            ]
        }
    };
    Line::from(spans)
}

/// Length of the bar: from the threshold to a hundred times the threshold, on a logarithmic scale.
fn excess(finding: &Finding) -> f32 {
    let excess = finding.excess();
    if !excess.is_finite() {
        return 1.0;
    }
    ((excess.max(1.0).ln() / FULL_BAR.ln()) as f32).clamp(0.05, 1.0)
}

fn draw_detail(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let theme = &app.theme;
    let Some(entry) = selected(app) else {
        framed(frame, area, app, "");
        return;
    };
    let mut parts: Vec<(&str, String)> = Vec::new();
    let check = match &entry {
        Entry::Finding(finding) | Entry::Side(finding, _) => {
            let unit = match finding.unit {
                "" => String::new(),
                unit => format!(" {unit}"),
            };
            parts.push(("seen", finding.evidence.clone()));
            let [value, threshold] = [finding.value, finding.threshold].map(plain);
            parts.push(("measured", format!("{value}{unit} (threshold {threshold})")));
            parts.push(("do", finding.advice.clone()));
            attnscope_checks::find(finding.check)
        }
        Entry::Check(check, verdict) => {
            let status = words(verdict.status);
            parts.push(("says", format!("{status}: {}", verdict.why)));
            if let Some(tester) = verdict.would_test {
                let target = app.labels()[0];
                parts.push(("tests it", tester.command(target, check.id)));
            }
            Some(*check)
        }
    };
    if let Some(check) = check {
        parts.push(("it matters", why_it_matters(check)));
    }
    let mut title = match &entry {
        Entry::Finding(finding) | Entry::Side(finding, _) => {
            format!(" {} · {} ", finding.check, finding.severity.label())
        }
        Entry::Check(check, _) => format!(" {} ", check.id),
    };
    let inside = ratatui::widgets::Block::bordered().inner(area);
    let width = (inside.width as usize).saturating_sub(LABEL + 1);
    let mut lines = Vec::new();
    for (label, text) in parts {
        for (nth, line) in wrapped(&text, width).into_iter().enumerate() {
            let label = if nth == 0 { label } else { "" };
            lines.push(Line::from(vec![
                Span::styled(format!(" {}", fit(label, LABEL)), theme.dim()),
                Span::raw(line),
            ]));
        }
    }
    let n_left = lines.len().saturating_sub(inside.height as usize);
    if n_left > 0 {
        let lines = counted(n_left, "more line");
        title += &format!("· {lines}: {} ", app.keys.key(Action::OpenPage));
    }
    framed(frame, area, app, title);
    frame.render_widget(Paragraph::new(lines), inside);
}

/// Value and threshold, and which of them is larger.
fn compared(finding: &Finding) -> String {
    let [value, threshold] = [finding.value, finding.threshold].map(plain);
    let sign = match finding.value.partial_cmp(&finding.threshold) {
        Some(Ordering::Less) => "<",
        Some(Ordering::Greater) => ">",
        Some(Ordering::Equal) => "=",
        None => "vs",
    };
    format!("{value} {sign} {threshold}")
}

fn plain(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value => figure(value, 0),
    }
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

/// Selects the line under the pointer.
pub fn click(app: &mut App, area: Rect, (column, row): (u16, u16)) {
    let list = parts(app.scene(), area).list;
    let inside = lines_inside(app.scene(), list);
    if !inside.contains(Position::new(column, row)) {
        return;
    }
    let (n, n_shown) = (n_lines(app.scene()), inside.height as usize);
    let at = app.checks_view.line_idx.min(n.saturating_sub(1));
    let shown = app.visible(List::Findings, n, at, n_shown);
    if let Some(line_idx) = shown.get((row - inside.y) as usize) {
        app.checks_view.line_idx = *line_idx;
    }
}
