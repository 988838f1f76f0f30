//! Python features that templates expect: string methods, dates, and values as JSON.

use std::fmt::Write as _;

use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, Utc};
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Upper limit of characters that a method may produce: some megabytes.
const MOST: usize = 4 << 20;

/// Calls a method of Python's values, if its result cannot be too large.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    let n_made = match (name, value.as_str()) {
        ("replace", Some(of)) => {
            let new = args.get(1).map_or(0, text);
            let n_found = match args.first().and_then(|old| old.as_str()) {
                Some("") => of.chars().count() + 1,
                Some(old) => of.matches(old).count(),
                None => 0,
            };
            of.len().saturating_add(n_found.saturating_mul(new))
        }
        ("join", Some(between)) => {
            let Some(all) = args.first() else {
                return unknown_method_callback(state, value, name, args);
            };
            let n = all
                .as_str()
                .map_or(all.len().unwrap_or(0), |text| text.chars().count());
            let of_all = match all.try_iter() {
                Ok(values) => values.map(|value| text(&value)).sum(),
                Err(_) => 0,
            };
            n.saturating_mul(between.len()).saturating_add(of_all)
        }
        // A width in a format may ask for any number of blanks.
        ("format", Some(of)) if widest(of) > 4 => MOST + 1,
        _ => 0,
    };
    if n_made > MOST {
        let problem = format!("{name} would make more than {MOST} characters");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    unknown_method_callback(state, value, name, args)
}

/// Number of digits of the longest number in a text.
fn widest(text: &str) -> usize {
    let numbers = text.split(|c: char| !c.is_ascii_digit());
    numbers.map(str::len).max().unwrap_or(0)
}

/// Formats a time, in seconds since 1970, like `strftime` in English and UTC; unknown letters stay as they are.
pub(super) fn strftime(format: &str, seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let time = DateTime::from_timestamp(seconds, 0).unwrap_or(DateTime::<Utc>::MAX_UTC);
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        text += &rest[..at];
        let letters = rest[at..].char_indices().skip(1);
        let letter = letters.into_iter().find(|(_, letter)| *letter != '-');
        let end = letter.map_or(rest.len(), |(from, letter)| at + from + letter.len_utf8());
        let item = &rest[at..end];
        let items: Vec<Item<'_>> = StrftimeItems::new(item).collect();
        if items.contains(&Item::Error) {
            text += item;
        } else {
            text += &time.format_with_items(items.iter()).to_string();
        }
        rest = &rest[end..];
    }
    text + rest
}

/// Formats a value like Python's `json.dumps`, without escaping non-ASCII characters.
pub(super) fn json(value: &Value, indent: Option<usize>) -> Result<String, Error> {
    let mut text = String::new();
    write_json(value, indent, 0, &mut text)?;
    Ok(text)
}

fn write_json(
    value: &Value,
    indent: Option<usize>,
    depth: usize,
    to: &mut String,
) -> Result<(), Error> {
    let is_too_much = depth > 100 || to.len() > MOST;
    if is_too_much {
        let problem = "tojson would make more than a template may";
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    let ends = match value.kind() {
        ValueKind::Map => ['{', '}'],
        ValueKind::Seq | ValueKind::Iterable => ['[', ']'],
        ValueKind::None | ValueKind::Undefined => {
            to.push_str("null");
            return Ok(());
        }
        ValueKind::Bool => {
            to.push_str(if value.is_true() { "true" } else { "false" });
            return Ok(());
        }
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default().to_owned();
            let _ = write!(to, "{}", serde_json::Value::String(text));
            return Ok(());
        }
        _ => {
            let _ = write!(to, "{value}");
            return Ok(());
        }
    };
    let new_line = |depth: usize, to: &mut String| {
        if let Some(n) = indent {
            to.push('\n');
            to.extend(std::iter::repeat_n(' ', n * depth));
        }
    };
    let is_map = ends[0] == '{';
    let mut n = 0;
    to.push(ends[0]);
    for one in value.try_iter()? {
        if n > 0 {
            to.push_str(if indent.is_some() { "," } else { ", " });
        }
        n += 1;
        new_line(depth + 1, to);
        if is_map {
            let _ = write!(to, "{}: ", serde_json::Value::String(one.to_string()));
            write_json(&value.get_item(&one)?, indent, depth + 1, to)?;
        } else {
            write_json(&one, indent, depth + 1, to)?;
        }
    }
    if n > 0 {
        new_line(depth, to);
    }
    to.push(ends[1]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        let format = "%A %d %B %Y %H:%M:%S %j %a %b %y %-d %I%p %%";
        for (seconds, expected) in [
            (
                0,
                "Thursday 01 January 1970 00:00:00 001 Thu Jan 70 1 12AM %",
            ),
            // 29 February 2024, half past one in the afternoon.
            (
                1_709_213_400,
                "Thursday 29 February 2024 13:30:00 060 Thu Feb 24 29 01PM %",
            ),
            (
                1_735_689_599,
                "Tuesday 31 December 2024 23:59:59 366 Tue Dec 24 31 11PM %",
            ),
        ] {
            assert_eq!(strftime(format, seconds), expected);
        }
    }
}
