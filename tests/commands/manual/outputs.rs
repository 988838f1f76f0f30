//! Every command that the manual shows is run, and what it prints is compared with what the page shows.
//!
//! In a block marked `console`, a line that begins with `$ ` is run by a shell, in an empty directory of the page's own that
//! has `fixtures` in it. Below it stands what goes to standard output, and the error of a command that fails. `…` on a line of
//! its own stands for any lines, and inside a line for any text. `UPDATE=1` writes what was printed into the page.

use std::process::Command;
use std::sync::Mutex;

use clap::Parser;

use super::blocks::{Shown, other_code, shown, words};
use super::{Page, pages};

const ANY: &str = "…";

/// Whether a line is what the page shows, where `…` stands for any text.
fn fits_line(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split(ANY);
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Whether the lines are what the page shows, where a line of `…` stands for any number of them.
fn fits(pattern: &[String], lines: &[String]) -> bool {
    // fitting[n]: the patterns so far fit the first n lines.
    let mut fitting = vec![false; lines.len() + 1];
    fitting[0] = true;
    for pattern in pattern {
        let mut next = vec![false; lines.len() + 1];
        if pattern.trim() == ANY {
            let mut is_reached = false;
            for (next, was) in next.iter_mut().zip(&fitting) {
                is_reached |= was;
                *next = is_reached;
            }
        } else {
            for (n, line) in lines.iter().enumerate() {
                next[n + 1] = fitting[n] && fits_line(pattern, line);
            }
        }
        fitting = next;
    }
    fitting[lines.len()]
}

/// What the page shows from now on: the lines printed, shortened where the page shortened them before.
fn updated(pattern: &[String], lines: &[String]) -> Vec<String> {
    let elided: Vec<usize> = (0..pattern.len())
        .filter(|idx| pattern[*idx].trim() == ANY)
        .collect();
    let keep = |old: Option<&String>, new: &String| match old {
        Some(old) if fits_line(old, new) => old.clone(),
        _ => new.clone(),
    };
    let (Some(first), Some(last)) = (elided.first(), elided.last()) else {
        let of = |(idx, line)| keep(pattern.get(idx), line);
        return lines.iter().enumerate().map(of).collect();
    };
    let n_after = pattern.len() - last - 1;
    if lines.len() <= first + n_after {
        return lines.to_vec();
    }
    let before = pattern[..*first].iter().zip(lines);
    let after = pattern[last + 1..]
        .iter()
        .zip(&lines[lines.len() - n_after..]);
    let kept = |(old, new): (&String, &String)| keep(Some(old), new);
    let ellipsis = [pattern[*first].clone()];
    before
        .map(kept)
        .chain(ellipsis)
        .chain(after.map(kept))
        .collect()
}

/// Runs the commands of one page in order, and returns what each of them printed.
fn run(all: &[Shown]) -> Vec<Vec<String>> {
    let directory = tempfile::tempdir().expect("a directory");
    let root = testing::root().canonicalize().expect("the repository");
    let fixtures = directory.path().join("fixtures");
    #[cfg(unix)]
    std::os::unix::fs::symlink(root.join("fixtures"), fixtures).expect("a link");
    let program = testing::program();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", program.parent().expect("its place").display());
    let mut last = 0;
    let run = |shown: &Shown| {
        let script = format!("(exit {last}); {}", shown.command);
        let home = directory.path().join(".home");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(directory.path());
        for name in ["COLUMNS", "NO_COLOR", "HF_HOME", "HF_HUB_OFFLINE"] {
            command.env_remove(name);
        }
        for name in [
            "HOME",
            "XDG_CACHE_HOME",
            "XDG_STATE_HOME",
            "XDG_CONFIG_HOME",
        ] {
            command.env(name, &home);
        }
        let output = command.env("PATH", &path).output().expect("a shell");
        last = output.status.code().unwrap_or(1);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (printed, told) = (text(&output.stdout), text(&output.stderr));
        let error = told
            .lines()
            .skip_while(|line| !line.starts_with("attnscope: "));
        let error = error.take(if last == 2 { usize::MAX } else { 0 });
        let lines = printed.lines().chain(error);
        lines.map(|line| line.trim_end().to_owned()).collect()
    };
    all.iter().map(run).collect()
}

/// Why a page does not show what its commands print; under `UPDATE=1` it is written anew instead.
fn differences(page: &Page) -> (usize, Vec<String>) {
    let all = shown(&page.text, std::env::var_os("ATTNSCOPE_SLOW").is_some());
    let mut lines: Vec<String> = page.text.lines().map(str::to_owned).collect();
    let mut wrong = Vec::new();
    for (shown, printed) in all.iter().zip(run(&all)).rev() {
        if fits(&shown.output, &printed) {
            continue;
        }
        lines.splice(shown.lines.clone(), updated(&shown.output, &printed));
        wrong.push(format!(
            "{}:{}: $ {}\nshown:\n{}\nprinted:\n{}",
            page.name(),
            shown.lines.start,
            shown.command,
            shown.output.join("\n"),
            printed.join("\n"),
        ));
    }
    if std::env::var_os("UPDATE").is_some() && !wrong.is_empty() {
        std::fs::write(&page.path, lines.join("\n") + "\n").expect("the page is written");
        wrong.clear();
    }
    (all.len(), wrong)
}

#[test]
#[cfg(unix)]
fn every_command_prints_what_its_page_shows() {
    let pages = pages();
    let left = Mutex::new(pages.iter());
    let found = Mutex::new((0, Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("no panic").next();
                    let Some(page) = next else { break };
                    let (n, wrong) = differences(page);
                    let mut found = found.lock().expect("no panic");
                    found.0 += n;
                    found.1.extend(wrong);
                }
            });
        }
    });
    let (n_run, wrong) = found.into_inner().expect("no panic");
    assert!(
        wrong.is_empty(),
        "{}\n\nUPDATE=1 cargo test --test commands manual",
        wrong.join("\n\n")
    );
    assert!(n_run > 40, "{n_run} commands only");
}

#[test]
fn every_other_command_is_one_that_the_program_accepts() {
    let mut n_seen = 0;
    let mut wrong = Vec::new();
    for page in pages() {
        for line in other_code(&page.text) {
            let line = line.trim_start_matches("- ").trim_start_matches("run: ");
            if line.starts_with("$ attnscope") {
                wrong.push(format!("{}: {line}: mark it `console`", page.name()));
            }
            if !line.starts_with("attnscope ") {
                continue;
            }
            let words = words(line).into_iter().filter(|word| word != ANY);
            n_seen += 1;
            if let Err(error) = attnscope::cli::Cli::try_parse_from(words)
                && error.use_stderr()
            {
                wrong.push(format!("{}: {line}: {error}", page.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(n_seen > 40, "{n_seen} commands only");
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn only_what_is_left_out_may_differ() {
    for (pattern, printed, is_fit) in [
        ("a\nb", "a\nb", true),
        ("a\nb", "a\nb\nc", false),
        ("a\n…", "a\nb\nc", true),
        ("a\n…\nc", "a\nc", true),
        ("a\n…\nc", "a\nb", false),
        ("in … s", "in 0.3 s", true),
        ("in … s", "in 0.3 ms", false),
        ("x … y … z", "x 1 y 2 z", true),
        ("x … y … z", "x 1 z", false),
        ("", "", true),
        ("", "a", false),
        ("a", "", false),
    ] {
        assert_eq!(
            fits(&lines(pattern), &lines(printed)),
            is_fit,
            "{pattern:?} {printed:?}"
        );
    }
}

#[test]
fn an_update_keeps_what_was_left_out() {
    let new = updated(
        &lines("took … s\nold\n…\nend"),
        &lines("took 3 s\nnew\n1\n2\nend"),
    );
    assert_eq!(new, ["took … s", "new", "…", "end"]);
}
