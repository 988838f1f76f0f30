//! Tables of statistics: the key ones of each layer visible, all of them folded.

use attnscope_checks::stats::{HeadType, STATISTICS, Values};
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
    let columns: Vec<usize> = (0..STATISTICS.len())
        .filter(|idx| STATISTICS[*idx].is_per_head())
        .collect();
    let layers = part.record.layers.iter().filter(|l| l.stack == stack);
    let rows = layers.flat_map(|layer| layer.heads.iter().map(|head| (layer.layer, head)));
    html! {
        details.heads { summary { "All statistics of each head" } div.scroll { table.figures {
            thead { tr {
                th scope="col" { "head" }
                th scope="col" { "type" }
                th scope="col" { "findings" }
                (headings(&columns))
            } }
            tbody { @for (layer, head) in rows {
                tr {
                    th scope="row" {
                        a href={ "#" (part.anchor(stack, layer, head.head)) } { "L" (layer) "H" (head.head) }
                    }
                    td.text { (part.type_of(stack, layer, head.head).map_or("–", HeadType::title)) }
                    td.text { (part.marks.checks(stack, layer, head.head).join(", ")) }
                    @for idx in &columns { td { (cell(head.stats.measured(*idx))) } }
                }
            } }
        } } }
    }
}

/// The headings of columns of statistics.
fn headings(columns: &[usize]) -> Markup {
    html! {
        @for idx in columns {
            @let statistic = STATISTICS[*idx];
            th.n scope="col" data-id=(statistic.id) title=(statistic.definition) { (heading(statistic)) }
        }
    }
}

fn table<'a>(
    what: &str,
    rows: impl Iterator<Item = (String, &'a Values)>,
    columns: &[usize],
) -> Markup {
    html! {
        div.scroll { table.figures {
            thead { tr { th scope="col" { (what) } (headings(columns)) } }
            tbody { @for (name, values) in rows {
                tr {
                    th scope="row" { (name) }
                    @for idx in columns { td { (cell(values.measured(*idx))) } }
                }
            } }
        } }
    }
}
