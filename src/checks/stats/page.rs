//! The statistics page of the docs, generated from the registry.

use std::fmt::Write as _;

use super::{Compute, Gather, STATISTICS, Span, Statistic};

/// Every statistic with its id, unit, range, meaning and source, as Markdown.
pub fn statistics_page() -> String {
    let mut page = "# Statistics\n\nAfter this page you can say what each statistic measures, in which unit, and when it is absent.\n\
                    Generated from the registry of the program: reports have these ids, and screens these words.\nAll are computed over visible pairs of real tokens; scores are f32, sums f64.\nA value without \
                    meaning is absent: null in JSON and Parquet, empty in CSV, a dash on screens. NaN is a broken number.\n"
        .to_owned();
    for statistic in STATISTICS {
        let Facts { unit, range, of } = Facts::of(statistic);
        let _ = write!(
            page,
            "\n## `{}` · {}\n\n{}\n\n| unit | range | low | high | of | source |\n|---|---|---|---|---|---|\n| {unit} | {range} | {} | {} | {of} | {} |\n",
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

/// One statistic for a terminal.
pub fn statistic_page(statistic: &Statistic) -> String {
    let Facts { unit, range, of } = Facts::of(statistic);
    format!(
        "# {} · {}\n\n{}\n\nunit    {unit}\nrange   {range}\nlow     {}\nhigh    {}\nof      {of}\nsource  {}\n",
        statistic.id,
        statistic.title,
        statistic.definition,
        statistic.low,
        statistic.high,
        statistic.source
    )
}

/// What the kinds of a statistic are called on its page.
struct Facts {
    unit: &'static str,
    range: &'static str,
    of: &'static str,
}

impl Facts {
    fn of(statistic: &Statistic) -> Self {
        Self {
            unit: match statistic.unit {
                "" => "none",
                unit => unit,
            },
            range: match statistic.span {
                Span::Share => "0 … 1",
                Span::Signed => "−1 … 1",
                Span::Positive => "0 …",
                Span::Any => "any number",
            },
            of: match statistic.compute {
                Compute::Head(_, Gather::Mean) => "head; layer: mean over heads",
                Compute::Head(_, Gather::Max) => "head; layer: largest over heads",
                Compute::Head(_, Gather::Min) => "head; layer: smallest over heads",
                Compute::Layer(_) => "layer",
            },
        }
    }
}
