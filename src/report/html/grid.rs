//! Layers × heads, coloured by relative entropy.

use attnscope_checks::stats::Stat;
use attnscope_spec::Stack;
use maud::{Markup, html};

use super::Part;
use super::colour::Colours;

/// The statistic that colours the grid: comparable between prompts of any length.
const STATISTIC: Stat = Stat::EntropyRelative;

pub(super) fn section(part: &Part<'_>, stack: Stack) -> Markup {
    let (idx, statistic) = (STATISTIC.idx(), STATISTIC.statistic());
    let layers: Vec<_> = part
        .record
        .layers
        .iter()
        .filter(|l| l.stack == stack)
        .collect();
    let n_heads = layers.iter().map(|l| l.heads.len()).max().unwrap_or(0);
    let cell = |layer: usize, head: usize, value: Option<f64>| {
        let shade = value.unwrap_or(f64::NAN);
        let mark = part.marks.class(stack, layer, Some(head));
        let class = format!("v {} {}", Colours::class(shade), mark.unwrap_or_default());
        html! {
            td class=(class.trim_end())
                title={ "L" (layer) " H" (head) ": " (super::super::key_statistics::cell(value)) } {
                a href={ "#" (part.anchor(stack, layer, head)) } { (short(value)) }
            }
        }
    };
    html! {
        h4 { (statistic.title) " of each head" }
        p.quiet { (statistic.definition) }
        @if has_broken_rows(part, stack) {
            p.bad { "Rows of these patterns do not sum to 1: their entropy has no meaning." }
        }
        div.scroll {
            table.grid.many[n_heads > 16] aria-label={ (statistic.title) " by layer and head" } {
                thead { tr {
                    th {}
                    @for head in 0..n_heads { th scope="col" { "H" (head) } }
                } }
                tbody {
                    @for layer in &layers {
                        tr {
                            th scope="row" class=[part.marks.class(stack, layer.layer, None)] { "L" (layer.layer) }
                            @for head in &layer.heads {
                                (cell(layer.layer, head.head, head.stats.measured(idx)))
                            }
                        }
                    }
                }
            }
        }
        p.legend {
            span { "0 " (statistic.low) }
            span.ramp {}
            span { "1 " (statistic.high) }
            @if part.marks.is_any(stack) {
                span.key { span.swatch.e {} "error" }
                span.key { span.swatch.w {} "warning" }
            }
        }
    }
}

/// Whether a check found attention rows in a stack that are not distributions.
fn has_broken_rows(part: &Part<'_>, stack: Stack) -> bool {
    let verdicts = part.shown.verdicts.iter();
    let mut findings = verdicts.flat_map(|(_, verdict)| &verdict.findings);
    findings.any(|found| {
        ["wrong-axis", "row-sum"].contains(&found.check) && found.place.grid() == stack
    })
}

/// Formats the value that colours a head's cell.
pub(super) fn entropy_of(part: &Part<'_>, stack: Stack, layer: usize, head: usize) -> String {
    let mut layers = part.record.layers.iter();
    let layer = layers.find(|l| (l.stack, l.layer) == (stack, layer));
    let head = layer.and_then(|layer| layer.heads.get(head));
    short(head.and_then(|head| head.stats.measured(STATISTIC.idx())))
}

/// Two digits: the cell is small, and the colour map has few more steps.
fn short(value: Option<f64>) -> String {
    let Some(value) = value else {
        return "–".to_owned();
    };
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        value if (0.0..0.995).contains(&value) => format!("{value:.2}").replacen("0.", ".", 1),
        value => format!("{value:.1}"),
    }
}
