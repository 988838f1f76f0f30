//! Code of a page that is no console block, cut into blocks: commands of a shell, and Python.

use super::blocks::CONSOLE;

/// What a block is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Lines that a shell runs, with nothing shown below them.
    Shell,
    Python,
    /// Output, formulas, settings: nothing to run.
    Other,
}

/// A block, with its lines as they stand.
#[derive(Debug)]
pub struct Block {
    pub kind: Kind,
    /// Of its first line, counted from 1.
    pub line: usize,
    pub lines: Vec<String>,
}

/// First words of lines that a shell runs.
const PROGRAMS: &[&str] = &[
    "$",
    ".ci/more",
    ".ci/run",
    ".ci/wheel",
    "ATTNSCOPE_SLOW=1",
    "attnscope",
    "cargo",
    "cp",
    "env/bin/attnscope",
    "env/bin/pip",
    "exec",
    "export",
    "git",
    "man",
    "mdbook",
    "pip",
    "python",
    "python3",
    "rm",
    "sbatch",
    "target/release/attnscope",
    "uv",
];

fn is_command(line: &str) -> bool {
    let first = line.split_whitespace().next();
    first.is_some_and(|word| PROGRAMS.contains(&word))
}

/// Every block of a page but console blocks.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut fence: Option<&str> = None;
    let mut is_indented = false;
    for (idx, line) in text.lines().enumerate() {
        let begin = |kind| Block {
            kind,
            line: idx + 1,
            lines: Vec::new(),
        };
        if line.starts_with("```") {
            is_indented = false;
            if fence.take().is_some() {
                continue;
            }
            fence = Some(line);
            let mut block = begin(match line {
                "```python" => Kind::Python,
                "```sh" | "```bash" => Kind::Shell,
                _ => Kind::Other,
            });
            block.line += 1;
            found.push(block);
            continue;
        }
        let code = match fence {
            Some(_) => Some(line),
            None => line.strip_prefix("    "),
        };
        // A blank line does not end an indented block.
        let Some(code) = code else {
            is_indented &= line.is_empty();
            continue;
        };
        if fence.is_none() && !is_indented {
            is_indented = true;
            found.push(begin(Kind::Other));
        }
        if let Some(block) = found.last_mut() {
            block.lines.push(code.to_owned());
        }
    }
    found.retain(|block| !block.lines.iter().all(|line| line.trim().is_empty()));
    for block in &mut found {
        if block.kind == Kind::Other && block.lines.iter().any(|line| is_command(line)) {
            block.kind = Kind::Shell;
        }
    }
    found
}

/// The pages' blocks without those of consoles, which have a test of their own.
pub fn without_consoles(text: &str) -> String {
    let mut is_console = false;
    let keep = |line: &str| {
        let is_fence = line.starts_with("```");
        let was_console = is_console;
        if is_fence {
            is_console = !is_console && CONSOLE.contains(&line);
        }
        if was_console || is_console {
            String::new()
        } else {
            line.to_owned()
        }
    };
    text.lines().map(keep).collect::<Vec<_>>().join("\n")
}

/// The commands of a block, lines joined; comments are none.
///
/// # Errors
/// A line that is no command: what a command shows stands in a console block.
pub fn commands(block: &Block) -> Result<Vec<String>, String> {
    let mut commands: Vec<String> = Vec::new();
    let mut goes_on = false;
    let mut is_shown = false;
    for line in &block.lines {
        let words = line.trim();
        if words.is_empty() || words.starts_with('#') {
            continue;
        }
        let (words, continues) = match words.strip_suffix('\\') {
            Some(words) => (words, true),
            None => (words, false),
        };
        if goes_on && let Some(last) = commands.last_mut() {
            last.push_str(words);
        } else if let Some(command) = words.strip_prefix("$ ") {
            is_shown = true;
            commands.push(command.to_owned());
        } else if is_command(words) {
            commands.push(words.strip_prefix("exec ").unwrap_or(words).to_owned());
        } else if !is_shown {
            return Err(format!(
                "{words}: expected a command, or a block of its own"
            ));
        }
        goes_on = continues;
    }
    Ok(commands)
}

#[test]
fn blocks_are_told_apart_by_what_they_are_written_in() {
    let page = "# T\n\n    attnscope a \\\n      b\n    # why\n    cargo c   # d\n\ntext\n\n    x = 1\n\n```python\nimport a\n\nb\n```\n\n\
        ```console\n$ attnscope d\nshown\n```\n\n```bash\n#!/bin/bash\nexec attnscope e\n```\n\n```\nattnscope f\n```\n\n    $ python g\n    shown\n";
    let found = blocks(&without_consoles(page));
    let kinds: Vec<(Kind, usize)> = found.iter().map(|block| (block.kind, block.line)).collect();
    let expected = [
        (Kind::Shell, 3),
        (Kind::Other, 10),
        (Kind::Python, 13),
        (Kind::Shell, 24),
        (Kind::Shell, 29),
        (Kind::Shell, 32),
    ];
    assert_eq!(kinds, expected);
    let shell = found.iter().filter(|block| block.kind == Kind::Shell);
    let all: Vec<String> = shell
        .flat_map(|block| commands(block).expect("commands"))
        .collect();
    let expected = [
        "attnscope a b",
        "cargo c   # d",
        "attnscope e",
        "attnscope f",
        "python g",
    ];
    assert_eq!(all, expected);
    let mixed = blocks("    attnscope a\n    what it shows\n");
    assert!(commands(&mixed[0]).is_err());
}
