//! The report as CSV: one row for each prompt, layer and head.

use std::borrow::Cow;
use std::io::{self, Write};

use super::document::Report;
use super::plain::cell;
use attnscope_engine::stats::STATISTICS;

/// Writes a header and the rows. The stack of a model that has one is empty; statistics of single heads have their ids as
/// columns. Unless it is wanted raw, a text that a spreadsheet would compute is marked as text.
///
/// # Errors
/// When the target cannot be written.
pub fn write_csv(report: &Report, is_raw: bool, to: &mut impl Write) -> io::Result<()> {
    let of_heads: Vec<usize> = (0..STATISTICS.len())
        .filter(|idx| STATISTICS[*idx].is_per_head())
        .collect();
    let mut writer = ::csv::Writer::from_writer(to);
    let ids = of_heads.iter().map(|idx| STATISTICS[*idx].id);
    writer.write_record(["prompt", "stack", "layer", "head"].into_iter().chain(ids))?;
    for prompt in &report.prompts {
        let id = if is_raw {
            Cow::Borrowed(prompt.id.as_str())
        } else {
            cell(&prompt.id)
        };
        for layer in &prompt.layers {
            for head in &layer.heads {
                let mut row = vec![
                    id.to_string(),
                    layer.stack.label().unwrap_or_default().to_owned(),
                    layer.layer.to_string(),
                    head.head.to_string(),
                ];
                row.extend(of_heads.iter().map(|idx| number(head.stats.at(*idx))));
                writer.write_record(row)?;
            }
        }
    }
    writer.flush()
}

/// The shortest digits that read back as the same number; words where there are none, as in JSON.
pub(super) fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        // `Debug` keeps powers of ten, and writes NaN as a word.
        value => format!("{value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_as_they_were() {
        for value in [0.1, 1.0, 1e-300, -2.5e20, 0.0] {
            assert_eq!(number(value).parse::<f64>().expect("a number"), value);
        }
        assert_eq!(number(f64::NEG_INFINITY), "-Infinity");
        assert_eq!(number(f64::NAN), "NaN");
    }
}
