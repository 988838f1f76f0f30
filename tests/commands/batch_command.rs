//! Batches: units from any number of workers merge to the table of one process, whatever happens to the workers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use std::{fs, thread};

use serde_json::Value;
use testing::checkpoint_copy::{Copy, attnscope, text};

/// A directory of checkpoints that are called by their steps, a set of prompts, and where a batch writes.
pub(super) struct Runs {
    directory: tempfile::TempDir,
    n_prompts: usize,
}

impl Runs {
    pub(super) fn new(steps: &[u64], n_prompts: usize) -> Self {
        let runs = Self {
            directory: tempfile::tempdir().expect("a directory"),
            n_prompts,
        };
        let from = testing::root().join("fixtures/history");
        fs::create_dir(runs.at("steps")).expect("makes");
        for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
            fs::copy(from.join(name), runs.at("steps").join(name)).expect("copies");
        }
        let weights = [150, 250, 400].map(|step| from.join(format!("step-{step}.safetensors")));
        for (nth, step) in steps.iter().enumerate() {
            fs::copy(&weights[nth % 3], runs.step(*step)).expect("copies");
        }
        runs.write_prompts(n_prompts);
        runs
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn step(&self, step: u64) -> PathBuf {
        self.at(&format!("steps/step-{step}.safetensors"))
    }

    fn write_prompts(&self, n: usize) {
        let line = |nth: usize| {
            let ids: Vec<usize> = (0..6 + nth % 5).map(|i| 3 + (i * 7 + nth) % 40).collect();
            format!("{{\"tokens\": {ids:?}}}\n")
        };
        let lines: String = (0..n).map(line).collect();
        fs::write(self.at("prompts.jsonl"), lines).expect("writes");
    }

    pub(super) fn batch(&self, more: &[&str]) -> Command {
        let mut command = Command::new(testing::program());
        command.arg("batch").arg(self.at("steps"));
        command.args([Path::new("--inputs"), &self.at("prompts.jsonl")]);
        command.args([Path::new("--output"), &self.at("batch")]);
        // Other schedulers may have started this test.
        for name in [
            "SLURM_ARRAY_TASK_ID",
            "SLURM_ARRAY_TASK_COUNT",
            "JOB_COMPLETION_INDEX",
            "ATTNSCOPE_SHARDS",
        ] {
            command.env_remove(name);
        }
        command.args(["--chunk", "3", "--threads", "1"]).args(more);
        command
    }

    pub(super) fn ran(&self, more: &[&str], code: i32) -> String {
        let output = self.batch(more).output().expect("starts");
        let came_to = text(&output.stdout);
        ended(output, code) + &came_to
    }

    pub(super) fn merge(&self, more: &[&str]) -> Output {
        let batch = self.at("batch");
        attnscope(&[&["merge", batch.to_str().expect("a path")], more].concat())
    }

    /// The merged document, and the exit code.
    pub(super) fn merged(&self, more: &[&str]) -> (Option<i32>, Value) {
        let output = self.merge(&[&["--format", "json"], more].concat());
        let document = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.code(), document)
    }

    /// The table that one process writes of all steps, in both formats.
    fn whole(&self) -> [Vec<u8>; 2] {
        ["csv", "parquet"].map(|format| {
            let mut steps: Vec<PathBuf> = fs::read_dir(self.at("steps"))
                .expect("lists")
                .map(|entry| entry.expect("an entry").path())
                .filter(|path| {
                    path.extension()
                        .is_some_and(|ending| ending == "safetensors")
                })
                .collect();
            steps.sort();
            let output = Command::new(testing::program())
                .arg("report")
                .args(steps)
                .args([Path::new("--inputs"), &self.at("prompts.jsonl")])
                .args(["--format", format])
                .output()
                .expect("starts");
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            output.stdout
        })
    }

    pub(super) fn check_whole(&self) {
        let merged = ["csv", "parquet"].map(|format| {
            // What is found is another matter.
            let output = self.merge(&["--format", format, "--fail-on", "never"]);
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            output.stdout
        });
        assert!(merged == self.whole(), "the merged table is another one");
    }

    /// The files of units, by their endings.
    fn units(&self, ending: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(self.at("batch/parts")).expect("lists");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        names.filter(|name| name.ends_with(ending)).collect()
    }

    /// The record of the only unit that failed.
    fn failed(&self) -> Value {
        let records = self.units(".json").into_iter().map(|name| {
            let path = self.at("batch/parts").join(name);
            let text = fs::read_to_string(path).expect("reads");
            serde_json::from_str::<Value>(&text).expect("JSON")
        });
        let mut failed: Vec<Value> = records.filter(|r| r["status"] == "failed").collect();
        assert_eq!(failed.len(), 1);
        failed.remove(0)
    }
}

pub(super) fn ended(output: Output, code: i32) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

#[test]
fn shards_merge_to_the_table_of_one_process_and_are_done_once() {
    let runs = Runs::new(&[50, 450, 7], 8);
    for shard in ["0/2", "1/2"] {
        runs.ran(&["--shard", shard], 0);
    }
    // Three chunks for each of three checkpoints.
    assert_eq!(runs.units(".parquet").len(), 9);
    runs.check_whole();
    let written = |name: &String| {
        let about = runs.at("batch/parts").join(name).metadata();
        about.expect("a file").modified().expect("a time")
    };
    let before: Vec<_> = runs.units("").iter().map(written).collect();
    let said = runs.ran(&[], 0);
    assert!(said.contains("0 units done, 9 already there"), "{said}");
    assert_eq!(
        before,
        runs.units("").iter().map(written).collect::<Vec<_>>()
    );
    let record = runs
        .at("batch/parts")
        .join(runs.units(".json").first().expect("a record"));
    let record: Value = serde_json::from_slice(&fs::read(record).expect("reads")).expect("JSON");
    let keys: BTreeSet<&str> = record
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "version",
        "id",
        "checkpoint",
        "prompts",
        "status",
        "error",
        "findings",
        "seconds",
        "digest",
    ];
    assert_eq!(keys, BTreeSet::from(expected));
}

#[test]
fn schedulers_tell_the_shard_and_a_flag_goes_before_them() {
    let runs = Runs::new(&[1, 2, 3, 4], 2);
    let with = |variables: &[(&str, &str)], more: &[&str], code: i32| {
        let mut command = runs.batch(more);
        command.envs(variables.iter().copied());
        ended(command.output().expect("starts"), code)
    };
    let array = |task| {
        [
            ("SLURM_ARRAY_TASK_ID", task),
            ("SLURM_ARRAY_TASK_MIN", "5"),
            ("SLURM_ARRAY_TASK_COUNT", "2"),
        ]
    };
    with(&array("5"), &[], 0);
    assert_eq!(runs.units(".json").len(), 2);
    let said = with(&array("9"), &[], 2);
    assert!(said.contains("SLURM_ARRAY_TASK_ID=9"), "{said}");
    let (code, merged) = runs.merged(&[]);
    let missing: Vec<&str> = merged["missing"]
        .as_array()
        .expect("units")
        .iter()
        .filter_map(|unit| unit["checkpoint"].as_str())
        .collect();
    assert_eq!((code, missing), (Some(2), vec!["step-2", "step-4"]));
    let job = [("JOB_COMPLETION_INDEX", "3"), ("ATTNSCOPE_SHARDS", "4")];
    with(&job, &[], 0);
    assert_eq!(runs.units(".json").len(), 3);
    with(&job, &["--shard", "1/4"], 0);
    runs.check_whole();
}

#[test]
fn what_fails_is_recorded_and_the_others_go_on() {
    let runs = Runs::new(&[1, 2, 3], 3);
    let whole = fs::read(runs.step(2)).expect("reads");
    fs::write(runs.step(2), &whole[..whole.len() / 2]).expect("writes");
    let said = runs.ran(&[], 2);
    assert!(said.contains("step-2.safetensors"), "{said}");
    assert_eq!(
        (runs.units(".json").len(), runs.units(".parquet").len()),
        (3, 2)
    );
    let failed = runs.failed();
    assert_eq!(
        (&failed["checkpoint"], &failed["digest"]),
        (&"step-2".into(), &Value::Null)
    );
    // Not again, until it is asked for.
    let said = runs.ran(&[], 2);
    assert!(said.contains("1 failed before"), "{said}");
    let output = runs.merge(&["--format", "csv"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("failed  step-2: 3 prompts, 0 to 2"), "{said}");
    // The table holds what there is, and findings decide once that is enough.
    let rows = text(&output.stdout);
    assert!(rows.contains("step-3") && !rows.contains("step-2"));
    assert_eq!(
        runs.merge(&["--format", "csv", "--partial"]).status.code(),
        Some(0)
    );
    let warned = runs.merge(&["--format", "csv", "--partial", "--fail-on", "warning"]);
    assert_eq!(warned.status.code(), Some(1));
    // Other bytes are another unit: nothing has to be asked for.
    fs::write(runs.step(2), &whole).expect("writes");
    runs.ran(&[], 0);
    runs.check_whole();
    let (_, merged) = runs.merged(&[]);
    assert_eq!(
        merged["units"],
        serde_json::json!({"done": 3, "failed": 0, "missing": 0})
    );
}

#[test]
fn a_unit_that_takes_too_long_is_stopped_and_may_be_tried_again() {
    let runs = Runs::new(&[1, 2], 2);
    let said = runs.ran(&["--unit-timeout", "0.000001"], 2);
    assert!(said.contains("--unit-timeout"), "{said}");
    assert_eq!(
        (runs.units(".json").len(), runs.units(".parquet").len()),
        (2, 0)
    );
    runs.ran(&[], 2);
    runs.ran(&["--retry-failed"], 0);
    runs.check_whole();
}

#[test]
fn a_nan_fails_its_unit_and_leaves_rows_and_a_finding() {
    let runs = Runs::new(&[1], 2);
    let broken = Copy::of("gpt2");
    broken.weights(|weights| {
        let (_, tensor) = weights
            .iter_mut()
            .find(|(name, _)| name.contains("c_fc.weight"))
            .expect("a tensor");
        let mut values = tensor.values();
        values[5] = f32::NAN;
        *tensor = testing::checkpoint_copy::Stored::f32(&tensor.shape.clone(), &values);
    });
    let path = broken.path().to_str().expect("a path");
    runs.ran(&[path], 2);
    let failed = runs.failed();
    assert!(
        failed["error"].as_str().expect("a reason").contains("NaN"),
        "{failed}"
    );
    assert!(
        failed["findings"]
            .as_array()
            .expect("findings")
            .iter()
            .any(|f| f["check"] == "nan-or-inf")
    );
    let (code, merged) = runs.merged(&["--partial"]);
    let names: BTreeSet<&str> = merged["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["checkpoint"].as_str())
        .collect();
    assert_eq!((code, names.len()), (Some(1), 2));
}

#[test]
fn weights_and_prompts_that_change_make_units_of_their_own() {
    let runs = Runs::new(&[1, 2], 4);
    runs.ran(&[], 0);
    let before = runs.units(".json");
    fs::copy(runs.step(2), runs.step(1)).expect("copies");
    runs.ran(&[], 0);
    runs.check_whole();
    // A chunk that stays as it is stays done; the last one grows.
    runs.write_prompts(runs.n_prompts + 1);
    let said = runs.ran(&[], 0);
    assert!(said.contains("2 units done, 2 already there"), "{said}");
    runs.check_whole();
    assert!(runs.units(".json").is_superset(&before));
    let said = text(&runs.merge(&["--format", "csv"]).stderr);
    assert!(said.contains("left out"), "{said}");
    // A part that was damaged is missing, and is done again.
    let of_first_prompts = |name: &String| {
        let record = fs::read(runs.at("batch/parts").join(name)).expect("reads");
        let record: Value = serde_json::from_slice(&record).expect("JSON");
        record["checkpoint"] == "step-2" && record["prompts"][0] == "0"
    };
    let part = runs.units(".json").into_iter().find(of_first_prompts);
    let part = part.expect("a unit").replace(".json", ".parquet");
    fs::write(runs.at("batch/parts").join(part), "PAR1").expect("writes");
    let (code, merged) = runs.merged(&[]);
    assert_eq!((code, &merged["units"]["missing"]), (Some(2), &1.into()));
    runs.ran(&[], 0);
    runs.check_whole();
}

#[test]
fn merged_tables_are_baselines_and_can_be_compared() {
    let runs = Runs::new(&[1, 2], 3);
    runs.ran(&[], 0);
    let table = runs.at("table.parquet");
    let table = table.to_str().expect("a path");
    assert_eq!(runs.merge(&["--output", table]).status.code(), Some(0));
    let rows = runs.at("table.csv");
    let rows = rows.to_str().expect("a path");
    assert_eq!(runs.merge(&["--output", rows]).status.code(), Some(0));
    assert_eq!(attnscope(&["diff", table, rows]).status.code(), Some(0));
    let (prompts, steps) = (runs.at("prompts.jsonl"), [1, 2].map(|step| runs.step(step)));
    let prompts = prompts.to_str().expect("a path");
    let judged = |step: &Path, baseline: &str, more: &[&str]| {
        let step = step.to_str().expect("a path");
        let flags = ["check", step, "--inputs", prompts, "--baseline", baseline];
        let flags = [
            &flags[..],
            &["--select", "regression", "--fail-on", "warning"],
            more,
        ]
        .concat();
        attnscope(&flags).status.code()
    };
    for step in &steps {
        assert_eq!(judged(step, table, &[]), Some(0));
        assert_eq!(judged(step, rows, &[]), Some(0));
    }
    assert_eq!(judged(&steps[0], table, &["--set", "scale=none"]), Some(1));
    let other = runs.at("steps/step-9.safetensors");
    fs::copy(&steps[0], &other).expect("copies");
    assert_eq!(judged(&other, table, &[]), Some(2));
    let page = runs.merge(&["--format", "html"]);
    assert_eq!(page.status.code(), Some(0));
    let page = text(&page.stdout);
    assert!(
        page.contains("step-2") && page.contains("Slowest units"),
        "{page}"
    );
}

#[cfg(unix)]
#[test]
fn a_worker_that_is_terminated_ends_with_its_code_and_leaves_whole_units() {
    use rustix::process::{Pid, Signal, kill_process};
    let steps: Vec<u64> = (0..40).collect();
    let runs = Runs::new(&steps, 6);
    let mut child = started(&runs, &[]);
    while !runs.at("batch/parts").is_dir() || runs.units(".json").is_empty() {
        assert_eq!(
            child.try_wait().expect("a status"),
            None,
            "ends before anything is done"
        );
        thread::sleep(Duration::from_millis(2));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("is there");
    assert_eq!(child.wait().expect("ends").code(), Some(143));
    assert!(
        runs.units("").iter().all(|name| !name.starts_with('.')),
        "{:?}",
        runs.units("")
    );
    let stems = |ending: &str| -> BTreeSet<String> {
        let names = runs.units(ending).into_iter();
        names
            .map(|name| name.trim_end_matches(ending).to_owned())
            .collect()
    };
    assert_eq!(stems(".parquet"), stems(".json"));
}

fn started(runs: &Runs, more: &[&str]) -> Child {
    let mut command = runs.batch(more);
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("starts")
}

/// The small version of `tests/cluster/kill.py`.
#[cfg(unix)]
#[test]
fn workers_that_are_killed_at_any_moment_lose_nothing_and_do_nothing_twice() {
    let steps: Vec<u64> = (0..6).collect();
    let runs = Runs::new(&steps, 9);
    let mut moments = fastrand::Rng::with_seed(20);
    // Two workers share the checkpoints, a third does all of them.
    let shares: [&[&str]; 3] = [&["--shard", "0/2"], &["--shard", "1/2"], &[]];
    for _ in 0..5 {
        let mut workers = shares.map(|share| started(&runs, share));
        for worker in &mut workers {
            thread::sleep(Duration::from_millis(moments.u64(1..25)));
            worker.kill().expect("is there or has ended");
        }
        workers.iter_mut().for_each(|worker| drop(worker.wait()));
    }
    for share in &shares[..2] {
        runs.ran(share, 0);
    }
    let said = runs.ran(&[], 0);
    assert!(said.contains("0 units done, 18 already there"), "{said}");
    assert_eq!(runs.units(".parquet").len(), 18);
    runs.check_whole();
}

#[test]
fn a_batch_without_prompts_or_with_wrong_flags_is_refused_before_anything_is_written() {
    let runs = Runs::new(&[1], 1);
    let steps = runs.at("steps");
    let to = runs.at("other");
    let (steps, to) = (
        steps.to_str().expect("a path"),
        to.to_str().expect("a path"),
    );
    for more in [
        &[][..],
        &["--text", "a", "--shard", "2/2"],
        &["--text", "a", "--chunk", "0"],
        &["--text", "a", "--unit-timeout", "0"],
        &["--text", "a", "--only-chunks", "1"],
    ] {
        let output = attnscope(&[&["batch", steps, "--output", to], more].concat());
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(!runs.at("other").exists(), "{more:?}");
    }
    assert_eq!(attnscope(&["merge", to]).status.code(), Some(2));
}
