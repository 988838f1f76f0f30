//! The page of a training: what begins at which step, the loss, and every head over the steps.

use std::io::{self, Write};

use attnscope_checkpoint::counted::counted;
use attnscope_checks::stats::{STATISTICS, Stat, Statistic};
use maud::{Markup, html};

use super::colour::Colours;
use super::shell;
use crate::history::{HistoryFinding, HistoryLayer, HistoryPoint, HistoryRecord, HistoryStep};
use crate::key_statistics::{cell, heading, of_heads};
use crate::verdict_text::figure;

/// Most steps shown of a long training: the first, the last, and others at even distances.
const MOST_STEPS: usize = 64;

/// The statistic whose table is coloured: comparable between texts of any length.
const COLOURED: Stat = Stat::EntropyRelative;

/// Writes the page of a training.
///
/// # Errors
/// When the target cannot be written.
pub fn write_history_page(history: &HistoryRecord, to: &mut impl Write) -> io::Result<()> {
    let read: Vec<&HistoryStep> = history
        .steps
        .iter()
        .filter(|step| !step.values.is_empty())
        .collect();
    let shown = spread(&read, MOST_STEPS);
    let n_heads: usize = history.layers.iter().map(|layer| layer.n_heads).sum();
    let body = html! {
        header {
            h1 { (history.name) }
            dl.facts {
                @for (name, n) in [("steps", history.steps.len()), ("layers", history.layers.len()), ("heads", n_heads)] {
                    div { dt { (name) } dd { (n) } }
                }
                div { dt { "read from" } dd { (history.origin) } }
            }
            @if !history.what_if.is_empty() {
                p.what-if { "What if: " (history.what_if.join(", ")) }
            }
            @for note in &history.notes { p.note { "Note: " (note) } }
        }
        main {
            (findings(history))
            @if !history.trends.is_empty() {
                section {
                    h2 { "On the way to a threshold" }
                    ul { @for trend in &history.trends { li { b { (trend.check) } " " (trend.text) } } }
                }
            }
            section {
                h2 { "Heads" }
                @if shown.is_empty() { p { "No step has statistics of heads." } }
                @else {
                    p.quiet {
                        "One row for each head, one column for each step"
                        @if shown.len() < read.len() {
                            " (" (shown.len()) " of " (counted(read.len(), "step")) ")"
                        }
                        ". A dash: the statistic is not known there."
                    }
                    @for (nth, idx) in of_heads().into_iter().filter(|idx| is_known(&shown, STATISTICS[*idx])).enumerate() {
                        (table(history, &shown, STATISTICS[idx], nth == 0))
                    }
                }
            }
            (steps(history))
        }
        footer { "attnscope " (env!("CARGO_PKG_VERSION")) " · history version " (history.version) }
    };
    to.write_all(shell::page(&history.name, &body).as_bytes())
}

/// Returns at most `most` values at even distances, with the first and the last.
fn spread<'a, T>(all: &[&'a T], most: usize) -> Vec<&'a T> {
    if all.len() <= most {
        return all.to_vec();
    }
    let last = most.saturating_sub(1).max(1);
    (0..most)
        .map(|nth| all[nth * (all.len() - 1) / last])
        .collect()
}

fn is_known(shown: &[&HistoryStep], statistic: &Statistic) -> bool {
    let mut shown = shown.iter();
    shown.any(|step| step.values.contains_key(statistic.id))
}

/// Returns the step's number, or the checkpoint's name where it has none.
fn label(step: Option<u64>, checkpoint: &str) -> String {
    step.map_or_else(|| checkpoint.to_owned(), |step| step.to_string())
}

fn point(point: &HistoryPoint) -> String {
    let at = label(point.step, &point.checkpoint);
    format!("{at}: {}", figure(point.value.0))
}

/// Returns the name of a head, which is its anchor too, as in a report.
fn name_of(layer: &HistoryLayer, head: usize) -> String {
    let stack = layer.stack.map(|stack| format!("{stack}-"));
    format!("{}L{}H{head}", stack.unwrap_or_default(), layer.layer)
}

fn findings(history: &HistoryRecord) -> Markup {
    let names: Vec<String> = history
        .layers
        .iter()
        .flat_map(|layer| (0..layer.n_heads).map(|head| name_of(layer, head)))
        .collect();
    let place = |finding: &HistoryFinding| {
        let anchor = finding.place.replace('.', "-");
        html! {
            @if names.contains(&anchor) { a href={ "#" (anchor) } { (finding.place) } }
            @else if finding.place.is_empty() { "model" }
            @else { (finding.place) }
        }
    };
    html! {
        section {
            h2 { "Findings" }
            @if history.findings.is_empty() { p { "No finding begins at any of these steps." } }
            @else { div.scroll { table.findings {
                thead { tr {
                    th {} th { "check" } th { "place" } th { "seen" } th.n { "begins" } th.n { "ends" } th.n { "threshold" }
                } }
                tbody { @for (nth, finding) in history.findings.iter().enumerate() {
                    // A check gives the same advice at every place: show it once.
                    @let is_said = history.findings[..nth].iter().any(|before| before.advice == finding.advice);
                    tr {
                        td { span.badge.(finding.severity.label()) { (finding.severity.label()) } }
                        th scope="row" { (finding.check) }
                        td.place { (place(finding)) }
                        td {
                            (finding.why)
                            @if !is_said { div.advice { (finding.advice) } }
                        }
                        td.n data-is="begins" { (point(&finding.begins)) }
                        td.n data-is="ends" { (finding.ends.as_ref().map_or_else(|| "–".to_owned(), point)) }
                        td.n data-is="threshold" { (figure(finding.threshold.0)) " " span.quiet { (finding.statistic) } }
                    }
                } }
            } } }
        }
    }
}

/// The table of a statistic over the steps. The first one is open, and its rows are the anchors of heads.
fn table(
    history: &HistoryRecord,
    shown: &[&HistoryStep],
    statistic: &Statistic,
    is_first: bool,
) -> Markup {
    let is_coloured = statistic.id == COLOURED.statistic().id;
    let value = |step: &HistoryStep, layer_nth: usize, head: usize| {
        let values = step.values.get(statistic.id)?;
        let value = values.get(layer_nth)?.get(head)?.as_ref()?;
        Some(value.0)
    };
    let class = |value: Option<f64>| match (is_coloured, value) {
        (true, Some(value)) => format!("v {}", Colours::class(value)),
        _ => String::new(),
    };
    html! {
        details open[is_first] {
            summary { (heading(statistic)) }
            p.quiet { (statistic.definition) }
            div.scroll { table.figures.steps {
                thead { tr {
                    th scope="col" { "head" }
                    @for step in shown { th.n scope="col" title=(step.checkpoint) { (label(step.step, &step.checkpoint)) } }
                } }
                tbody { @for (nth, layer) in history.layers.iter().enumerate() {
                    @for head in 0..layer.n_heads {
                        tr id=[is_first.then(|| name_of(layer, head))] {
                            th scope="row" { (name_of(layer, head)) }
                            @for step in shown {
                                @let value = value(step, nth, head);
                                @let class = class(value);
                                td class=[(!class.is_empty()).then_some(class)] { (cell(value)) }
                            }
                        }
                    }
                } }
            } }
            @if is_coloured {
                p.legend {
                    span { "0 " (statistic.low) }
                    span.ramp {}
                    span { "1 " (statistic.high) }
                }
            }
        }
    }
}

fn steps(history: &HistoryRecord) -> Markup {
    let has = |loss: &str| history.logged.iter().any(|logged| logged.loss == loss);
    let (has_training, has_evaluation) = (has("training"), has("evaluation"));
    html! {
        section {
            h2 { "Steps" }
            div.scroll { table.figures {
                thead { tr {
                    th scope="col" { "step" } th scope="col" { "checkpoint" } th.n scope="col" { "loss (nats)" }
                    @if has_training { th.n scope="col" { "training loss" } }
                    @if has_evaluation { th.n scope="col" { "evaluation loss" } }
                    th scope="col" { "state" }
                } }
                tbody { @for step in &history.steps { tr {
                    th scope="row" { (step.step.map_or_else(|| "–".to_owned(), |step| step.to_string())) }
                    td.text { (step.checkpoint) }
                    td { (cell(step.loss.map(|loss| loss.0))) }
                    @if has_training { td { (cell(step.training_loss.map(|loss| loss.0))) } }
                    @if has_evaluation { td { (cell(step.evaluation_loss.map(|loss| loss.0))) } }
                    td.text { (step.state) @if let Some(reason) = &step.reason { ": " (reason) } }
                } } }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_training_keeps_its_first_and_last_step() {
        let all: Vec<usize> = (0..1000).collect();
        let all: Vec<&usize> = all.iter().collect();
        let shown = spread(&all, MOST_STEPS);
        assert_eq!(
            (shown.len(), shown[0], shown[MOST_STEPS - 1]),
            (MOST_STEPS, &0, &999)
        );
        assert!(shown.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(spread(&all[..5], MOST_STEPS).len(), 5);
    }
}
