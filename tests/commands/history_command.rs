//! `history`, `cache` and `check` of a training as commands: checkpoints and logs, whole, growing, changing and damaged.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use attnscope_report::record::Table;
use serde_json::Value;
use tempfile::TempDir;
use testing::checkpoint_copy::{Copy, text};
use testing::made_logs::Made;
use testing::running::TOKENS;

/// A directory for a training, with a cache of its own.
pub struct Training {
    directory: TempDir,
    model: Copy,
}

impl Training {
    pub fn new(steps: &[u64]) -> Self {
        let training = Self {
            directory: tempfile::tempdir().expect("a directory"),
            model: Copy::of("gpt2"),
        };
        fs::create_dir(training.path()).expect("makes");
        steps.iter().for_each(|step| training.save(*step));
        training
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    pub fn at(&self, step: u64) -> PathBuf {
        self.path().join(format!("checkpoint-{step}"))
    }

    /// Saves a checkpoint as a trainer does: under another name, then renamed.
    pub fn save(&self, step: u64) {
        let temporary = self.path().join(format!("tmp-checkpoint-{step}"));
        fs::create_dir(&temporary).expect("makes");
        for name in ["config.json", "model.safetensors"] {
            fs::copy(self.model.file(name), temporary.join(name)).expect("copies");
        }
        fs::rename(temporary, self.at(step)).expect("renames");
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(testing::program());
        command.args(words);
        command.env("XDG_CACHE_HOME", self.directory.path().join("cache"));
        command
    }

    /// What a command writes, with its exit code.
    fn ran(&self, words: &[&str]) -> (String, String, Option<i32>) {
        let output = self.command(words).output().expect("runs");
        (
            text(&output.stdout),
            text(&output.stderr),
            output.status.code(),
        )
    }

    pub fn history(&self, words: &[&str]) -> (String, String, Option<i32>) {
        let path = self.path();
        let path = path.to_str().expect("a path");
        let log = self.directory.path().join("history.log");
        let _ = fs::remove_file(&log);
        let to = log.to_str().expect("a path");
        let all = [&["history", path, "--tokens", TOKENS, "--log", to], words].concat();
        let (out, said, code) = self.ran(&all);
        // Which steps were read is in the log, and on a terminal.
        let log = fs::read_to_string(&log).unwrap_or_default();
        let read: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("reading step"))
            .collect();
        (out, said + &read.join("\n"), code)
    }

    pub fn json(&self) -> (Value, Option<i32>) {
        let (out, said, code) = self.history(&["--format", "json"]);
        let value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {said}"));
        (value, code)
    }

    /// `history --watch`, and the document that it keeps up to date.
    pub fn followed(&self) -> (Running, PathBuf) {
        let output = self.directory.path().join("history.json");
        let path = self.path();
        let words = [
            "history",
            path.to_str().expect("a path"),
            "--tokens",
            TOKENS,
            "--watch",
            "--format",
            "json",
            "--output",
            output.to_str().expect("a path"),
        ];
        let mut command = self.command(&words);
        let child = command.stderr(Stdio::null()).spawn().expect("runs");
        (Running(child), output)
    }

    fn n_cached(&self) -> usize {
        let entries = fs::read_dir(self.directory.path().join("cache/attnscope"));
        entries.map_or(0, Iterator::count)
    }
}

/// A program that runs until it is dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for something, for as long as a loaded machine may take.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "{what}: waited in vain"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn states(history: &Value) -> Vec<(u64, String)> {
    let steps = history["steps"].as_array().expect("steps").iter();
    let state = |step: &Value| {
        let number = step["step"].as_u64().unwrap_or(u64::MAX);
        (
            number,
            step["state"].as_str().unwrap_or_default().to_owned(),
        )
    };
    steps.map(state).collect()
}

fn done(steps: &[u64]) -> Vec<(u64, String)> {
    steps
        .iter()
        .map(|step| (*step, "done".to_owned()))
        .collect()
}

#[test]
fn a_training_is_one_table_and_the_second_time_it_comes_from_the_cache() {
    let training = Training::new(&[50, 450, 100]);
    let (csv, said, code) = training.history(&["--format", "csv"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches(" of 3)").count(), 3, "{said}");
    // Newest, oldest, then the middle.
    let places = ["step 450", "step 50", "step 100"].map(|step| said.find(step).expect("told"));
    assert!(places.is_sorted(), "{said}");
    let path = training.path();
    let report = [
        "report",
        path.to_str().expect("a path"),
        "--tokens",
        TOKENS,
        "--format",
        "csv",
    ];
    assert_eq!(csv, training.ran(&report).0, "the table that report writes");
    assert_eq!(training.n_cached(), 3);
    let (again, said, _) = training.history(&["--format", "csv"]);
    assert_eq!((again, said.as_str()), (csv.clone(), ""), "from the cache");
    let (fresh, said, _) = training.history(&["--format", "csv", "--no-cache"]);
    assert_eq!((fresh, said.matches(" of 3)").count()), (csv.clone(), 3));
    // Other prompts and other what-ifs are other entries; a damaged entry is none.
    training.history(&["--what-if", "scale=none"]);
    assert_eq!(training.n_cached(), 6);
    for entry in fs::read_dir(training.directory.path().join("cache/attnscope")).expect("lists") {
        let path = entry.expect("an entry").path();
        let mut bytes = fs::read(&path).expect("reads");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).expect("writes");
    }
    let (again, said, _) = training.history(&["--format", "csv"]);
    assert_eq!((again, said.matches(" of 3)").count()), (csv.clone(), 3));
    // Weights of the same size and under the same name, which are others.
    let weights = training.at(100).join("model.safetensors");
    let mut bytes = fs::read(&weights).expect("reads");
    let n = bytes.len();
    bytes[n - 2] ^= 1;
    fs::write(&weights, bytes).expect("writes");
    let (_, said, _) = training.history(&["--format", "csv"]);
    assert_eq!(said.matches(" of 3)").count(), 1, "{said}");
    let (list, _, code) = training.ran(&["cache", "list"]);
    assert!(
        code == Some(0) && list.contains("checkpoint-450") && list.contains("7 entries"),
        "{list}"
    );
    let (cleared, _, _) = training.ran(&["cache", "clear"]);
    assert!(cleared.contains("removed 7 entries"), "{cleared}");
    assert_eq!(training.n_cached(), 0);
}

#[test]
fn one_step_that_cannot_be_read_does_not_end_the_others() {
    let training = Training::new(&[10, 20, 30]);
    fs::write(training.at(20).join("config.json"), "{").expect("writes");
    let weights = training.at(30).join("model.safetensors");
    let whole = fs::read(&weights).expect("reads");
    fs::write(&weights, &whole[..whole.len() - 8]).expect("writes");
    let (json, code) = training.json();
    assert_eq!(code, Some(2));
    let expected = [(10, "done"), (20, "failed"), (30, "incomplete")];
    assert_eq!(
        states(&json),
        expected.map(|(step, state)| (step, state.to_owned()))
    );
    let reason = json["steps"][2]["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("model.safetensors is not written whole"),
        "{reason}"
    );
    assert!(
        json["steps"][2]["values"]
            .as_object()
            .is_some_and(serde_json::Map::is_empty)
    );
    let (text, _, _) = training.history(&[]);
    assert!(
        text.contains("failed") && text.contains("step 20"),
        "{text}"
    );
}

#[test]
fn checkpoints_are_found_nested_and_beside_the_last_weights() {
    let training = Training::new(&[10, 20]);
    // transformers' Trainer saves the end of the training in the directory itself.
    for name in ["config.json", "model.safetensors"] {
        fs::copy(training.model.file(name), training.path().join(name)).expect("copies");
    }
    assert_eq!(states(&training.json().0), done(&[10, 20]));
    fs::write(
        training.path().join("trainer_state.json"),
        "{\"global_step\": 25}",
    )
    .expect("writes");
    assert_eq!(states(&training.json().0), done(&[10, 20, 25]));
    let outer = training.directory.path();
    let nested = outer.join("outer");
    fs::create_dir(&nested).expect("makes");
    fs::rename(training.path(), nested.join("logs")).expect("renames");
    let words = [
        "history",
        nested.to_str().expect("a path"),
        "--tokens",
        TOKENS,
        "--format",
        "json",
    ];
    let (out, said, _) = training.ran(&words);
    let json: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert_eq!(states(&json).len(), 3, "{said}");
    let nowhere = outer.join("nowhere");
    let (_, said, code) = training.ran(&["history", nowhere.to_str().expect("a path")]);
    assert!(code == Some(2) && said.lines().count() == 1, "{said}");
}

/// The JSON that `history --watch --output` keeps up to date.
pub fn kept(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

#[test]
fn checkpoints_that_come_change_and_go_are_followed() {
    let training = Training::new(&[10, 20]);
    let (_running, output) = training.followed();
    let is = |expected: &[(u64, String)]| {
        let json = kept(&output);
        json.is_object() && states(&json) == expected
    };
    until("the first two", || is(&done(&[10, 20])));
    // A checkpoint that is written slowly appears once it is whole.
    let slow = training.at(30);
    fs::create_dir(&slow).expect("makes");
    fs::copy(training.model.file("config.json"), slow.join("config.json")).expect("copies");
    let bytes = fs::read(training.model.file("model.safetensors")).expect("reads");
    let mut file = fs::File::create(slow.join("model.safetensors")).expect("creates");
    file.write_all(&bytes[..bytes.len() / 2]).expect("writes");
    file.flush().expect("writes");
    let mut incomplete = done(&[10, 20]);
    incomplete.push((30, "incomplete".to_owned()));
    until("half of the third", || is(&incomplete));
    file.write_all(&bytes[bytes.len() / 2..]).expect("writes");
    drop(file);
    until("the third", || is(&done(&[10, 20, 30])));
    // The oldest is rotated away; its statistics stay.
    fs::remove_dir_all(training.at(10)).expect("removes");
    let mut gone = done(&[10, 20, 30]);
    gone[0].1 = "gone".to_owned();
    until("the first is gone", || is(&gone));
    assert!(!kept(&output)["steps"][0]["values"]["entropy_relative"].is_null());
    // One is overwritten with other weights: it is read again.
    let before = kept(&output)["steps"][1]["values"].clone();
    let mut other = bytes.clone();
    let start = other.len() - 40_000;
    other[start..]
        .iter_mut()
        .step_by(4)
        .for_each(|byte| *byte ^= 0x40);
    fs::write(training.at(20).join("model.safetensors"), other).expect("writes");
    until("the second changed", || {
        let json = kept(&output);
        json.is_object() && is(&gone) && json["steps"][1]["values"] != before
    });
    training.save(40);
    gone.push((40, "done".to_owned()));
    until("the fourth", || is(&gone));
}

#[test]
fn a_checkpoint_that_is_rewritten_under_one_name_becomes_another_step() {
    let training = Training::new(&[10]);
    let latest = training.path().join("latest");
    fs::rename(training.at(10), &latest).expect("renames");
    let say = |step: u64| {
        let state = latest.join("trainer_state.json");
        fs::write(state, format!("{{\"global_step\": {step}}}")).expect("writes");
    };
    say(10);
    let (_running, output) = training.followed();
    until("step 10", || {
        kept(&output).is_object() && states(&kept(&output)) == done(&[10])
    });
    fs::copy(
        training.model.file("model.safetensors"),
        latest.join("model.safetensors"),
    )
    .expect("copies");
    say(20);
    let expected = vec![(10, "gone".to_owned()), (20, "done".to_owned())];
    until("step 20", || {
        kept(&output).is_object() && states(&kept(&output)) == expected
    });
}

#[test]
fn a_log_is_a_table_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("run.jsonl");
    let made = Made::default();
    fs::write(&log, made.log()).expect("writes");
    let run = |format: &str| {
        let to = directory.path().join(format!("table.{format}"));
        let output = Command::new(testing::program())
            .args([
                "history",
                log.to_str().expect("a path"),
                "--format",
                format,
                "--output",
            ])
            .arg(&to)
            .output()
            .expect("runs");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        to
    };
    let csv = Table::read_csv(&run("csv")).expect("a table");
    let parquet = Table::read_parquet(&run("parquet")).expect("a table");
    assert_eq!(
        csv.rows.len(),
        made.n_records * made.n_layers * (1 + made.n_heads)
    );
    assert_eq!(format!("{:?}", csv.rows), format!("{:?}", parquet.rows));
    let row = &csv.rows[1];
    assert_eq!(
        (row.step, row.layer, row.head, row.checkpoint.as_str()),
        (Some(0), 0, Some(0), "run")
    );
    let json = kept(&run("json"));
    assert_eq!(json["origin"], "log");
    assert_eq!(json["steps"].as_array().map(Vec::len), Some(made.n_records));
    assert_eq!(
        json["steps"][0]["values"]["entropy_relative"][0][0].as_f64(),
        row.stats[0]
    );
}

#[test]
fn check_of_a_training_judges_its_last_step_and_tells_when_findings_began() {
    let directory = testing::root().join("fixtures/history");
    let path = directory.to_str().expect("a path");
    let words = [
        "check",
        path,
        "--tokens",
        "5,9,2,20,7,31,5,9,44,12,60,3,81,15",
        "--format",
        "json",
    ];
    let output = Command::new(testing::program())
        .args(words)
        .output()
        .expect("runs");
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    let targets = json["targets"].as_array().expect("targets");
    assert_eq!(targets.len(), 1, "the last step alone");
    assert!(
        targets[0]["target"]
            .as_str()
            .is_some_and(|name| name.ends_with("step-400.safetensors"))
    );
    let notes: Vec<&str> = targets[0]["notes"]
        .as_array()
        .expect("notes")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    // One finding is there since the step before, the other one is new.
    for begins in [
        "entropy-collapse L0H2, L1H0 begin at step 400 (the first 0.2",
        "score-explosion L1H0 begins at step 250 (9.08",
    ] {
        assert!(
            notes.iter().any(|note| note.starts_with(begins)),
            "{notes:#?}"
        );
    }
}

fn attnscope(words: &[&str]) -> (String, String, Option<i32>) {
    let output = Command::new(testing::program()).args(words).output();
    let output = output.expect("runs");
    (
        text(&output.stdout),
        text(&output.stderr),
        output.status.code(),
    )
}

#[test]
fn check_judges_the_last_record_of_a_log_and_tells_when_findings_began() {
    let of = |name: &str| {
        let path = testing::root().join("fixtures/histories").join(name);
        path.to_str().expect("a path").to_owned()
    };
    let (jump, healthy) = (of("jump.jsonl"), of("healthy.jsonl"));
    let (out, said, code) = attnscope(&["check", &jump, &healthy, "--format", "json"]);
    assert_eq!(code, Some(1), "{said}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let [bad, good] = [&json["targets"][0], &json["targets"][1]];
    let of_check = |target: &Value, id: &str| {
        let checks = target["checks"].as_array().expect("checks");
        let mut found = checks.iter().filter(|check| check["id"] == id);
        found.next().expect("a check")["status"].clone()
    };
    assert_eq!(of_check(bad, "entropy-collapse"), "fired");
    assert_eq!(of_check(good, "entropy-collapse"), "passed");
    assert_eq!(of_check(bad, "nan-or-inf"), "passed");
    assert_eq!(of_check(bad, "future-leak"), "not-applicable");
    // The log has no residuals.
    assert_eq!(of_check(bad, "rank-collapse"), "not-applicable");
    assert_eq!(good["findings"].as_array().map(Vec::len), Some(0));
    let notes = bad["notes"].to_string();
    assert!(
        notes.contains("entropy-collapse") && notes.contains("begin at step 260"),
        "{notes}"
    );
    let finding = &bad["findings"][0];
    assert_eq!(finding["severity"], "error");
    // The value is that of the last record, not of the onset.
    let last = kept_log(&jump)["values"]["entropy_relative"][0][0].as_f64();
    let findings = bad["findings"].as_array().expect("findings").iter();
    let here =
        serde_json::json!({"stack": null, "layer": 0, "head": 0, "query": null, "key": null});
    let mut own = findings.filter(|f| f["check"] == "entropy-collapse" && f["place"] == here);
    let value = own.next().expect("L0H0")["value"].as_f64();
    assert!((value.expect("a value") - last.expect("a value")).abs() < 1e-6);
    let (_, _, code) = attnscope(&["check", &healthy]);
    assert_eq!(code, Some(0));
}

/// The last record of a log.
fn kept_log(path: &str) -> Value {
    let text = fs::read_to_string(path).expect("reads");
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

#[test]
fn report_writes_the_records_of_a_log_as_a_table_and_says_what_else_it_cannot() {
    let log = testing::root().join("fixtures/histories/jump.jsonl");
    let log = log.to_str().expect("a path");
    let (report, _, code) = attnscope(&["report", log, "--format", "csv"]);
    assert_eq!(code, Some(0));
    let (history, _, _) = attnscope(&["history", log, "--format", "csv"]);
    assert_eq!(report, history);
    let (_, said, code) = attnscope(&["report", log]);
    assert_eq!(code, Some(2));
    assert!(said.contains("expected --format csv or parquet"), "{said}");
}
