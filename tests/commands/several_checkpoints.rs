//! Reports on several checkpoints: the table with a row for each, in all formats alike, and targets that cannot be read.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use attnscope_report::record::Table;
use serde_json::Value;
use testing::checkpoint_copy::{Copy, attnscope, text};
use testing::effort::some_of;
use testing::running::TOKENS;

/// A training with two checkpoints, and something that is none.
struct Training(Copy);

impl Training {
    fn new() -> Self {
        let training = Copy::of("gpt2");
        for step in ["step-450", "step-50"] {
            let directory = training.file(step);
            fs::create_dir(&directory).expect("makes");
            for name in ["config.json", "model.safetensors"] {
                fs::copy(training.file(name), directory.join(name)).expect("copies");
            }
        }
        for name in ["config.json", "model.safetensors"] {
            training.remove(name);
        }
        Self(training)
    }

    fn path(&self) -> &str {
        utf8(self.0.path())
    }

    fn file(&self, name: &str) -> String {
        utf8(&self.0.file(name)).to_owned()
    }
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("a path")
}

fn ran(arguments: &[&str]) -> Vec<u8> {
    let ran = attnscope(arguments);
    assert_eq!(
        ran.status.code(),
        Some(0),
        "{arguments:?}: {}",
        text(&ran.stderr)
    );
    ran.stdout
}

#[test]
fn a_directory_of_checkpoints_is_one_table_in_order_of_steps() {
    let training = Training::new();
    let [csv, parquet] = ["table.csv", "table.parquet"].map(|name| training.0.output(name));
    for (format, target) in [("csv", &csv), ("parquet", &parquet)] {
        let asked = [
            "report",
            training.path(),
            "--tokens",
            TOKENS,
            "--format",
            format,
        ];
        ran(&[&asked[..], &["--output", utf8(target)]].concat());
    }
    let of_csv = Table::read_csv(&csv).expect("reads");
    let of_parquet = Table::read_parquet(&parquet).expect("reads");
    assert_eq!(of_csv.rows.len(), 2 * 3 * (1 + 4));
    let steps: Vec<Option<u64>> = of_csv.rows.iter().map(|row| row.step).collect();
    let half = steps.len() / 2;
    assert!(steps[..half].iter().all(|step| *step == Some(50)));
    assert!(steps[half..].iter().all(|step| *step == Some(450)));
    // NaN is a number that a table holds: compared by its bits.
    let bits = |table: &Table| -> Vec<Vec<Option<u64>>> {
        let of_row = |row: &attnscope_report::record::Row| {
            row.stats
                .iter()
                .map(|value| value.map(f64::to_bits))
                .collect()
        };
        table.rows.iter().map(of_row).collect()
    };
    assert_eq!(bits(&of_csv), bits(&of_parquet));
    for (a, b) in of_csv.rows.iter().zip(&of_parquet.rows) {
        assert_eq!(
            (&a.checkpoint, a.step, &a.prompt),
            (&b.checkpoint, b.step, &b.prompt)
        );
        assert_eq!((a.n_tokens, &a.stack), (b.n_tokens, &b.stack));
        assert_eq!((a.layer, a.head), (b.layer, b.head));
        assert_eq!(a.loss.map(f64::to_bits), b.loss.map(f64::to_bits));
    }
    assert_eq!(of_parquet.about.version, env!("CARGO_PKG_VERSION"));
    let models: Value = serde_json::from_str(&of_parquet.about.models).expect("JSON");
    assert_eq!(models[1]["name"], "step-450");
    // The same run gives the same bytes.
    let again = training.0.output("again.parquet");
    let asked = [
        "report",
        training.path(),
        "--tokens",
        TOKENS,
        "--format",
        "parquet",
        "--output",
    ];
    ran(&[&asked[..], &[utf8(&again)]].concat());
    assert!(fs::read(&again).expect("reads") == fs::read(&parquet).expect("reads"));
}

#[test]
fn json_of_several_checkpoints_names_each_and_of_one_is_what_it_was() {
    let training = Training::new();
    let (first, second) = (training.file("step-450"), training.file("step-50"));
    let asked = ["report", &first, &second, "--tokens", TOKENS];
    let several: Value = serde_json::from_slice(&ran(&asked)).expect("JSON");
    assert_eq!(several["version"], 3);
    let names = [0, 1].map(|idx| several["checkpoints"][idx]["checkpoint"].clone());
    assert_eq!(names, ["step-50", "step-450"]);
    let one: Value =
        serde_json::from_slice(&ran(&["report", &first, "--tokens", TOKENS])).expect("JSON");
    assert_eq!(one["version"], 3);
    assert_eq!(several["checkpoints"][1]["prompts"], one["prompts"]);
    assert_eq!(several["checkpoints"][1]["model"], one["model"]);
    assert_eq!(several["checkpoints"][1]["step"], 450);
}

#[test]
fn a_target_that_cannot_be_read_is_told_of_and_the_others_are_written() {
    let training = Training::new();
    let missing = training.file("step-100");
    let asked = [
        "report",
        &training.file("step-50"),
        &missing,
        &training.file("step-450"),
        "--tokens",
        TOKENS,
    ];
    let ran = attnscope(&asked);
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{said}");
    let told: Vec<&str> = said
        .lines()
        .filter(|line| line.contains(&missing))
        .collect();
    let failed = told.iter().filter(|line| line.starts_with("attnscope: "));
    assert_eq!(failed.count(), 1, "{said}");
    // Nothing else is said: no terminal is there to show progress.
    assert_eq!(said.lines().count(), 1, "{said}");
    let several: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(several["checkpoints"].as_array().map(Vec::len), Some(2));
    // A place that cannot be written to is one error, not one for each target.
    let nowhere = training.file("no/such/table.csv");
    let asked = [
        "report",
        training.path(),
        "--tokens",
        TOKENS,
        "-q",
        "--output",
        &nowhere,
    ];
    let ran = attnscope(&asked);
    let said = text(&ran.stderr);
    assert_eq!(
        (ran.status.code(), said.lines().count()),
        (Some(2), 1),
        "{said}"
    );
    // When none can be read, nothing is written.
    let target = training.0.output("none.csv");
    let asked = [
        "report",
        &missing,
        &training.file("step-7"),
        "--format",
        "csv",
    ];
    let none = attnscope(&[&asked[..], &["--output", utf8(&target)]].concat());
    assert_eq!(none.status.code(), Some(2));
    assert!(!target.exists());
}

#[test]
fn a_check_judges_the_targets_that_can_be_read_in_every_format() {
    let training = Training::new();
    let missing = training.file("step-100");
    // As a shell puts them.
    let both = [
        &missing,
        &training.file("step-450"),
        &training.file("step-50"),
    ];
    for format in ["json", "text", "junit", "sarif", "github"] {
        let asked = [
            "check", both[0], both[1], both[2], "--tokens", TOKENS, "--format", format,
        ];
        let ran = attnscope(&asked);
        let (shown, said) = (text(&ran.stdout), text(&ran.stderr));
        assert_eq!(ran.status.code(), Some(2), "{format}: {said}");
        assert!(said.contains(&missing), "{format}: {said}");
        assert!(shown.contains("step-100"), "{format}: {shown}");
        let at = |name: &str| {
            shown
                .find(name)
                .unwrap_or_else(|| panic!("{format}: {shown}"))
        };
        assert!(at("step-50") < at("step-450"), "{format}: {shown}");
    }
    let asked = [
        "check", both[1], &missing, "--tokens", TOKENS, "--format", "json",
    ];
    let judged: Value = serde_json::from_slice(&attnscope(&asked).stdout).expect("JSON");
    let targets = judged["targets"].as_array().expect("targets");
    let errors = targets.iter().filter(|target| target["error"].is_string());
    assert_eq!((targets.len(), errors.count()), (2, 1));
    let asked = ["check", &missing, "--tokens", TOKENS];
    let alone = attnscope(&asked);
    assert_eq!(alone.status.code(), Some(2));
    assert!(alone.stdout.is_empty(), "{}", text(&alone.stdout));
}

#[test]
fn a_path_after_a_target_is_no_text() {
    let training = Training::new();
    let first = training.file("step-50");
    let refused = |last: &str| {
        let ran = attnscope(&["report", &first, last]);
        let said = text(&ran.stderr);
        assert_eq!(ran.status.code(), Some(2), "{last}: {said}");
        assert!(said.contains(last), "{last}: {said}");
    };
    refused("other/step-51");
    refused("model.safetensors");
    let both = attnscope(&["report", &first, "some text", "--tokens", TOKENS]);
    assert_eq!(both.status.code(), Some(2));
    assert!(
        text(&both.stderr).contains("expected one prompt"),
        "{}",
        text(&both.stderr)
    );
}

#[test]
fn a_report_in_a_directory_is_called_report() {
    let training = Training::new();
    let out = training.0.output("out/");
    fs::create_dir(&out).expect("makes");
    let first = training.file("step-50");
    for format in ["json", "csv", "parquet", "markdown", "html"] {
        let to = utf8(&out);
        ran(&[
            "report", &first, "--tokens", TOKENS, "--format", format, "--output", to,
        ]);
    }
    let mut names: Vec<String> = fs::read_dir(&out)
        .expect("lists")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "report.csv",
            "report.html",
            "report.json",
            "report.md",
            "report.parquet"
        ]
    );
    let html = [
        "report",
        training.path(),
        "--tokens",
        TOKENS,
        "--format",
        "html",
    ];
    let said = text(&attnscope(&html).stderr);
    assert!(said.contains("expected one checkpoint, found 2"), "{said}");
}

#[test]
fn a_damaged_table_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("table");
    let training = Training::new();
    let asked = [
        "report",
        &training.file("step-50"),
        "--tokens",
        TOKENS,
        "--format",
    ];
    let whole = ran(&[&asked[..], &["parquet"]].concat());
    let (mut n_read, mut n_tried) = (0, 0);
    for at in some_of((0..whole.len()).step_by(29), 4) {
        for bit in [0, 7] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            n_tried += 1;
            fs::write(&path, &bytes).expect("writes");
            match Table::read_parquet(&path) {
                Ok(_) => n_read += 1,
                Err(e) => assert!(!e.to_string().contains('\n'), "{e}"),
            }
        }
    }
    assert!(n_read < n_tried, "no change was noticed");
    fs::write(&path, "checkpoint,prompt,n_tokens,layer\na,b,x,0\n").expect("writes");
    let said = Table::read_csv(&path).expect_err("refused").to_string();
    assert!(
        said.contains("line 2: n_tokens: expected a number, found \"x\""),
        "{said}"
    );
    fs::write(&path, "checkpoint,prompt\na,b\n").expect("writes");
    let said = Table::read_csv(&path).expect_err("refused").to_string();
    assert!(said.contains("a column n_tokens, found none"), "{said}");
}

#[test]
fn prompts_come_from_standard_input_and_quiet_says_nothing() {
    let training = Training::new();
    let prompts = "{\"id\": \"a\", \"tokens\": [5, 9, 2]}\n{\"id\": \"b\", \"tokens\": [5, 9]}\n";
    let with = |arguments: &[&str]| {
        let mut child = Command::new(testing::program())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(prompts.as_bytes()).expect("writes");
        drop(stdin);
        child.wait_with_output().expect("ends")
    };
    // Two targets run what can be read once.
    let asked = ["report", training.path(), "--inputs", "-", "--quiet"];
    let piped = with(&asked);
    assert_eq!(piped.status.code(), Some(0), "{}", text(&piped.stderr));
    assert_eq!(text(&piped.stderr), "");
    training.0.write("prompts.jsonl", prompts);
    let of_file = ran(&[
        "report",
        training.path(),
        "--inputs",
        &training.file("prompts.jsonl"),
    ]);
    assert!(piped.stdout == of_file, "{}", text(&piped.stdout));
    let missing = training.file("step-7");
    let failed = with(&["report", training.path(), &missing, "--inputs", "-", "-q"]);
    let said = text(&failed.stderr);
    assert_eq!(
        (failed.status.code(), said.lines().count()),
        (Some(2), 1),
        "{said}"
    );
}

#[test]
fn types_of_heads_are_written_for_programs_too() {
    let training = Training::new();
    let first = training.file("step-50");
    training.0.write(
        "prompts.jsonl",
        "{\"id\": \"=a\", \"tokens\": [5, 9, 2, 5, 9, 2]}\n{\"tokens\": [7, 7]}\n",
    );
    let inputs = training.file("prompts.jsonl");
    let asked = ["heads", &first, "--inputs", &inputs, "--format"];
    let json: Value =
        serde_json::from_slice(&ran(&[&asked[..], &["json"]].concat())).expect("JSON");
    assert_eq!(
        (&json["version"], &json["model"]["n_heads"]),
        (&3.into(), &4.into())
    );
    let heads = json["prompts"][0]["heads"].as_array().expect("heads");
    assert_eq!(heads.len(), 3 * 4);
    let report: Value =
        serde_json::from_slice(&ran(&["report", &first, "--inputs", &inputs])).expect("JSON");
    for head in heads {
        let of = |name: &str| head[name].as_u64().expect("a number") as usize;
        let (layer, nth) = (of("layer"), of("head"));
        let stats = &report["prompts"][0]["layers"][layer]["heads"][nth]["stats"];
        for id in [
            "previous_mass",
            "induction_mass",
            "first_key_mass",
            "diagonal_mass",
        ] {
            assert_eq!(head[id], stats[id], "{id}");
        }
    }
    let table = ran(&[&asked[..], &["csv"]].concat());
    let mut rows = csv::Reader::from_reader(&table[..]);
    let rows: Vec<csv::StringRecord> = rows.records().map(|row| row.expect("a row")).collect();
    assert_eq!((rows.len(), &rows[0][0]), (2 * 3 * 4, "'=a"));
    let target = training.0.output("heads.txt");
    ran(&[
        "heads",
        &first,
        "--tokens",
        TOKENS,
        "--output",
        utf8(&target),
    ]);
    let shown = fs::read_to_string(&target).expect("reads");
    assert!(
        shown.starts_with("stack") && shown.lines().count() == 1 + 3 * 4,
        "{shown}"
    );
    // A what-if changes what the heads look at.
    let asked = ["heads", &first, "--tokens", TOKENS];
    let changed = ran(&[&asked[..], &["--what-if", "mask=none"]].concat());
    assert_ne!(text(&changed), shown);
}
