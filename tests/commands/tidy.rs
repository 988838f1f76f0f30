//! Rules of the repository that neither cargo nor clippy holds: how files begin, how long they are, who opens files.

use std::path::{Path, PathBuf};

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
        // Without a declaration cargo would give it its own harness.
        let declared = format!("{{ name = \"{name}\", harness = false }}");
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
    "system/signals/owner.rs",
    "system/signals/watch.rs",
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
