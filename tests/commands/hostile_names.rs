//! Names and texts inside files that try to move the cursor, to change colours, or to be computed: they reach a terminal as letters.

use serde_json::{Value, json};
use testing::checkpoint_copy::{Copy, Stored, attnscope, text};
use testing::running::TOKENS;

/// Clears the screen, sets the title, moves in C1, turns the order of letters around, ends a line.
const HOSTILE: &str = "a\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{7f}\u{202e}\u{2028}\nb";

/// Letters that only a terminal or a reader of bidirectional text would act on.
fn is_harmful(letter: char) -> bool {
    (letter.is_control() && letter != '\n' && letter != '\t')
        || ['\u{202e}', '\u{2028}', '\u{2066}'].contains(&letter)
}

fn assert_harmless(what: &str, bytes: &[u8]) {
    let shown = text(bytes);
    let harmful: Vec<char> = shown.chars().filter(|c| is_harmful(*c)).collect();
    assert!(harmful.is_empty(), "{what}: {harmful:?} in {shown:?}");
}

/// Runs a command, whatever it says, and looks at both of its outputs.
fn harmless(arguments: &[&str]) -> (String, String) {
    let ran = attnscope(arguments);
    assert_harmless("standard output", &ran.stdout);
    assert_harmless("standard error", &ran.stderr);
    (text(&ran.stdout), text(&ran.stderr))
}

fn hostile_checkpoint() -> Copy {
    let copy = Copy::of("gpt2");
    copy.weights(|weights| {
        weights.insert(HOSTILE.to_owned(), Stored::f32(&[1], &[0.5]));
    });
    copy
}

#[test]
fn names_of_tensors_are_letters_in_every_list() {
    let copy = hostile_checkpoint();
    let path = copy.path().to_str().expect("a path");
    let (table, _) = harmless(&["tensors", path]);
    assert!(
        table.contains("a\\u{1b}[2J") && table.contains("\\u{a}b"),
        "{table}"
    );
    let (with_stats, _) = harmless(&["tensors", path, "--stats"]);
    assert_eq!(table.lines().count(), with_stats.lines().count());
    let (listed, _) = harmless(&["tensors", path, "--format", "json"]);
    let listed: Vec<Value> = serde_json::from_str(&listed).expect("JSON");
    assert!(listed.iter().any(|tensor| tensor["name"] == HOSTILE));
}

#[test]
fn errors_are_one_line_whatever_is_in_them() {
    let copy = Copy::of("gpt2");
    copy.header(|header| {
        let first = header.as_object_mut().expect("an object");
        let entry = json!({ "dtype": "F32", "shape": [1 << 20], "data_offsets": [0, 4] });
        first.insert(HOSTILE.to_owned(), entry);
    });
    let path = copy.path().to_str().expect("a path");
    for command in ["report", "tensors", "check"] {
        let (_, said) = harmless(&[command, path]);
        assert_eq!(said.lines().count(), 1, "{command}: {said}");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let named = directory.path().join(HOSTILE.replace('/', ""));
    std::fs::create_dir(&named).expect("makes");
    let (_, said) = harmless(&[
        "report",
        named.to_str().expect("a path"),
        "--tokens",
        TOKENS,
    ]);
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn ids_of_prompts_and_names_of_targets_are_letters_in_every_format() {
    let copy = Copy::of("gpt2");
    let inputs = copy.file("prompts.jsonl");
    let prompt = json!({ "id": HOSTILE, "tokens": [5, 9, 2, 5, 9, 2] });
    std::fs::write(&inputs, prompt.to_string()).expect("writes");
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("a\u{1b}[31m\u{9b}b");
    std::os::unix::fs::symlink(copy.path(), &target).expect("links");
    let [inputs, target] = [&inputs, &target].map(|path| path.to_str().expect("a path"));
    for format in ["json", "csv", "markdown", "html"] {
        let (shown, _) = harmless(&["report", target, "--inputs", inputs, "--format", format]);
        assert!(!shown.is_empty(), "{format}");
    }
    for format in ["text", "json", "junit", "sarif", "github"] {
        let (shown, _) = harmless(&["check", target, "--inputs", inputs, "--format", format]);
        assert!(!shown.is_empty(), "{format}");
    }
    let (table, _) = harmless(&["heads", target, "--tokens", TOKENS]);
    assert!(!table.is_empty());
}

#[test]
fn a_text_in_csv_is_no_formula_unless_it_is_wanted_raw() {
    let copy = Copy::of("gpt2");
    let inputs = copy.file("prompts.jsonl");
    let lines: Vec<String> = ["=1+1", "+x", "-x", "@x", "\tx", "plain"]
        .iter()
        .map(|id| json!({ "id": id, "tokens": [5, 9, 2] }).to_string())
        .collect();
    std::fs::write(&inputs, lines.join("\n")).expect("writes");
    let [path, inputs] = [copy.path(), &inputs].map(|path| path.to_str().expect("a path"));
    let ids = |arguments: &[&str]| -> Vec<String> {
        let all = [
            &["report", path, "--inputs", inputs, "--format", "csv"],
            arguments,
        ]
        .concat();
        let ran = attnscope(&all);
        assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
        let mut rows = csv::Reader::from_reader(ran.stdout.as_slice());
        let column = rows
            .headers()
            .expect("a header")
            .iter()
            .position(|h| h == "prompt");
        let column = column.expect("a column");
        let mut ids: Vec<String> = rows
            .records()
            .map(|row| row.expect("a row")[column].to_owned())
            .collect();
        ids.dedup();
        ids
    };
    assert_eq!(ids(&[]), ["'\tx", "'+x", "'-x", "'=1+1", "'@x", "plain"]);
    assert_eq!(
        ids(&["--raw-csv"]),
        ["\tx", "+x", "-x", "=1+1", "@x", "plain"]
    );
}

#[test]
fn a_panel_that_is_drawn_shows_hostile_names_as_letters_or_leaves_them_out() {
    let copy = hostile_checkpoint();
    let path = copy.path().to_str().expect("a path");
    let plain = [
        "plot", path, "--tokens", TOKENS, "--panel", "model", "--output", "-",
    ];
    let (picture, _) = harmless(&[&plain[..], &["--size", "200x300"]].concat());
    assert!(picture.contains("a[2J"), "the name is not shown");
}

#[test]
fn a_name_in_the_table_of_a_panel_is_no_formula() {
    let copy = Copy::of("gpt2");
    copy.weights(|weights| {
        weights.insert("=1+1".to_owned(), Stored::f32(&[1], &[0.5]));
    });
    let path = copy.path().to_str().expect("a path");
    let [svg, csv] = ["model.svg", "model.csv"].map(|name| copy.output(name));
    for (more, name) in [(&[][..], "'=1+1"), (&["--raw-csv"], "=1+1")] {
        let to = svg.to_str().expect("a path");
        let plain = [
            "plot", path, "--tokens", TOKENS, "--panel", "model", "--force", "--output", to,
        ];
        harmless(&[&plain[..], more].concat());
        let mut rows = csv::Reader::from_path(&csv).expect("a table");
        let rows: Vec<csv::StringRecord> = rows.records().map(|row| row.expect("a row")).collect();
        assert!(
            rows.iter().any(|row| row.iter().any(|cell| cell == name)),
            "{name}"
        );
        // Numbers are numbers, also below 0.
        let is_spoilt = |cell: &str| cell.starts_with("'-") || cell.starts_with("'+");
        assert!(!rows.iter().any(|row| row.iter().any(is_spoilt)));
    }
}

#[test]
fn names_longer_than_any_column_and_shapes_of_many_axes_are_listed() {
    let copy = Copy::of("gpt2");
    copy.weights(|weights| {
        weights.insert("n".repeat(70_000), Stored::f32(&[1], &[0.5]));
        weights.insert("axes".to_owned(), Stored::f32(&[1; 30_000], &[0.5]));
    });
    let path = copy.path().to_str().expect("a path");
    for arguments in [&["tensors", path][..], &["tensors", path, "--stats"]] {
        let (table, _) = harmless(arguments);
        // Two long rows; the others are as wide as they need to be.
        let n_short = table.lines().filter(|line| line.len() < 300).count();
        assert_eq!(n_short + 2, table.lines().count());
        assert!(table.len() < 400_000, "{}", table.len());
    }
}

#[test]
fn a_file_of_settings_beside_a_checkpoint_is_told_of_in_every_verdict_and_can_be_ignored() {
    let copy = Copy::of("gpt2");
    copy.write("attnscope.toml", "[set]\nmask = \"bidirectional\"\n");
    let path = copy.path().to_str().expect("a path");
    let says = "attnscope.toml beside the checkpoint sets mask = bidirectional";
    let prompt = ["--tokens", TOKENS];
    for format in ["text", "json", "junit", "sarif", "github"] {
        let all = [&["check", path, "--format", format][..], &prompt].concat();
        let (shown, told) = harmless(&all);
        assert!(shown.contains(says), "{format}: {shown}");
        assert!(told.contains(says), "{told}");
        let (shown, told) = harmless(&[&all[..], &["--no-settings"]].concat());
        assert!(
            !shown.contains("attnscope.toml") && !told.contains("attnscope.toml"),
            "{format}"
        );
    }
    for format in ["json", "markdown", "html"] {
        let all = [&["report", path, "--format", format][..], &prompt].concat();
        let (shown, _) = harmless(&all);
        let shown = shown.replace('\\', "");
        assert!(shown.contains("attnscope.toml beside"), "{format}: {shown}");
        let (shown, _) = harmless(&[&all[..], &["--no-settings"]].concat());
        assert!(!shown.contains("attnscope.toml"), "{format}");
    }
    // The mask that the file takes away shows in the numbers, and does not when the file is ignored.
    let entropy = |arguments: &[&str]| {
        let (shown, _) = harmless(&[&["report", path][..], &prompt, arguments].concat());
        let report: Value = serde_json::from_str(&shown).expect("JSON");
        report["prompts"][0]["layers"][0]["heads"][0]["stats"].clone()
    };
    assert_eq!(
        entropy(&["--no-settings"]),
        entropy(&["--set", "mask=causal"])
    );
    assert_ne!(entropy(&["--no-settings"]), entropy(&[]));
}
