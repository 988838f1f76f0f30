//! Rules of the repository: who imports whom, how files begin, how long they are.

use std::path::{Path, PathBuf};

/// Rooms and their levels; imports go to a lower level, or along an edge below.
const LEVELS: &[(&str, u32)] = &[
    ("bootstrap", 0),
    ("caught", 0),
    ("counted", 0),
    ("error", 0),
    ("checkpoint", 0),
    ("prompt", 0),
    ("kernels", 0),
    ("sample", 0),
    ("machine", 0),
    ("nearest", 0),
    ("pace", 0),
    ("place", 0),
    ("ops", 1),
    ("attention", 1),
    ("model", 1),
    ("family", 2),
    ("stats", 3),
    ("checks", 3),
    ("analysis", 4),
    ("compare", 4),
    ("config", 4),
    ("signals", 4),
    ("bundles", 5),
    ("fetch", 5),
    ("store", 5),
    ("worker", 5),
    ("report", 5),
    ("record", 6),
    ("batch", 6),
    ("history", 6),
    ("tui", 7),
    ("cli", 8),
];

/// Imports inside one level that are allowed.
const EDGES: &[(&str, &str)] = &[
    ("checkpoint", "counted"),
    ("checkpoint", "error"),
    ("checkpoint", "kernels"),
    ("checkpoint", "machine"),
    ("machine", "error"),
    ("prompt", "caught"),
    ("prompt", "counted"),
    ("prompt", "error"),
    ("prompt", "checkpoint"),
    ("ops", "attention"),
    ("model", "ops"),
    ("model", "attention"),
    ("checks", "stats"),
    ("compare", "analysis"),
    ("history", "record"),
    ("report", "store"),
    ("store", "fetch"),
    ("batch", "record"),
    ("batch", "history"),
];

/// Lines of a file at most.
const LONGEST: usize = 520;

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).expect("the source tree") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn root() -> &'static Path {
    testing::root()
}

fn level_of(room: &str) -> Option<u32> {
    LEVELS
        .iter()
        .find(|(name, _)| *name == room)
        .map(|(_, level)| *level)
}

fn room_of(path: &Path) -> String {
    let inside = path.strip_prefix(root().join("src")).expect("a source");
    let inside = ["compute", "engine"]
        .iter()
        .find_map(|name| inside.strip_prefix(name).ok())
        .unwrap_or(inside);
    let first = inside
        .iter()
        .next()
        .expect("a part")
        .to_string_lossy()
        .into_owned();
    first.trim_end_matches(".rs").to_owned()
}

#[test]
fn rooms_import_only_what_lies_below_them() {
    let mut n_seen = 0;
    for path in sources(&root().join("src")) {
        let room = room_of(&path);
        let Some(level) = level_of(&room) else {
            assert!(
                ["lib", "main", "examples"].contains(&room.as_str()),
                "{room} has no level"
            );
            continue;
        };
        let text = std::fs::read_to_string(&path).expect("a source file");
        let own = text.match_indices("crate::");
        let of_engine = text.match_indices("attnscope_engine::");
        let of_compute = text.match_indices("attnscope_compute::");
        for (at, before) in own.chain(of_engine).chain(of_compute) {
            let imported: String = text[at + before.len()..]
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || *c == '_')
                .collect();
            if imported == room || imported.is_empty() {
                continue;
            }
            let Some(below) = level_of(&imported) else {
                continue;
            };
            let is_edge = EDGES.contains(&(room.as_str(), imported.as_str()));
            assert!(
                below < level || is_edge,
                "{}: {room} may not import {imported}",
                path.display()
            );
            n_seen += 1;
        }
    }
    assert!(n_seen > 50, "the rule looked at {n_seen} imports only");
}

#[test]
fn only_the_screen_names_the_terminal_crates() {
    for path in sources(&root().join("src"))
        .iter()
        .filter(|p| room_of(p) != "tui")
    {
        let text = std::fs::read_to_string(path).expect("a source file");
        for name in ["ratatui::", "crossterm::"] {
            assert!(!text.contains(name), "{}: {name}", path.display());
        }
    }
}

#[test]
fn unsafe_code_stands_in_two_rooms_only() {
    for path in sources(&root().join("src")) {
        let text = std::fs::read_to_string(&path).expect("a source file");
        if text.contains("unsafe {") {
            assert!(
                ["checkpoint", "kernels"].contains(&room_of(&path).as_str()),
                "{}",
                path.display()
            );
            assert!(
                text.contains("// SAFETY:"),
                "{}: unsafe without its reason",
                path.display()
            );
        }
    }
}

#[test]
fn every_file_begins_with_a_sentence_and_holds_one_idea() {
    for directory in [
        "src",
        "tests",
        "benches",
        "fixtures/testing",
        "fixtures/train",
    ] {
        for path in sources(&root().join(directory)) {
            let text = std::fs::read_to_string(&path).expect("a source file");
            assert!(
                text.starts_with("//! "),
                "{}: begins without a //! sentence",
                path.display()
            );
            let n_lines = text.lines().count();
            assert!(n_lines <= LONGEST, "{}: {n_lines} lines", path.display());
        }
    }
}

#[test]
fn no_file_is_called_after_nothing() {
    for path in sources(&root().join("src")) {
        let stem = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        for name in [
            "utils", "helpers", "common", "misc", "manager", "base", "types",
        ] {
            assert_ne!(stem, name, "{}", path.display());
        }
    }
}

#[test]
fn every_benchmark_is_declared_and_explained() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("a text");
    let (manifest, page) = (read("Cargo.toml"), read("docs/performance.md"));
    let files = sources(&root().join("benches"));
    let benchmarks = files.iter().filter(|path| !path.ends_with("mod.rs"));
    for path in benchmarks {
        let name = path.file_stem().expect("a name").to_string_lossy();
        // Without a declaration cargo would give it its own harness, and build it with the tests.
        let declared = format!("[[bench]]\nname = \"{name}\"\nharness = false\ntest = false\n");
        assert!(
            manifest.contains(&declared),
            "{name} is not declared as the others are"
        );
        assert!(
            page.contains(&format!("| `{name}` |")),
            "docs/performance.md does not say what {name} measures"
        );
    }
}

/// Files that open what the system itself provides, or the one function that opens files found on disk.
const OPENS: [&str; 4] = [
    "checkpoint/regular.rs",
    "checkpoint/writers.rs",
    // What the system itself writes under /proc.
    "signals/owner.rs",
    "signals/watch.rs",
];

#[test]
fn files_found_on_disk_are_opened_by_one_function() {
    let calls = [
        "File::open(",
        "fs::read(",
        "fs::read_to_string(",
        "read(true)",
    ];
    for path in sources(&root().join("src")) {
        let name = path.to_string_lossy();
        if OPENS.iter().any(|known| name.ends_with(known)) || name.ends_with("/tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let code = code.replace("DataFile::open(", "");
        for call in calls {
            let is_log = name.ends_with("cli/log_file.rs") && call == "read(true)";
            assert!(
                is_log || !code.contains(call),
                "{name}: {call}…) waits for a pipe; use open_regular or read_regular"
            );
        }
    }
}
