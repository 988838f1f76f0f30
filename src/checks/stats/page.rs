//! The statistics page of the docs, generated from the registry.

use std::fmt::Write as _;

use super::{Compute, Gather, STATISTICS, Span};

/// Every statistic with its id, unit, range, meaning and source, as Markdown.
pub fn statistics_page() -> String {
    let mut page = "# Statistics\n\nAfter this page you can say what each statistic measures, in which unit, and when it is absent.\n\
                    Generated from the registry of the program: reports have these ids, and screens these words.\nAll are computed over visible pairs of real tokens; scores are f32, sums f64.\nA value without \
                    meaning is absent: null in JSON and Parquet, empty in CSV, a dash on screens. NaN is a broken number.\n"
        .to_owned();
    for statistic in STATISTICS {
        let range = match statistic.span {
            Span::Share => "0 … 1",
            Span::Signed => "−1 … 1",
            Span::Positive => "0 …",
            Span::Any => "any number",
        };
        let level = match statistic.compute {
            Compute::Head(_, Gather::Mean) => "head; layer: mean over heads",
            Compute::Head(_, Gather::Max) => "head; layer: largest over heads",
            Compute::Head(_, Gather::Min) => "head; layer: smallest over heads",
            Compute::Layer(_) => "layer",
        };
        let unit = if statistic.unit.is_empty() {
            "none"
        } else {
            statistic.unit
        };
        let _ = write!(
            page,
            "\n## `{}` · {}\n\n{}\n\n| unit | range | low | high | of | source |\n|---|---|---|---|---|---|\n| {unit} | {range} | {} | {} | {level} | {} |\n",
            statistic.id,
            statistic.title,
            statistic.definition,
            statistic.low,
            statistic.high,
            statistic.source
        );
    }
    page
}
