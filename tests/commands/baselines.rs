//! What moved since an earlier report is found, what did not is not; heads and their types on the command line.

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};
use testing::judged::fixture;

fn path(name: &str) -> String {
    fixture(name).to_str().expect("a path").to_owned()
}

fn out(arguments: &[&str]) -> (Option<i32>, String) {
    let output = attnscope(arguments);
    (output.status.code(), text(&output.stdout))
}

#[test]
fn what_moved_since_a_report_is_found_by_its_place() {
    let directory = tempfile::tempdir().expect("a directory");
    let report = directory.path().join("then.json");
    let (healthy, prompts) = (path("healthy"), path("healthy/prompts.jsonl"));
    let (code, written) = out(&["report", &healthy, "--inputs", &prompts]);
    assert_eq!(code, Some(0));
    std::fs::write(&report, &written).expect("writes");
    let report = report.to_str().expect("a path");
    let verdict = |target: &str, more: &[&str]| -> (Option<i32>, Value) {
        let asked = [
            "check",
            target,
            "--inputs",
            &prompts,
            "--baseline",
            report,
            "--select",
            "regression",
            "--format",
            "json",
        ];
        let (code, out) = out(&[&asked[..], more].concat());
        (code, serde_json::from_str(&out).expect("JSON"))
    };
    // The same model has not moved, whatever the number of threads.
    let (code, same) = verdict(&healthy, &["--threads", "1", "--fail-on", "info"]);
    assert_eq!(
        (code, &same["targets"][0]["checks"][0]["status"]),
        (Some(0), &Value::from("passed"))
    );
    // Without its scale it has, in places that are named, and its loss is told.
    let (code, moved) = verdict(&healthy, &["--set", "scale=none", "--fail-on", "warning"]);
    assert_eq!(code, Some(1));
    let findings = moved["targets"][0]["findings"]
        .as_array()
        .expect("findings")
        .clone();
    assert!(
        findings
            .iter()
            .all(|f| f["check"] == "regression" && f["severity"] == "warning")
    );
    assert!(
        findings
            .iter()
            .any(|f| f["place"]["layer"] == 1 && f["place"]["head"].is_u64()),
        "{findings:?}"
    );
    // The twin's loss is another one.
    let (_, twin) = verdict(&path("degenerate"), &[]);
    let of_model = |f: &&Value| f["place"]["layer"].is_null();
    let findings = twin["targets"][0]["findings"]
        .as_array()
        .expect("findings")
        .clone();
    let loss = findings.iter().find(of_model).expect("the loss moved");
    assert!(
        loss["evidence"]
            .as_str()
            .expect("a sentence")
            .contains("loss was"),
        "{loss}"
    );
}

#[test]
fn a_baseline_that_is_none_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("then.json");
    for (content, said) in [
        ("{", "is not JSON"),
        ("{\"version\": 9}", "expected version"),
        ("{\"version\": 1}", "no prompts"),
        ("{\"version\": 1, \"prompts\": [{}]}", "without an id"),
        (
            "{\"version\": 1, \"prompts\": [{\"id\": \"a\"}]}",
            "without layers",
        ),
        (
            "{\"version\": 1, \"prompts\": [{\"id\": \"a\", \"layers\": [{\"stack\": \"left\"}]}]}",
            "unknown stack",
        ),
    ] {
        std::fs::write(&file, content).expect("writes");
        let output = attnscope(&[
            "check",
            &path("healthy"),
            "--baseline",
            file.to_str().expect("a path"),
        ]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{content}: {error}");
        assert!(
            error.contains(said) && error.contains("then.json") && error.lines().count() == 1,
            "{error}"
        );
    }
}

#[test]
fn heads_of_the_induction_demo_are_named_on_any_text() {
    let (code, table) = out(&[
        "heads",
        &path("induction"),
        "--text",
        "one cold morning the old king gave a red apple",
    ]);
    assert_eq!(code, Some(0));
    let row = |layer: &str, head: &str| -> Vec<String> {
        let rows = table.lines().map(|line| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
        let mut found = rows.filter(|row| row[0] == "-" && row[1] == layer && row[2] == head);
        found.next().expect("a row")
    };
    let last =
        |row: &[String], back: usize| -> f64 { row[row.len() - back].parse().expect("a number") };
    // Columns end with previous, induction and duplicate on random tokens said twice; the trainer measured 0.9 and more.
    assert!(last(&row("0", "2"), 3) > 0.8, "{table}");
    let best = (0..4)
        .map(|head| last(&row("1", &head.to_string()), 2))
        .fold(0.0, f64::max);
    assert!(best > 0.6, "{table}");
    // An encoder has no such columns.
    let bert = format!("{}/fixtures/oracle/bert/model", env!("CARGO_MANIFEST_DIR"));
    let (code, table) = out(&["heads", &bert]);
    assert!(code == Some(0) && !table.contains("r‖r"), "{table}");
}
