//! Tables of statistics: the key ones of each layer visible, all of them folded.

use attnscope_checks::stats::{STATISTICS, Values};
use attnscope_spec::Stack;
use maud::{Markup, html};

use super::Part;
use crate::key_statistics::{cell, heading, of_layers};

/// The table of a stack's layers.
pub(super) fn layers(part: &Part<'_>, stack: Stack) -> Markup {
    let rows = |columns: &[usize]| {
        let layers = part.record.layers.iter().filter(|l| l.stack == stack);
        let rows = layers.map(|layer| (format!("L{}", layer.layer), &layer.stats));
        table("layer", rows, columns)
    };
    let all: Vec<usize> = (0..STATISTICS.len()).collect();
    html! {
        h4 { "Layers" }
        (rows(&of_layers()))
        details { summary { "All statistics of each layer" } (rows(&all)) }
    }
}

/// The table of a stack's heads.
pub(super) fn heads(part: &Part<'_>, stack: Stack) -> Markup {
    let of_heads: Vec<usize> = (0..STATISTICS.len())
        .filter(|idx| STATISTICS[*idx].is_per_head())
        .collect();
    let layers = part.record.layers.iter().filter(|l| l.stack == stack);
    let rows = layers.flat_map(|layer| {
        let name = |head| format!("L{}H{head}", layer.layer);
        layer
            .heads
            .iter()
            .map(move |head| (name(head.head), &head.stats))
    });
    html! {
        details { summary { "All statistics of each head" } (table("head", rows, &of_heads)) }
    }
}

fn table<'a>(
    what: &str,
    rows: impl Iterator<Item = (String, &'a Values)>,
    columns: &[usize],
) -> Markup {
    html! {
        div.scroll { table.figures {
            thead { tr {
                th { (what) }
                @for idx in columns {
                    @let statistic = STATISTICS[*idx];
                    th.n scope="col" title=(statistic.definition) { (heading(statistic)) }
                }
            } }
            tbody { @for (name, values) in rows {
                tr {
                    th scope="row" { (name) }
                    @for idx in columns { td { (cell(values.measured(*idx))) } }
                }
            } }
        } }
    }
}
