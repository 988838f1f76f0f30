//! How one line of the Checks panel is drawn.

use std::cmp::Ordering;

use attnscope_checks::{Finding, Severity};
use attnscope_report::Group;
use attnscope_terminal::theme::Theme;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::checks_counts::{glyph, words};
use super::checks_list::{Entry, Lines};
use crate::figure::{bar, figure, fit};
use crate::state::scene::Scene;
use crate::state::views::Sides;

/// Columns of a finding's bar, and how many times its threshold fills it.
const BAR: usize = 10;
const LEAST_BAR: usize = 3;
const FULL_BAR: f64 = 100.0;
/// Columns of a check's name and of a place.
const NAME: usize = 18;
const PLACE: usize = 24;
/// Columns of the label for which of two runs have a finding.
const SIDES: usize = 12;

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

/// Draws the line of an index; the first line of a window names its check even below the line of its group.
pub fn line(
    app: Scene<'_>,
    lines: &Lines<'_>,
    idx: usize,
    is_first: bool,
    width: usize,
) -> Line<'static> {
    let theme = &app.theme;
    let is_selected = lines.shown.get(lines.at) == Some(&idx);
    let base = if is_selected {
        theme.selected()
    } else {
        Style::new()
    };
    let entry = &lines.all[idx];
    let spans = match entry {
        Entry::Check(check, verdict) => {
            let glyph = glyph(verdict);
            // Below findings of two runs, names stand in one column.
            let n_sides = if lines.has_sides() { SIDES } else { 0 };
            let why = fit(&verdict.why, width.saturating_sub(4 + n_sides + NAME + 17));
            vec![
                Span::styled(format!(" {glyph} {:n_sides$}", ""), base),
                Span::styled(fit(check.id, NAME), base),
                Span::styled(format!(" {}", fit(words(verdict.status), 16)), theme.dim()),
                Span::styled(why, theme.dim()),
            ]
        }
        Entry::Group {
            group, fold, sides, ..
        } => {
            let fold = if app.checks_view.unfolded.contains(fold) {
                "▾"
            } else {
                "▸"
            };
            let (name, place) = (group.worst.check, |room| place_of_group(group, room));
            finding_spans(app, (group.worst, *sides), (fold, name), place, base, width)
        }
        Entry::Finding {
            finding,
            sides,
            group_idx,
        } => {
            let is_named = is_first || !group_idx.is_some_and(|idx| lines.shown.contains(&idx));
            let name = if is_named { finding.check } else { "" };
            let place = |_| match finding.place.to_string() {
                empty if empty.is_empty() => "whole model".to_owned(),
                place => place,
            };
            finding_spans(app, (finding, *sides), (" ", name), place, base, width)
        }
    };
    Line::from(spans)
}

/// The places of a group in some columns: how many there are, and the worst.
fn place_of_group(group: &Group<'_, Finding>, room: usize) -> String {
    let n = match group.counted() {
        Some(n) => n,
        None => format!("{} times", group.all.len()),
    };
    let worst = group.worst.place;
    let worst = match (worst.layer_idx, worst.head_idx) {
        (None, _) => String::new(),
        _ => format!(", worst {}", head_of(group.worst)),
    };
    if n.chars().count() + worst.chars().count() <= room {
        n + &worst
    } else {
        n
    }
}

/// The layer or the head of a finding, without query and key.
fn head_of(finding: &Finding) -> String {
    let place = attnscope_spec::Place {
        query_idx: None,
        key_idx: None,
        ..finding.place
    };
    place.to_string()
}

fn finding_spans(
    app: Scene<'_>,
    (finding, sides): (&Finding, Option<Sides>),
    (fold, name): (&str, &str),
    place: impl Fn(usize) -> String,
    base: Style,
    width: usize,
) -> Vec<Span<'static>> {
    let theme = &app.theme;
    let style = style_of(theme, finding.severity);
    let n_sides = if sides.is_some() { SIDES } else { 0 };
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
    let sides = match (sides, labels) {
        (Some(Sides::OnlyA), Some([a, _])) => fit(&format!("only {a}"), SIDES),
        (Some(Sides::OnlyB), Some([_, b])) => fit(&format!("only {b}"), SIDES),
        (Some(Sides::Both), _) => fit("both", SIDES),
        _ => String::new(),
    };
    // A selected line is one block.
    let is_selected = base != Style::new();
    let mark = mark(finding.severity);
    vec![
        Span::styled(fold.to_owned(), base),
        Span::styled(format!("{mark} "), if is_selected { base } else { style }),
        Span::styled(sides, theme.accent()),
        Span::styled(fit(name, NAME), base),
        Span::styled(format!(" {}", fit(&place(n_place - 1), n_place - 1)), base),
        Span::raw("▕"),
        Span::styled(fit(&bar(excess(finding), n_bar), n_bar), style),
        Span::raw("▏"),
        Span::raw(format!(" {}", fit(&compared(finding), 19))),
        Span::styled(evidence, theme.dim()),
    ]
}

/// Length of the bar: from the threshold to a hundred times the threshold, on a logarithmic scale.
fn excess(finding: &Finding) -> f32 {
    let excess = finding.excess();
    if !excess.is_finite() {
        return 1.0;
    }
    ((excess.max(1.0).ln() / FULL_BAR.ln()) as f32).clamp(0.05, 1.0)
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

pub fn plain(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value => figure(value, 0),
    }
}
