//! `--values FILE`: rows of numbers in place of tokens, for live models.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};

use testing::live_stub::Stub;

/// A function of plain Python that takes rows.
const VECTORS: &str = "fixtures/live/arrays.py:vectors";

struct File {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl File {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).expect("writes");
        Self {
            _directory: directory,
            path,
        }
    }

    /// Runs a command with `--values` of the file: exit code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let path = self.path.to_string_lossy().into_owned();
        let arguments = arguments.iter().copied();
        let arguments: Vec<&str> = arguments.chain(["--values", &path]).collect();
        let output = attnscope(&arguments);
        let code = output.status.code().expect("an exit code");
        (code, text(&output.stdout), text(&output.stderr))
    }
}

fn has_python() -> bool {
    Command::new("python3").arg("-V").output().is_ok()
}

/// A NumPy array of f64.
fn npy(is_fortran: bool, shape: [usize; 2], values: &[f64]) -> Vec<u8> {
    let order = if is_fortran { "True" } else { "False" };
    let [n_rows, width] = shape;
    let header =
        format!("{{'descr': '<f8', 'fortran_order': {order}, 'shape': ({n_rows}, {width}), }}\n");
    let length = u16::try_from(header.len()).expect("short").to_le_bytes();
    let data = values.iter().flat_map(|value| value.to_le_bytes());
    let begin = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes()].concat();
    begin.into_iter().chain(data).collect()
}

/// The attention of the last row to each row, as `vectors` computes it.
fn last_row(rows: &[[f64; 2]]) -> Vec<f64> {
    let last = rows[rows.len() - 1];
    let products = rows.iter().map(|row| row[0] * last[0] + row[1] * last[1]);
    let raised: Vec<f64> = products
        .map(|product| (product / 2f64.sqrt()).exp())
        .collect();
    let sum: f64 = raised.iter().sum();
    raised.into_iter().map(|value| value / sum).collect()
}

#[test]
fn rows_of_csv_and_of_arrays_reach_the_code() {
    if !has_python() {
        return;
    }
    let rows = [[1.0, -2.0], [0.25, 3.0], [0.5, 1.0]];
    let files = [
        File::new("a.csv", b"open,close\n1,-2\n0.25,3\n0.5,1\n"),
        File::new(
            "a.npy",
            &npy(false, [3, 2], &[1.0, -2.0, 0.25, 3.0, 0.5, 1.0]),
        ),
        File::new(
            "b.npy",
            &npy(true, [3, 2], &[1.0, 0.25, 0.5, -2.0, 3.0, 1.0]),
        ),
    ];
    for file in files {
        let (code, out, error) = file.run(&["report", VECTORS, "--format", "json"]);
        assert_eq!(code, 0, "{error}");
        let report: Value = serde_json::from_str(&out).expect("JSON");
        let prompt = &report["prompts"][0];
        assert_eq!(prompt["tokens"].as_array().map(Vec::len), Some(3));
        let (code, out, error) =
            file.run(&["effect", VECTORS, "--by", "rollout", "--format", "json"]);
        assert_eq!(code, 0, "{error}");
        let rollout: Value = serde_json::from_str(&out).expect("JSON");
        let found = rollout["rows"].as_array().expect("rows").iter();
        let found: Vec<f64> = found
            .filter(|row| row["position"] == 2)
            .filter_map(|row| row["rollout"].as_f64())
            .collect();
        // A rollout of one layer is the mean of its attention and what the residual carries past it.
        let expected = last_row(&rows);
        for (idx, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let expected = 0.5 * expected + if idx == 2 { 0.5 } else { 0.0 };
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
        assert_eq!(found.len(), 3, "{out}");
        for command in ["check", "heads"] {
            assert_eq!(file.run(&[command, VECTORS]).0, 0, "{command}");
        }
    }
}

#[test]
fn a_recording_of_values_is_a_trace_that_compares_with_another_run() {
    if !has_python() {
        return;
    }
    let file = File::new("a.csv", b"1,-2\n0.25,3\n0.5,1\n");
    let trace = file.path.with_file_name("trace.safetensors");
    let trace = trace.to_string_lossy().into_owned();
    let (code, _, error) = file.run(&["trace", VECTORS, "--output", &trace]);
    assert_eq!(code, 0, "{error}");
    let (code, out, error) = file.run(&["diff", &trace, VECTORS]);
    assert_eq!(code, 0, "{error}");
    assert!(out.starts_with("the same"), "{out}");
    let output = attnscope(&["diff", &trace, VECTORS]);
    assert_ne!(output.status.code(), Some(0), "other rows");
}

#[test]
fn a_file_that_is_no_table_is_named_with_what_is_wrong() {
    for (name, bytes, says) in [
        (
            "a.csv",
            &b"1,2\n3\n"[..],
            "line 2: expected 2 numbers as in line 1, found 1",
        ),
        (
            "a.csv",
            b"1,2\n3,x\n",
            "line 2, column 2: expected a number, found \"x\"",
        ),
        (
            "a.csv",
            b"1,2\n3,inf\n",
            "line 2, column 2: expected a finite number, found \"inf\"",
        ),
        (
            "a.csv",
            b"",
            "expected a row of numbers per position, found none",
        ),
        (
            "a.npy",
            &npy(false, [1, 0], &[]),
            "expected an array [position, feature], found shape [1, 0]",
        ),
        (
            "a.npy",
            &npy(false, [1, 1], &[f64::NAN]),
            "[0, 0]: expected a finite number, found NaN",
        ),
    ] {
        let file = File::new(name, bytes);
        let (code, out, error) = file.run(&["report", VECTORS]);
        assert_eq!((code, out.as_str()), (2, ""));
        let place = file.path.display();
        assert_eq!(error, format!("attnscope: {place}: {says}\n"));
    }
    let output = attnscope(&["report", VECTORS, "--values", "no/such.csv"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no/such.csv: cannot be opened"));
}

#[test]
fn a_checkpoint_runs_token_ids_and_says_so() {
    let file = File::new("a.csv", b"1,2\n");
    for command in ["check", "report", "heads", "verify"] {
        let (code, out, error) = file.run(&[command, "fixtures/healthy"]);
        assert_eq!((code, out.as_str()), (2, ""), "{command}: {error}");
        let says = "a.csv: --values is for live models (FILE.py:NAME or live:SOCKET) and for described models whose [tensors] have values; \
                    this checkpoint runs token ids";
        assert!(error.contains(says), "{command}: {error}");
    }
}

#[test]
fn values_are_the_only_prompt() {
    let file = File::new("a.csv", b"1,2\n");
    for flags in [
        &["--text", "a"][..],
        &["--tokens", "1,2"],
        &["--text-file", "a.txt"],
        &["--image", "a.png"],
        &["--inputs", "a.jsonl"],
    ] {
        let (code, _, error) = file.run(&[&["report", VECTORS], flags].concat());
        assert_eq!(code, 2);
        assert!(error.contains("cannot be used with"), "{error}");
    }
    let (code, _, error) = file.run(&["report", VECTORS, "some text"]);
    assert_eq!(code, 2);
    assert!(
        error.contains("expected one prompt, found another with"),
        "{error}"
    );
    let (code, _, error) = file.run(&["report", VECTORS, "--target-text", "a"]);
    assert_eq!(code, 2);
    assert!(
        error.contains("expected --target-tokens, found --target-text"),
        "{error}"
    );
}

#[test]
fn a_process_that_ignores_values_is_not_taken_for_one_that_ran_them() {
    let file = File::new("a.csv", b"1,2\n3,4\n5,6\n");
    let Some(stub) = Stub::start("stub.py") else {
        return;
    };
    let (code, out, error) = file.run(&["report", &stub.target]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(error.contains("its process takes no --values"), "{error}");
    if has_python() {
        let (code, _, error) = file.run(&["report", "fixtures/live/arrays.py:words"]);
        assert_eq!(code, 2);
        assert!(error.contains("the function takes no values"), "{error}");
    }
}

#[test]
fn help_says_what_the_file_is() {
    let help = text(&attnscope(&["report", "--help"]).stdout);
    assert!(help.contains("--values <FILE>"), "{help}");
}
