//! Code blocks of a page: console blocks as commands with what they print, and command lines of all others.

use std::ops::Range;

/// A command of a console block, and what is shown below it.
#[derive(Debug)]
pub struct Shown {
    /// The words of the command, lines joined.
    pub command: String,
    pub output: Vec<String>,
    /// Which lines of the page hold the output.
    pub lines: Range<usize>,
}

/// A console block whose commands take seconds: it is run where `ATTNSCOPE_SLOW` is set.
const SLOW: &str = "```console slow";
/// How console blocks begin.
pub const CONSOLE: [&str; 2] = ["```console", SLOW];

/// The commands of every console block; those that take seconds only where they are asked for.
pub fn shown(text: &str, with_slow: bool) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let mut is_inside = false;
    let mut is_going_on = false;
    for (idx, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            let is_run = line == "```console" || (with_slow && line == SLOW);
            is_inside = !is_inside && is_run;
            is_going_on = false;
            continue;
        }
        if !is_inside {
            continue;
        }
        let begun = line.strip_prefix("$ ");
        let continued = is_going_on.then(|| line.trim_start());
        if let Some(words) = begun.or(continued) {
            let (words, goes_on) = match words.strip_suffix('\\') {
                Some(words) => (words, true),
                None => (words, false),
            };
            if begun.is_some() {
                found.push(Shown {
                    command: String::new(),
                    output: Vec::new(),
                    lines: 0..0,
                });
            }
            is_going_on = goes_on;
            if let Some(last) = found.last_mut() {
                last.command.push_str(words);
                last.lines = idx + 1..idx + 1;
            }
        } else if let Some(last) = found.last_mut() {
            last.output.push(line.to_owned());
            last.lines.end = idx + 1;
        }
    }
    found
}

/// Lines of code that are no console block: of every other fence, and of indented blocks.
pub fn other_code(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut fence: Option<&str> = None;
    let mut is_going_on = false;
    for line in text.lines() {
        if line.starts_with("```") {
            fence = match fence {
                None => Some(line),
                Some(_) => None,
            };
            continue;
        }
        let code = match fence {
            Some("```console" | SLOW) => None,
            Some(_) => Some(line),
            None => line.strip_prefix("    "),
        };
        let Some(code) = code else {
            is_going_on = false;
            continue;
        };
        let goes_on = code.ends_with('\\');
        let code = code.trim_end_matches('\\').trim();
        match lines.last_mut().filter(|_| is_going_on) {
            Some(last) => last.extend([" ", code]),
            None => lines.push(code.to_owned()),
        }
        is_going_on = goes_on;
    }
    lines
}

/// The words of the first command of a shell line.
pub fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut is_quoted = false;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                (quote, is_quoted) = (Some(c), true);
            }
            (None, '|' | '>' | ';' | '&' | '#' | '<') => break,
            (None, ' ') => {
                if is_quoted || words.last().is_some_and(|word| !word.is_empty()) {
                    words.push(String::new());
                }
                is_quoted = false;
            }
            (_, c) => {
                if let Some(word) = words.last_mut() {
                    word.push(c);
                }
            }
        }
    }
    if !is_quoted && words.last().is_some_and(String::is_empty) {
        words.pop();
    }
    words
}

#[test]
fn words_end_where_the_command_does() {
    let line = r#"attnscope report A "two words" '' --format csv 2>/dev/null | head"#;
    let expected = [
        "attnscope",
        "report",
        "A",
        "two words",
        "",
        "--format",
        "csv",
        "2",
    ];
    assert_eq!(words(line), expected);
    assert_eq!(words("attnscope demo   # opens it"), ["attnscope", "demo"]);
}

#[test]
fn commands_and_their_output_are_told_apart() {
    let page =
        "# T\n\n```console\n$ a \\\n    b\none\ntwo\n$ c\n```\n\n```sh\nd \\\n e\n```\n\n    f\n";
    assert_eq!(shown("```console slow\n$ a\n```\n", false).len(), 0);
    assert_eq!(shown("```console slow\n$ a\n```\n", true).len(), 1);
    let found = shown(page, false);
    let commands: Vec<&str> = found.iter().map(|shown| shown.command.as_str()).collect();
    assert_eq!(commands, ["a b", "c"]);
    assert_eq!(found[0].output, ["one", "two"]);
    assert_eq!(
        (found[0].lines.clone(), found[1].lines.clone()),
        (5..7, 8..8)
    );
    assert_eq!(other_code(page), ["d e", "f"]);
}
