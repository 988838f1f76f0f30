//! Plain-text tables and paragraphs that fit a terminal.

use unicode_width::UnicodeWidthStr;

/// Blanks between columns.
const BETWEEN: usize = 2;

/// Formats a table: the first column left-aligned, the others right-aligned, two blanks between, no trailing blanks.
pub fn text_table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let widths = widths(titles, rows);
    let line = |cells: Vec<&str>| {
        let mut line = String::new();
        for (nth, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let blanks = " ".repeat(width - cell.width());
            match nth {
                0 => line.extend([*cell, &blanks]),
                _ => line.extend([" ".repeat(BETWEEN).as_str(), &blanks, *cell]),
            }
        }
        line.trim_end().to_owned() + "\n"
    };
    let mut table = line(titles.to_vec());
    for row in rows {
        table += &line(row.iter().map(String::as_str).collect());
    }
    table
}

/// Returns how many leading columns of such a table fit a width.
pub fn n_columns_within(titles: &[&str], rows: &[Vec<String>], width: usize) -> usize {
    let mut used = 0;
    let fits = |(nth, column): &(usize, usize)| {
        used += column + if *nth > 0 { BETWEEN } else { 0 };
        used <= width
    };
    let widths = widths(titles, rows).into_iter().enumerate();
    widths.take_while(fits).count()
}

/// Returns the width of each column.
fn widths(titles: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let width_of = |(nth, title): (usize, &&str)| {
        let cells = rows.iter().filter_map(|row| row.get(nth));
        let widest = cells.map(|cell| cell.width()).max().unwrap_or(0);
        widest.max(title.width())
    };
    titles.iter().enumerate().map(width_of).collect()
}

/// Wraps a paragraph at `width` columns, with all lines after the first indented.
pub fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.trim().is_empty() && line.width() + 1 + word.width() > width {
            lines += &line;
            lines.push('\n');
            line = format!("{indent}{word}");
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
    }
    lines + &line + "\n"
}

/// Formats a number with about four digits, for a column of numbers of any size.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if value.is_nan() => "NaN".to_owned(),
        _ if value.is_infinite() => if value > 0.0 { "inf" } else { "-inf" }.to_owned(),
        0.0 => "0".to_owned(),
        _ if size < 1e-4 => format!("{value:.1e}"),
        _ if size < 0.01 => format!("{value:.5}"),
        _ if size < 10.0 => format!("{value:.4}"),
        _ if size < 100.0 => format!("{value:.3}"),
        _ if size < 1000.0 => format!("{value:.2}"),
        _ if size < 1e6 => format!("{value:.1}"),
        _ => format!("{value:.3e}"),
    }
}

/// Formats a share of at most 1, with more digits close to 1.
pub fn share_digits(share: f64) -> String {
    match share {
        share if (0.9995..1.0).contains(&share) => format!("{share:.6}"),
        share => digits(share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_by_display_width_not_by_character_count() {
        let rows = [
            vec!["√Σ‖k‖²".to_owned(), "1.5".to_owned()],
            vec!["none".to_owned(), "12.25".to_owned()],
        ];
        let table = text_table(&["divisor", "value"], &rows);
        assert_eq!(table, "divisor  value\n√Σ‖k‖²     1.5\nnone     12.25\n");
        let fitting = [13, 14].map(|width| n_columns_within(&["divisor", "value"], &rows, width));
        assert_eq!(fitting, [1, 2]);
    }

    #[test]
    fn wrapped_paragraphs_keep_their_width_and_every_word() {
        let text = "every word of this sentence stands in one of the lines";
        let lines = wrapped(text, 20, "  ");
        assert!(lines.lines().all(|line| line.width() <= 20), "{lines}");
        assert!(lines.lines().skip(1).all(|line| line.starts_with("  ")));
        let words: Vec<&str> = lines.split_whitespace().collect();
        assert_eq!(words.join(" "), text);
    }

    #[test]
    fn digits_shows_about_four_digits_at_any_size() {
        let cases = [
            (0.0, "0"),
            (0.999_96, "1.0000"),
            (-0.031_25, "-0.0312"),
            (1e-7, "1.0e-7"),
            (0.001_85, "0.00185"),
            (511.83, "511.83"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(digits(value), text);
        }
        assert_eq!(share_digits(0.999_863), "0.999863");
        assert_eq!(share_digits(0.871_234), "0.8712");
    }
}
