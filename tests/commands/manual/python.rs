//! Every piece of Python in the manual is run by tests/python/snippets.py, and every name below attnscope leads somewhere.
//!
//! `PYTHON` names the Python. Where it has no torch, blocks are compiled and their names resolved; what a block lacks is said.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testing::checkpoint_copy::text;

use super::pages;
use super::snippets::{Kind, blocks, without_consoles};

/// Packages without which a block is only compiled; a block that lacks anything else fails.
const MAY_LACK: &[(&str, &str)] = &[
    (
        "torch",
        "cargo test needs no Python package; .ci/more names a Python with torch",
    ),
    ("pandas", "as torch"),
    ("pyarrow", "as torch"),
    (
        "duckdb",
        "one of three libraries of docs/cluster.md, of which a reader has one",
    ),
    ("polars", "as duckdb"),
];

/// Names below attnscope that a text calls: `attnscope.read(`.
fn called(text: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut names = Vec::new();
    for (at, word) in text.match_indices("attnscope.") {
        let begins = !text[..at].ends_with(|c: char| is_name(c) || c == '/' || c == '-');
        let rest = &text[at + word.len()..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        if begins && end > 0 && rest[end..].starts_with('(') {
            names.push(format!("attnscope.{}", &rest[..end]));
        }
    }
    names
}

/// The pieces of all pages, as the script reads them.
fn pieces() -> (usize, Value) {
    let (mut found, mut names) = (Vec::new(), Vec::new());
    for page in pages() {
        let name = page.name();
        if name.ends_with("CHANGELOG.md") {
            continue;
        }
        for block in blocks(&without_consoles(&page.text)) {
            let code = block.lines.join("\n");
            if block.kind == Kind::Python {
                found.push(json!({"page": name, "line": block.line, "code": code}));
            } else {
                let is_python =
                    |line: &String| line.starts_with("import ") || line.starts_with(">>> ");
                let place = format!("{name}:{}", block.line);
                assert!(
                    !block.lines.iter().any(is_python),
                    "{place}: mark it `python`"
                );
            }
        }
        let mut of_page = called(&page.text);
        of_page.sort();
        of_page.dedup();
        names.extend(
            of_page
                .into_iter()
                .map(|called| json!({"page": name, "name": called})),
        );
    }
    (
        found.len() + names.len(),
        json!({"blocks": found, "names": names}),
    )
}

#[test]
fn every_piece_of_python_runs() {
    let (n_pieces, given) = pieces();
    assert!(n_pieces >= 14, "{n_pieces} pieces only");
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let script = testing::root().join("tests/python/snippets.py");
    let mut command = Command::new(&python);
    command.arg(script.canonicalize().expect("the script"));
    command.env("ATTNSCOPE", testing::program());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.stderr(Stdio::piped()).spawn() else {
        say(&format!(
            "not run: the manual's Python, since there is no {}",
            python.display()
        ));
        return;
    };
    let mut stdin = child.stdin.take().expect("its input");
    stdin
        .write_all(given.to_string().as_bytes())
        .expect("writes");
    drop(stdin);
    let ran = child.wait_with_output().expect("ends");
    let (printed, said) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success(), "{printed}{said}");
    let lines: Vec<&str> = printed.lines().collect();
    let failed = lines.iter().filter(|line| line.starts_with("failed "));
    let failed: Vec<&str> = failed.copied().collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let told = lines
        .iter()
        .filter(|line| line.starts_with("lacks ") || line.starts_with("ran "));
    assert_eq!(told.count(), n_pieces, "{printed}{said}");
    for line in lines.iter().filter(|line| line.starts_with("lacks ")) {
        let package = line.rsplit(' ').next().unwrap_or_default();
        let reason = MAY_LACK.iter().find(|(name, _)| *name == package);
        let (_, reason) = reason.unwrap_or_else(|| panic!("{line}"));
        say(&format!("compiled, not run: {line} ({reason})"));
    }
}

/// Tells whoever runs the tests, also where a test passes.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn names_that_are_called_are_found() {
    let text = "`attnscope.read(path)`, `callbacks=[attnscope.a.B(1)]`, `attnscope.mask`, x/attnscope.md(a), myattnscope.b()";
    assert_eq!(called(text), ["attnscope.read", "attnscope.a.B"]);
}
