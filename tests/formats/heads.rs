//! Heads that give labels, of every kind that classes of transformers set on a model, against what the classes compute.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testing::{program, root};

/// As far as f32 in another order goes, for logits of about 1.
const NEAR: f64 = 2e-4;

/// A label as a report gives it: position and logit.
type Given = (usize, f64);

fn numbers(list: &Value) -> Vec<f64> {
    let numbers = list.as_array().expect("a list").iter();
    numbers.map(|n| n.as_f64().expect("a number")).collect()
}

fn text(list: &Value) -> String {
    let words: Vec<String> = numbers(list).iter().map(|n| n.to_string()).collect();
    words.join(",")
}

fn labels(model: &Path, run: &Value) -> Vec<Given> {
    let output = Command::new(program())
        .args(["report", "--format", "json", "--no-settings"])
        .args(["--tokens", &text(&run["tokens"])])
        .args(["--attention-mask", &text(&run["mask"])])
        .arg(model)
        .output()
        .expect("the program");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", model.display());
    assert!(!said.contains("never read"), "{}: {said}", model.display());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let labels = report["prompts"][0]["labels"].as_array();
    let labels = labels.unwrap_or_else(|| panic!("{}: no labels", model.display()));
    let of = |label: &Value| {
        let position = label["position"].as_u64().expect("a position") as usize;
        (position, label["logit"].as_f64().expect("a logit"))
    };
    labels.iter().map(of).collect()
}

/// What a report has to say of a class's own logits. // logits: [1, label] or [position, label]
fn expected(class: &str, run: &Value) -> Vec<Given> {
    let rows: Vec<Vec<f64>> = run["logits"]
        .as_array()
        .expect("rows")
        .iter()
        .map(numbers)
        .collect();
    let largest =
        |all: &mut dyn Iterator<Item = Given>| all.max_by(|a, b| a.1.total_cmp(&b.1)).expect("one");
    let mask = numbers(&run["mask"]);
    let real = || (0..rows.len()).filter(|idx| mask[*idx] == 1.0);
    if class.ends_with("ForQuestionAnswering") {
        let end = |which: usize| largest(&mut real().map(|idx| (idx, rows[idx][which])));
        vec![end(0), end(1)]
    } else if rows.len() > 1 {
        let likeliest = |idx: usize| {
            let (_, logit) = largest(&mut rows[idx].iter().copied().enumerate());
            (idx, logit)
        };
        real().map(likeliest).collect()
    } else {
        // The position is the program's to say.
        rows[0].iter().map(|logit| (usize::MAX, *logit)).collect()
    }
}

#[test]
fn every_kind_of_head_gives_what_its_class_computes() {
    let directory = root().join("fixtures/formats/heads");
    let entries = std::fs::read_dir(&directory).expect("heads");
    let mut models: Vec<PathBuf> = entries.map(|entry| entry.expect("one").path()).collect();
    models.sort();
    assert!(models.len() >= 30, "{}", models.len());
    for model in models {
        let said = std::fs::read(model.join("expected.json")).expect("what is expected");
        let said: Value = serde_json::from_slice(&said).expect("JSON");
        let class = said["class"].as_str().expect("a class");
        for run in said["runs"].as_array().expect("runs") {
            let (found, expected) = (labels(&model, run), expected(class, run));
            assert_eq!(
                found.len(),
                expected.len(),
                "{}: {found:?}",
                model.display()
            );
            for (found, expected) in found.iter().zip(&expected) {
                let is_there = expected.0 == usize::MAX || found.0 == expected.0;
                let is_near = (found.1 - expected.1).abs() < NEAR * expected.1.abs().max(1.0);
                assert!(
                    is_there && is_near,
                    "{} ({class}): {found:?} for {expected:?}",
                    model.display()
                );
            }
        }
    }
}

#[test]
fn a_label_that_is_read_at_padding_is_told() {
    let model = root().join("fixtures/formats/heads/bert_sequence");
    for (mask, is_told) in [("0,0,1,1,1", true), ("1,1,1,0,0", false)] {
        let output = Command::new(program())
            .args(["report", "--format", "json", "--no-settings"])
            .args(["--tokens", "1,1,5,6,2", "--attention-mask", mask])
            .arg(&model)
            .output()
            .expect("the program");
        assert!(output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.contains("which is padding"), is_told, "{said}");
    }
}
