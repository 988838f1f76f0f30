//! Findings of all prompts in one table, and their marks on heads.

use std::collections::BTreeMap;

use attnscope_checks::{Check, Severity, Status};
use attnscope_spec::{Place, Stack};
use maud::{Markup, html};

use super::anchor;
use crate::named_place;
use crate::readable::{Found, Readable, leading};
use crate::verdict_text::figure;

/// Where a mark is: a layer, or one of its heads.
type At = (Stack, usize, Option<usize>);

/// The worst finding at each layer and head, and the checks that found something there.
pub(super) struct Marks(BTreeMap<At, (Severity, Vec<&'static str>)>);

impl Marks {
    pub fn of(findings: &[Found<'_>]) -> Self {
        let mut marks = BTreeMap::new();
        for found in findings {
            let place = found.finding.place;
            let Some(layer_idx) = place.layer_idx else {
                continue;
            };
            let (worst, checks) = marks
                .entry((place.grid(), layer_idx, place.head_idx))
                .or_insert((found.finding.severity, Vec::new()));
            *worst = found.finding.severity.max(*worst);
            if !checks.contains(&found.finding.check) {
                checks.push(found.finding.check);
            }
        }
        Self(marks)
    }

    /// Returns the CSS class of a layer's or head's mark; information has none.
    pub fn class(
        &self,
        stack: Stack,
        layer_idx: usize,
        head_idx: Option<usize>,
    ) -> Option<&'static str> {
        match self.0.get(&(stack, layer_idx, head_idx))?.0 {
            Severity::Error => Some("e"),
            Severity::Warning => Some("w"),
            Severity::Info => None,
        }
    }

    /// Returns the ids of the checks that found something at a head.
    pub fn checks(&self, stack: Stack, layer_idx: usize, head_idx: usize) -> &[&'static str] {
        let found = self.0.get(&(stack, layer_idx, Some(head_idx)));
        found.map_or(&[], |(_, checks)| checks)
    }

    /// Whether a stack has any marks.
    pub fn is_any(&self, stack: Stack) -> bool {
        let mut marks = self.0.iter();
        marks.any(|((of, ..), (severity, _))| *of == stack && *severity > Severity::Info)
    }
}

pub(super) fn section(readable: &Readable) -> Markup {
    let findings = readable.findings();
    let statuses = readable.statuses();
    let is_one_prompt = readable.report.prompts.len() == 1;
    let n = |severity| {
        let of = |found: &&Found<'_>| found.finding.severity == severity;
        findings.iter().filter(of).count()
    };
    let with = |status| -> Vec<&(&'static Check, Status, &str)> {
        statuses.iter().filter(|(_, of, _)| *of == status).collect()
    };
    let counts = [
        ("e", n(Severity::Error), "errors"),
        ("w", n(Severity::Warning), "warnings"),
        ("i", n(Severity::Info), "for information"),
        ("q", with(Status::Passed).len(), "passed"),
        ("q", with(Status::Undecidable).len(), "undecidable"),
        ("q", with(Status::NotTested).len(), "not tested in a report"),
        ("q", with(Status::NotApplicable).len(), "not judged here"),
    ];
    // The first findings of each check are shown, the others are folded below them.
    let (first, rest) = leading(findings);
    html! {
        section {
            h2 { "Findings" }
            ul.counts {
                @for (class, n, what) in &counts {
                    @if *n > 0 { li class=(class) { b { (n) } " " (what) } }
                }
            }
            @if first.is_empty() { p { "Nothing was found in these runs." } }
            @else {
                (table(&first, is_one_prompt))
                @if !rest.is_empty() {
                    details.more { summary { (rest.len()) " more findings" } (table(&rest, is_one_prompt)) }
                }
            }
            details {
                summary { "What each check said" }
                table.checks {
                    tbody { @for (check, status, why) in &statuses {
                        tr { th scope="row" { (check.id) } td { (status.label()) } td { (why) } }
                    } }
                }
                p.quiet {
                    "By construction: mask, axis and window are applied here as the configuration declares, so that these checks say "
                    "nothing about the code that trained the model. Checks that change prompts or look at the weights are not run in a report: "
                    code { "attnscope check" } " does."
                }
            }
        }
    }
}

fn table(findings: &[Found<'_>], is_one_prompt: bool) -> Markup {
    html! {
        div.scroll { table.findings {
            thead { tr {
                th {} th { "check" } th { "place" } th { "seen" } th.n { "value" } th.n { "threshold" }
            } }
            tbody { @for (nth, found) in findings.iter().enumerate() {
                @let finding = found.finding;
                // A check gives the same advice at every place: show it once.
                @let is_said = findings[..nth].iter().any(|before| before.finding.advice == finding.advice);
                tr {
                    td { span.badge.(finding.severity.label()) { (finding.severity.label()) } }
                    th scope="row" { (finding.check) }
                    td.place { (place(&finding.place)) }
                    td {
                        (finding.evidence)
                        @if !is_one_prompt {
                            " " span.quiet {
                                "(prompt " span.name { (found.prompt) }
                                @if found.n_prompts > 1 { ", and " (found.n_prompts - 1) " more" }
                                ")"
                            }
                        }
                        @if !is_said { div.advice { (finding.advice) } }
                    }
                    td.n data-is="value" { (figure(finding.value)) " " (finding.unit) }
                    td.n data-is="threshold" { (figure(finding.threshold)) " " (finding.unit) }
                }
            } }
        } }
    }
}

fn place(place: &Place) -> Markup {
    let name = named_place::whole(place);
    match (place.layer_idx, place.head_idx) {
        (Some(layer), Some(head)) => {
            html! { a href={ "#" (anchor(0, place.grid(), layer, head)) } { (name) } }
        }
        _ => html! { (name) },
    }
}
