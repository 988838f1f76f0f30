//! Numbers and labels as the screen shows them, in columns of constant width.

use attnscope_checks::stats::{Span, Statistic};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Formats a number in at most `width` columns, right-aligned.
pub fn figure(value: f64, width: usize) -> String {
    let text = match value {
        v if v.is_nan() => "NaN".to_owned(),
        v if v.is_infinite() => if v > 0.0 { "inf" } else { "-inf" }.to_owned(),
        0.0 => "0.000".to_owned(),
        v => match v.abs() {
            a if a < 0.0005 => format!("{v:.0e}"),
            a if a < 10.0 => format!("{v:.3}"),
            a if a < 100.0 => format!("{v:.2}"),
            a if a < 1000.0 => format!("{v:.1}"),
            a if a < 100_000.0 => format!("{v:.0}"),
            _ => format!("{v:.1e}"),
        },
    };
    format!("{text:>width$}")
}

/// The change of a value; 0 if it is within rounding error.
pub fn moved(before: f64, after: f64) -> f64 {
    let moved = after - before;
    if moved.abs() <= 1e-6 * before.abs().max(after.abs()) {
        0.0
    } else {
        moved
    }
}

/// Formats the signed change of a value; 0 if it is within rounding error.
pub fn change(before: f64, after: f64, width: usize) -> String {
    let text = match moved(before, after) {
        0.0 => "0".to_owned(),
        moved if moved > 0.0 => format!("+{}", figure(moved, 0)),
        moved => figure(moved, 0),
    };
    format!("{text:>width$}")
}

/// Formats a number in `width` columns with as many decimals as fit, right-aligned.
pub fn figure_within(value: f64, width: usize) -> String {
    let usual = figure(value, width);
    if usual.len() <= width || !value.is_finite() {
        return usual;
    }
    // Drop the leading 0 if that makes it fit.
    let bare = usual.trim().replacen("-0.", "-.", 1);
    if bare.starts_with("-.") && bare.len() <= width {
        return format!("{bare:>width$}");
    }
    (0..3)
        .rev()
        .map(|decimals| format!("{value:>width$.decimals$}"))
        .find(|text| text.len() <= width)
        .unwrap_or(usual)
}

/// Range over which a statistic is coloured: its own bounds, or those of the given values.
pub fn colour_range(statistic: &Statistic, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|v| v.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(v), high.max(v))
        });
    match statistic.span {
        Span::Share => (0.0, 1.0),
        Span::Signed => (-1.0, 1.0),
        _ if low > high => (0.0, 1.0),
        Span::Positive => (0.0, if high > 0.0 { high } else { 1.0 }),
        Span::Any if low == high => (low - 0.5, high + 0.5),
        Span::Any => (low, high),
    }
}

/// Position of a value between low and high, from 0 to 1; NaN stays NaN.
pub fn share(value: f64, (low, high): (f64, f64)) -> f32 {
    ((value - low) / (high - low)).clamp(0.0, 1.0) as f32
}

/// Cuts or pads a text to exactly `width` columns.
pub fn fit(text: &str, width: usize) -> String {
    let mut fitted = cut(text, width);
    let used = fitted.width();
    fitted.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    fitted
}

/// Cuts a text to at most `width` columns, ending in an ellipsis if something is missing.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        let w = c.width().unwrap_or(0);
        if used + w + 1 > width {
            break;
        }
        kept.push(c);
        used += w;
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// Cuts a text to at most `width` columns after a whole word, and marks that something is missing.
///
/// A word that joins what is missing goes too: `of`, `→`, or a dot between parts. Only a first word that is too long is cut itself.
pub fn cut_words(text: &str, width: usize) -> String {
    const JOINING: [&str; 20] = [
        "as", "after", "with", "for", "over", "from", "or", "an", "·", "×", "→", "−", "…", "of",
        "in", "to", "by", "the", "a", "and",
    ];
    if text.width() <= width {
        return text.to_owned();
    }
    // Blanks before, after and between words stay.
    let begin = text.len() - text.trim_start().len();
    let end = &text[text.trim_end().len()..];
    let room = width.saturating_sub(2 + end.width());
    let is_joining = |kept: &str| {
        let last = kept.rsplit(char::is_whitespace).next();
        last.is_none_or(|word| word.is_empty() || JOINING.contains(&word))
    };
    let blanks = text.match_indices(char::is_whitespace);
    let mut kept = blanks
        .map(|(at, _)| &text[..at])
        .filter(|kept| kept.len() > begin && kept.width() <= room && !is_joining(kept));
    match kept.next_back() {
        None => cut(text, width),
        Some(kept) => format!("{} …{end}", kept.trim_end_matches([',', ';', ':', '.'])),
    }
}

/// Shortens a dotted name to at most `width` columns: its parts become their first letters, from the first on, as many as are
/// needed. Numbers stay, and the last two parts are shortened last.
pub fn short_name(name: &str, width: usize) -> String {
    let mut parts: Vec<&str> = name.split('.').collect();
    let (n, mut last) = (parts.len(), "");
    for idx in (0..n.saturating_sub(2)).chain(n.saturating_sub(1)..n) {
        if parts.join(".").width() <= width {
            break;
        }
        if n > 1 && !parts[idx].starts_with(|c: char| c.is_ascii_digit()) {
            // Which of several the last part is, its end says: `bias_ih_l0`.
            let ending = parts[idx].find('_').filter(|_| idx + 1 == n);
            last = ending.map_or("", |at| &parts[idx][at..]);
            parts[idx] = first_letter(parts[idx]);
        }
    }
    let mut short = parts.join(".") + last;
    // Then the words of the part before the last, but for the one that says what it is: `post_attention_layernorm`.
    let words: Vec<&str> = parts[n.saturating_sub(2)].split('_').collect();
    for n_short in 1..words.len() {
        if n < 2 || short.width() <= width {
            break;
        }
        let initials = words[..n_short].iter().map(|word| first_letter(word));
        let words: Vec<&str> = initials.chain(words[n_short..].iter().copied()).collect();
        let part = words.join("_");
        let before = parts[..n - 2].iter().map(|part| (*part).to_owned());
        let all: Vec<String> = before.chain([part, parts[n - 1].to_owned()]).collect();
        short = all.join(".") + last;
    }
    if short.width() <= width {
        return short;
    }
    // Even then, what is at the end tells names apart more often.
    let n_first = width.saturating_sub(1) / 3;
    let head: String = short.chars().take(n_first).collect();
    let rest = width.saturating_sub(head.width());
    format!("{head}{}", cut_left(&short[head.len()..], rest))
}

fn first_letter(word: &str) -> &str {
    let first = word.chars().next();
    &word[..first.map_or(0, char::len_utf8)]
}

/// Keeps the end of a text in at most `width` columns, starting with an ellipsis if something is missing.
pub fn cut_left(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = Vec::new();
    let mut used = 1;
    for c in text.chars().rev() {
        let w = c.width().unwrap_or(0);
        if used + w > width {
            break;
        }
        kept.push(c);
        used += w;
    }
    kept.push('…');
    kept.into_iter().rev().collect()
}

/// A token's label on one line: line breaks and tabs as symbols, spaces trimmed, never empty.
pub fn token_label(label: &str) -> String {
    let shown = one_line(label.trim_matches(' '));
    if shown.is_empty() {
        "␣".to_owned()
    } else {
        shown
    }
}

/// A text on one line: line breaks and tabs as symbols, spaces as they are.
pub fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => '⏎',
            '\t' => '⇥',
            c if c.is_control() => '·',
            c => c,
        })
        .collect()
}

/// A horizontal bar of up to `width` columns, in steps of an eighth.
pub fn bar(share: f32, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if !share.is_finite() {
        return String::new();
    }
    let eighths = (share.clamp(0.0, 1.0) * width as f32 * 8.0).round() as usize;
    let mut text = "█".repeat(eighths / 8);
    text.push_str(EIGHTHS[eighths % 8]);
    text
}

/// Cuts a text without blanks into pieces of `width` characters.
pub fn chunks(text: &str, width: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let pieces = letters.chunks(width.max(1));
    pieces.map(|piece| piece.iter().collect()).collect()
}

/// Wraps words into lines of at most `width` columns.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    // A range such as `3 … 85` stays in one line.
    const KEPT: char = '\u{a0}';
    let text = text.replace(" … ", "\u{a0}…\u{a0}");
    let mut lines = vec![String::new()];
    let words = text.split(|c: char| c.is_whitespace() && c != KEPT);
    for word in words.filter(|word| !word.is_empty()) {
        let last = lines
            .last_mut()
            .filter(|line| line.is_empty() || line.width() + 1 + word.width() <= width);
        match last {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    let spaced = lines.into_iter().map(|line| line.replace(KEPT, " "));
    spaced.collect()
}

/// The first parts that fit into so many columns uncut, with dots between them.
pub fn fitting(parts: &[&str], width: usize) -> String {
    let mut text = String::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let longer = match text.as_str() {
            "" => (*part).to_owned(),
            text => format!("{text} · {part}"),
        };
        if longer.width() > width {
            break;
        }
        text = longer;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_after_a_whole_word_that_can_be_the_last() {
        let text = " L0H0 · pattern · query 511 “hat” → key 0 “the” ";
        assert_eq!(cut_words(text, 60), text);
        let shown = " L0H0 · pattern · query 511 “hat” → key 0 … ";
        assert_eq!(cut_words(text, 44), shown);
        assert_eq!(cut_words(text, 40), " L0H0 · pattern · query 511 “hat” … ");
        assert_eq!(cut_words(text, 20), " L0H0 · pattern … ");
        assert_eq!(
            cut_words("first in  L0H0-2, L1H3", 20),
            "first in  L0H0-2 …"
        );
        assert_eq!(cut_words("transformer.wte", 8), "transfo…");
    }

    #[test]
    fn figures_of_any_size_fill_exactly_their_width() {
        let values = [
            0.0,
            0.12345,
            -1.5,
            12.345,
            999.9,
            54_321.0,
            1.5e9,
            1e-7,
            f64::NAN,
            f64::NEG_INFINITY,
        ];
        for value in values {
            assert_eq!(figure(value, 8).width(), 8, "{value}");
        }
        assert_eq!(figure(0.61249, 0), "0.612");
    }

    #[test]
    fn in_narrow_columns_figures_are_rounded_instead_of_cut() {
        assert_eq!(figure_within(0.609, 4), "0.61");
        assert_eq!(figure_within(-12.345, 4), " -12");
        assert_eq!(figure_within(0.5, 6), " 0.500");
    }

    #[test]
    fn text_is_cut_by_columns_instead_of_characters() {
        assert_eq!(cut("attention", 5), "atte…");
        assert_eq!(fit("猫と犬", 4), "猫… ");
        assert_eq!(cut("猫", 2), "猫");
        assert_eq!(cut_left("runs/step-500", 9), "…step-500");
        assert_eq!(cut_left("a", 9), "a");
    }

    #[test]
    fn a_dotted_name_is_shortened_from_its_first_part_on() {
        let name = "bert.encoder.layer.11.attention.self.query.weight";
        assert_eq!(short_name(name, 60), name);
        assert_eq!(short_name(name, 36), "b.e.l.11.attention.self.query.weight");
        assert_eq!(short_name(name, 26), "b.e.l.11.a.s.query.weight");
        assert_eq!(short_name(name, 20), "b.e.l.11.a.s.query.w");
        let name = "bert.embeddings.word_embeddings.weight";
        assert_eq!(short_name(name, 26), "b.e.word_embeddings.weight");
        let name = "model.layers.0.post_attention_layernorm.weight";
        assert_eq!(short_name(name, 24), "m.l.0.p_a_layernorm.w");
        assert_eq!(short_name("decoder.bias_ih_l0", 16), "decoder.b_ih_l0");
        assert_eq!(short_name("a_name_without_any_dot", 10), "a_n…ny_dot");
    }

    #[test]
    fn bars_fill_in_eighths() {
        assert_eq!(bar(1.0, 3), "███");
        assert_eq!(bar(0.5, 1), "▌");
        assert_eq!(bar(0.0, 3), "");
        assert_eq!(bar(f32::NAN, 3), "");
    }
}
