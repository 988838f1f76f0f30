//! A history in lines of text.

use std::collections::BTreeMap;

use attnscope_checkpoint::counted::counted;
use attnscope_checks::stats::{STATISTICS, index_of};
use attnscope_report::digits;
use attnscope_spec::Place;

use super::events::{Event, events};
use super::judge::{Finding, change_of};
use super::lines::LINES;
use super::trend::Trend;
use super::value::{History, Origin};

/// Returns a statistic's title on screens.
fn title(id: &'static str) -> &'static str {
    index_of(id).map_or(id, |idx| STATISTICS[idx].title)
}

/// Returns one line about the whole history: its source and how many steps were read.
pub fn heading(history: &History) -> String {
    let (n_read, n) = history.progress();
    let grid = history.grid();
    let ends = match (history.records().first(), history.records().last()) {
        (Some(first), Some(last)) if n > 1 => format!(" · {} … {}", first.label(), last.label()),
        (Some(only), _) => format!(" · {}", only.label()),
        _ => String::new(),
    };
    let of = if n_read == n {
        String::new()
    } else {
        format!("{n_read} of ")
    };
    let what = match history.origin {
        Origin::Checkpoints => "checkpoint",
        Origin::Log => "record",
    };
    let rows = match history.sampled_rows {
        Some(rows) if rows > 0 => format!(" · {} a head", counted(rows as usize, "row")),
        _ => String::new(),
    };
    format!(
        "{} · {of}{}{ends} · {}{rows}",
        history.name,
        counted(n, what),
        grid.size(),
    )
}

/// Describes the beginning of a finding in one line: `entropy-collapse L0H3 begins at step 250 (0.817 → 0.036)`. `others` are
/// the other places of its group.
pub fn beginning(history: &History, finding: &Finding, others: &[Place]) -> String {
    let label = |idx: usize| history.records()[idx].label();
    let to = digits(finding.to);
    let moved = match (&finding.changed, finding.from) {
        (Some(words), _) => words.clone(),
        (None, Some((since, from))) if since + 1 == finding.begin => {
            format!("{} → {to}", digits(from))
        }
        (None, Some((since, from))) => format!("{} at {} → {to}", digits(from), label(since)),
        (None, None) if finding.to.is_nan() => String::new(),
        (None, None) => to,
    };
    let moved = match moved.as_str() {
        "" => moved,
        _ => format!(" ({moved})"),
    };
    let place = if finding.place == Place::MODEL {
        String::new()
    } else {
        format!(" {}", finding.place)
    };
    let others = match others.len() {
        0 => String::new(),
        n if n <= 4 => {
            let names: Vec<String> = others.iter().map(Place::to_string).collect();
            format!(", {}", names.join(", "))
        }
        n if finding.place.head_idx.is_some() => format!(" and {n} more heads of the layer,"),
        n => format!(" and {n} more layers,"),
    };
    let ended = match finding.end {
        Some(end) => format!(", ends at {}", label(end)),
        None => String::new(),
    };
    let begins = if others.is_empty() { "begins" } else { "begin" };
    format!(
        "{}{place}{others} {begins} at {}{moved}{ended}",
        finding.check,
        label(finding.begin)
    )
}

/// Returns further lines about a finding.
pub fn reasons(history: &History, finding: &Finding) -> Vec<String> {
    let label = |idx: usize| history.records()[idx].label();
    let has_line = LINES.iter().any(|line| line.check == finding.check);
    let limit = if has_line {
        format!(", threshold {}", digits(finding.threshold))
    } else {
        String::new()
    };
    // A fault that no statistic measures has its reason alone.
    let measured = if finding.changed.is_some() || finding.to.is_nan() && finding.from.is_none() {
        String::new()
    } else {
        format!("{}{limit}; ", title(finding.statistic))
    };
    let mut lines = vec![format!("{measured}{}", finding.why)];
    if let Some((at, statistic)) = finding.warned {
        lines.push(format!(
            "{} had a trend towards its threshold from {} on",
            title(statistic),
            label(at)
        ));
    }
    if let Some(change) = change_of(history, finding) {
        lines.push(format!(
            "level shift at {} (p < {})",
            label(change.at),
            change.false_alarms
        ));
    }
    lines.push(format!("→ {}", finding.advice));
    lines
}

/// Describes a trend in one sentence: `max |score| of L5H2 grows 3.1 % per 100 steps; reaches 100 at step 4300 (4100 … 4600)`.
pub fn on_its_way(history: &History, trend: &Trend) -> String {
    let (unit, per) = if history.has_steps() {
        ("step", "steps")
    } else {
        ("checkpoint", "checkpoints")
    };
    let span = span_of(history, trend);
    let moves = if trend.is_ratio {
        let percent = 100.0 * ((1.0 + trend.slope).powf(span) - 1.0);
        let verb = if percent >= 0.0 { "grows" } else { "falls" };
        format!("{verb} {} %", digits(percent.abs()))
    } else {
        let change = trend.slope * span;
        let verb = if change >= 0.0 {
            "grows by"
        } else {
            "falls by"
        };
        format!("{verb} {}", digits(change.abs()))
    };
    let every = match span {
        1.0 => format!("per {unit}"),
        span => format!("per {span} {per}"),
    };
    let end = |step: f64| {
        if step.is_finite() {
            format!("{}", step.round())
        } else {
            "later".to_owned()
        }
    };
    format!(
        "{} of {} {moves} {every}; reaches {} at {unit} {} ({} … {})",
        title(trend.statistic),
        trend.place,
        digits(trend.threshold),
        end(trend.crosses),
        end(trend.between.0),
        end(trend.between.1),
    )
}

/// Returns the power of ten steps used as the unit of a rate: about a third of the fitted range.
fn span_of(history: &History, trend: &Trend) -> f64 {
    let length = history.x(trend.at) - history.x(trend.since);
    10f64.powf((length / 3.0).max(1.0).log10().floor())
}

/// Returns everything as text, for a command without a screen.
pub fn told(history: &History, findings: &[Finding], trends: &[Trend]) -> String {
    let mut text = heading(history);
    text.push('\n');
    for (loss, curve) in history.losses().named() {
        let n = counted(curve.len(), "value");
        text += &format!(
            "logged   {loss} loss: {}, {n} ({})\n",
            curve.name, curve.logger
        );
    }
    for note in &history.notes {
        text += &format!("note     {note}\n");
    }
    for record in history.records() {
        if let Some(reason) = record.state.reason() {
            text += &format!("{:<8} {}: {reason}\n", record.state.label(), record.label());
        }
    }
    let mut events = events(findings);
    events.sort_by_key(|event| event.first().begin);
    for event in &events {
        text += &of_event(history, event);
    }
    for trend in trends {
        text += &format!("{:<8} {}\n", "trend", on_its_way(history, trend));
    }
    if findings.is_empty() && trends.is_empty() {
        text += "no findings, and no trend towards one\n";
    }
    text
}

/// Returns an event in lines: what happened, where each check found it, and the reasons of its worst finding.
pub fn of_event(history: &History, event: &Event<'_>) -> String {
    let mut lines = event.lists(history);
    if event.is_collapse() {
        let worst = event.groups.iter().find(|(of, _)| of == &event.worst());
        lines.extend(worst.map(|(finding, others)| beginning(history, finding, others)));
    }
    lines.extend(reasons(history, event.worst()));
    let mut text = format!("{:<8} {}\n", event.severity().label(), event.line(history));
    for line in lines {
        text += &format!("{:<8} {line}\n", "");
    }
    text
}

/// Groups findings of one check that begin at one step, in heads of one layer or in whole layers: the first of them and the places
/// of the others.
pub fn grouped(findings: &[Finding]) -> Vec<(&Finding, Vec<Place>)> {
    let mut groups: Vec<(&Finding, Vec<Place>)> = Vec::new();
    let mut known = BTreeMap::new();
    for finding in findings {
        let place = finding.place;
        let is_head = place.head_idx.is_some();
        let key = (
            (finding.check, finding.severity, finding.begin, finding.end),
            (&finding.changed, finding.statistic),
            (place.stack, place.layer_idx.filter(|_| is_head), is_head),
        );
        match known.get(&key) {
            Some(nth) => {
                let (_, others): &mut (&Finding, Vec<Place>) = &mut groups[*nth];
                others.push(place);
            }
            None => {
                known.insert(key, groups.len());
                groups.push((finding, Vec::new()));
            }
        }
    }
    groups
}
