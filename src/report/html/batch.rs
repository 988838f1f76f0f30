//! The page of a whole batch: a strip for each checkpoint, its findings, and the slowest units.

use std::io::{self, Write};

use attnscope_checks::Severity;
use attnscope_checks::stats::Stat;
use maud::{Markup, html};

use super::colour::Colours;
use super::shell;
use crate::finding::FindingRecord;
use crate::merged::{Merged, named};
use crate::verdict_text::figure;

/// Most findings shown per check and checkpoint.
const MOST_OF_A_CHECK: usize = 3;
/// Most units listed.
const MOST_UNITS: usize = 200;

/// One checkpoint over all its prompts, layer by layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Strip {
    pub checkpoint: String,
    pub step: Option<u64>,
    pub n_prompts: usize,
    /// Mean over the prompts that have a loss, in nats.
    pub loss: Option<f64>,
    /// Each layer's place, and the mean of [`Strip::STAT`] over the prompts.
    pub layers: Vec<(String, f64)>,
}

impl Strip {
    /// The statistic that colours the strips: comparable between prompts of any length.
    pub const STAT: Stat = Stat::EntropyRelative;
}

/// A unit and its running time.
#[derive(Debug, Clone, PartialEq)]
pub struct Slow {
    pub checkpoint: String,
    pub prompts: Vec<String>,
    pub seconds: f64,
}

/// Writes the page.
///
/// # Errors
/// When the target cannot be written.
pub fn write_batch_page(
    merged: &Merged,
    strips: &[Strip],
    slowest: &[Slow],
    to: &mut impl Write,
) -> io::Result<()> {
    let body = html! {
        header { h1 { "Batch" } p { (merged.headline()) } }
        main {
            (strips_section(merged, strips))
            (findings(merged))
            (absent(merged))
            (slow(slowest))
        }
        footer { "attnscope " (env!("CARGO_PKG_VERSION")) }
    };
    to.write_all(shell::page("Batch", &body).as_bytes())
}

fn strips_section(merged: &Merged, strips: &[Strip]) -> Markup {
    let statistic = Strip::STAT.statistic();
    let n_of = |strip: &Strip, severity| {
        let mut of = merged.checkpoints.iter();
        let of = of.find(|of| of.checkpoint == strip.checkpoint && of.step == strip.step);
        let findings = of.map_or(&[][..], |of| of.findings.as_slice());
        findings.iter().filter(|f| f.severity() == severity).count()
    };
    html! {
        section {
            h2 { "Checkpoints" }
            p.quiet { "Cells: " (statistic.title) " of each layer, mean over prompts. " (statistic.definition) }
            div.scroll { table.grid {
                thead { tr {
                    th { "checkpoint" } th { "prompts" } th { "loss" } th { "errors" } th { "warnings" } th { "layers" }
                } }
                tbody { @for strip in strips {
                    tr {
                        th scope="row" { (strip.checkpoint) }
                        td { (strip.n_prompts) }
                        td { @if let Some(loss) = strip.loss { (figure(loss)) } @else { "–" } }
                        td { (n_of(strip, Severity::Error)) }
                        td { (n_of(strip, Severity::Warning)) }
                        @for (place, value) in &strip.layers {
                            td class={ "v " (Colours::class(*value)) }
                                title={ (place) ": " (figure(*value)) } { (place) }
                        }
                    }
                } }
            } }
            p.legend {
                span { "0 " (statistic.low) }
                span.ramp {}
                span { "1 " (statistic.high) }
            }
        }
    }
}

fn findings(merged: &Merged) -> Markup {
    let mut shown: Vec<(&str, &FindingRecord)> = Vec::new();
    let mut n_more = 0;
    for of in &merged.checkpoints {
        let mut n_of_check: Vec<(&str, usize)> = Vec::new();
        for finding in of.findings.iter().filter(|f| f.severity() > Severity::Info) {
            let nth = match n_of_check
                .iter_mut()
                .find(|(check, _)| *check == finding.check)
            {
                Some((_, n)) => {
                    *n += 1;
                    *n
                }
                None => {
                    n_of_check.push((&finding.check, 1));
                    1
                }
            };
            if nth <= MOST_OF_A_CHECK {
                shown.push((&of.checkpoint, finding));
            } else {
                n_more += 1;
            }
        }
    }
    html! {
        section {
            h2 { "Findings" }
            @if shown.is_empty() { p { "Nothing was found in these runs." } }
            @else { div.scroll { table.findings {
                thead { tr { th {} th { "checkpoint" } th { "check" } th { "place" } th { "seen" } th { "do" } } }
                tbody { @for (nth, (checkpoint, finding)) in shown.iter().enumerate() {
                    // A check gives the same advice at every place: show it once.
                    @let is_said = shown[..nth].iter().any(|(_, before)| before.advice == finding.advice);
                    tr {
                        td { span.badge.(finding.severity) { (finding.severity) } }
                        td data-is="checkpoint" { (checkpoint) }
                        th scope="row" { (finding.check) }
                        td.place { (finding.place.label()) }
                        td { (finding.evidence) }
                        td.advice { @if !is_said { (finding.advice) } }
                    }
                } }
            } } }
            @if n_more > 0 { p.quiet { (n_more) " more of the same checks; " code { "--format json" } " has them all." } }
        }
    }
}

fn absent(merged: &Merged) -> Markup {
    let n_more = (merged.failed.len() + merged.missing.len()).saturating_sub(2 * MOST_UNITS);
    html! {
        @if !merged.failed.is_empty() || !merged.missing.is_empty() {
            section {
                h2 { "Units that are not in the table" }
                ul {
                    @for unit in merged.failed.iter().take(MOST_UNITS) {
                        li { b { "failed" } " " (named(&unit.checkpoint, &unit.prompts)) ": " (unit.error) }
                    }
                    @for unit in merged.missing.iter().take(MOST_UNITS) {
                        li { b { "missing" } " " (named(&unit.checkpoint, &unit.prompts)) }
                    }
                }
                @if n_more > 0 { p.quiet { "… and more; " code { "--format json" } " has them all." } }
            }
        }
    }
}

fn slow(slowest: &[Slow]) -> Markup {
    html! {
        @if !slowest.is_empty() {
            section {
                h2 { "Slowest units" }
                table.findings { tbody { @for unit in slowest {
                    tr { td.n { (format!("{:.2} s", unit.seconds)) } td { (named(&unit.checkpoint, &unit.prompts)) } }
                } } }
            }
        }
    }
}
