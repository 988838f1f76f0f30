//! What happens in a training, as a list: events, the worst first, with what is known of the chosen one; then trends.

use attnscope_checks::Severity;
use attnscope_history::{Event, beginning, on_its_way, reasons};
use ratatui::style::Style;
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use crate::figure::{cut_words, fit, wrapped};
use crate::state::history_view::{HistoryView, Reading};
use crate::state::scene::Scene;

/// The lines of the list, at most as many as there is room for.
pub fn lines(view: &HistoryView, app: Scene<'_>, width: usize, room: usize) -> Vec<Line<'static>> {
    let (theme, history) = (&app.theme, &view.history);
    let (events, trends) = (view.events(), view.judge.trends());
    let n = events.len() + trends.len();
    if n == 0 {
        let text = match view.reading {
            Reading::Going => "no findings in the steps read so far",
            _ => "no findings, and no trend towards one",
        };
        return vec![Line::styled(text, theme.dim())];
    }
    let chosen = view
        .onset
        .and_then(|nth| chosen(&events, nth, trends.len()));
    let collapse = events.iter().position(Event::is_collapse);
    let (details, advice) = match chosen {
        Some((nth, group)) => events
            .get(nth)
            .map(|event| of_chosen(view, app, (event, group), width)),
        None => collapse.map(|nth| of_event(view, app, &events[nth], width)),
    }
    .unwrap_or_default();
    let chosen = chosen.map(|(nth, _)| nth);
    // A chosen event keeps half of the room for its details; one that is not chosen gets what is left.
    let n_all = details.len() + advice.len();
    let n_kept = match chosen {
        Some(_) => n_all.min(room / 2),
        None => n_all.min(room.saturating_sub(n)),
    };
    let shown = parts_shown((events.len(), trends.len()), chosen, room - n_kept);
    let n_details = room.saturating_sub(shown.len()).min(n_all);
    // If lines are dropped, the first detail and what to do are kept before the rest.
    let for_advice = n_details.saturating_sub(usize::from(!details.is_empty()));
    let for_advice = for_advice.max(1).min(n_details);
    let mut advice = advice;
    if advice.len() > for_advice {
        let rest = advice.split_off(for_advice.saturating_sub(1));
        let rest: Vec<&str> = rest.iter().map(|line| line.trim_start()).collect();
        advice.extend((for_advice > 0).then(|| cut_words(&format!("  {}", rest.join(" ")), width)));
    }
    let n_details = n_details - advice.len();
    let mut details = details;
    let is_cut = details.len() > n_details;
    details.truncate(n_details);
    if let Some((last, _)) = details.last_mut().filter(|_| is_cut) {
        *last = cut_words(&format!("{last} …"), width);
    }
    details.extend(advice.into_iter().map(|line| (line, theme.dim())));
    let details = details.into_iter();
    let mut details: Vec<Line<'static>> = details
        .map(|(line, style)| Line::styled(line, style))
        .collect();
    let mut lines = Vec::new();
    for part in shown {
        let nth = match part {
            Part::Entry(nth) => nth,
            Part::Left(n) => {
                let text = format!("… {n} more: f goes through all");
                lines.push(Line::styled(cut_words(&text, width), theme.dim()));
                continue;
            }
        };
        let (sign, style, text) = match events.get(nth) {
            Some(event) => {
                let (sign, style) = look(event.severity(), app);
                (sign, style, event.line(history))
            }
            None => {
                let trend = &trends[nth - events.len()];
                ("↗", theme.notable(), on_its_way(history, trend))
            }
        };
        let text = cut_words(&format!("{sign} {text}"), width);
        lines.push(if chosen == Some(nth) {
            Line::styled(fit(&text, width), theme.selected())
        } else {
            Line::styled(text, style)
        });
        if Some(nth) == chosen.or(collapse) {
            lines.append(&mut details);
        }
    }
    lines
}

/// The entry that an onset belongs to, and the group within its event.
fn chosen(events: &[Event<'_>], onset: usize, n_trends: usize) -> Option<(usize, usize)> {
    let mut left = onset;
    for (nth, event) in events.iter().enumerate() {
        match left.checked_sub(event.groups.len()) {
            Some(rest) => left = rest,
            None => return Some((nth, left)),
        }
    }
    (left < n_trends).then_some((events.len() + left, 0))
}

/// What is known of an event, and the lines that say what to do.
type Details = (Vec<(String, Style)>, Vec<String>);

/// The last of some reasons, which says what to do, in lines of its own.
fn advice(reasons: &mut Vec<String>, width: usize) -> Vec<String> {
    indented(&reasons.pop().unwrap_or_default(), width)
}

/// A text in as many lines as it needs, indented, and further after the first.
fn indented(text: &str, width: usize) -> Vec<String> {
    if text.width() + 2 <= width {
        return vec![format!("  {text}")];
    }
    let lines = wrapped(text, width.saturating_sub(4).max(1)).into_iter();
    let lines = lines.enumerate().map(|(nth, line)| {
        let indent = if nth == 0 { "  " } else { "    " };
        format!("{indent}{line}")
    });
    lines.collect()
}

/// What is known of the chosen group of an event.
fn of_chosen(
    view: &HistoryView,
    app: Scene<'_>,
    (event, group): (&Event<'_>, usize),
    width: usize,
) -> Details {
    let history = &view.history;
    let (finding, others) = &event.groups[group];
    let mut lines = Vec::new();
    if event.is_collapse() {
        let (sign, style) = look(finding.severity, app);
        let nth = format!("{} of {}", group + 1, event.groups.len());
        let text = format!("  {sign} {nth}: {}", beginning(history, finding, others));
        lines.push((cut_words(&text, width), style));
    }
    let mut reasons = reasons(history, finding);
    let advice = advice(&mut reasons, width);
    let reasons = reasons.iter().flat_map(|line| indented(line, width));
    lines.extend(reasons.map(|line| (line, app.theme.dim())));
    (lines, advice)
}

/// Where each check found a collapse, and what to do.
fn of_event(view: &HistoryView, app: Scene<'_>, event: &Event<'_>, width: usize) -> Details {
    if !event.is_collapse() {
        return Details::default();
    }
    let advice = advice(&mut reasons(&view.history, event.worst()), width);
    let lists = event.lists(&view.history).into_iter();
    let lists = lists.map(|line| (cut_words(&format!("  {line}"), width), app.theme.dim()));
    (lists.collect(), advice)
}

fn look(severity: Severity, app: Scene<'_>) -> (&'static str, Style) {
    match severity {
        Severity::Error => ("✖", app.theme.bad()),
        Severity::Warning => ("!", app.theme.notable()),
        Severity::Info => ("○", app.theme.accent()),
    }
}

/// A line of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Entry(usize),
    /// The number of entries not shown.
    Left(usize),
}

/// The entries shown in limited room: the first ones, or those around the chosen one. Trends can still be stopped, so half of the
/// lines are for them.
fn parts_shown(
    (n_events, n_trends): (usize, usize),
    chosen: Option<usize>,
    room: usize,
) -> Vec<Part> {
    let n = n_events + n_trends;
    if n <= room {
        return (0..n).map(Part::Entry).collect();
    }
    let room = room.saturating_sub(1).max(1);
    let mut shown: Vec<usize> = match chosen.filter(|nth| *nth < n) {
        Some(nth) => {
            let first = nth.saturating_sub(room / 2).min(n - room);
            (first..first + room).collect()
        }
        None => {
            let for_trends = n_trends.min(room / 2);
            let first = 0..n_events.min(room - for_trends);
            let rest = room - first.len();
            first.chain(n_events..(n_events + rest).min(n)).collect()
        }
    };
    shown.truncate(room);
    let left = n - shown.len();
    let parts = shown.into_iter().map(Part::Entry);
    parts.chain([Part::Left(left)]).collect()
}
