//! One event has one severity, whoever judges it: a checkpoint alone, a directory of steps, a log, a table of rows.

use std::path::Path;

use attnscope_compute::ops::Cpu;
use attnscope_prompt::{Request, Target, Tokenizer};
use attnscope_run::{Layers, Options, input_of, questions};
use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};
use testing::judged::fixture;
use testing::opening::opened;

const GERMAN: &str = "der lehrer hat am neun und zwanzigsten juli drei tausend neun hundert fünf und siebzig sterne gekauft";
const ENGLISH: &str =
    "the teacher bought three thousand nine hundred seventy five stars on july twenty ninth";
const STORY: &str = "the king took a quiet story in the night . a big cat sang in the green city .";

/// The bundled training whose attention collapses, saved.
fn saved() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("saved");
    let path = path.to_str().expect("a path");
    let output = attnscope(&["demo", "history", "--save", path]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    directory
}

/// The exit code, and the checks whose findings are errors.
fn judged(target: &Path, arguments: &[&str]) -> (Option<i32>, Vec<String>) {
    let target = target.to_str().expect("a path");
    let output = attnscope(&[&["check", target, "--format", "json"], arguments].concat());
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = document["targets"][0]["findings"].as_array();
    let errors = findings
        .expect("findings")
        .iter()
        .filter(|finding| finding["severity"] == "error");
    let mut checks: Vec<String> = errors
        .filter_map(|finding| finding["check"].as_str().map(str::to_owned))
        .collect();
    checks.sort();
    checks.dedup();
    (output.status.code(), checks)
}

#[test]
fn the_last_checkpoint_of_a_collapse_fails_as_its_log_does_and_the_one_before_it_passes() {
    let directory = saved();
    let at = |name: &str| directory.path().join("saved").join(name);
    let collapsed = ["entropy-collapse", "score-explosion", "softmax-saturation"];
    let (code, errors) = judged(&at("run.jsonl"), &[]);
    assert_eq!(
        (code, errors),
        (Some(1), collapsed.map(str::to_owned).into())
    );
    for arguments in [&[][..], &["--text", STORY]] {
        let (code, errors) = judged(&at("checkpoints/step-400"), arguments);
        assert_eq!(
            (code, errors),
            (Some(1), collapsed.map(str::to_owned).into()),
            "{arguments:?}"
        );
        let (code, errors) = judged(&at("checkpoints/step-150"), arguments);
        assert_eq!((code, errors), (Some(0), Vec::new()), "{arguments:?}");
        // The directory of its steps.
        let (code, errors) = judged(&at("checkpoints"), arguments);
        assert_eq!(code, Some(1));
        assert_eq!(errors, collapsed, "{arguments:?}");
    }
    // Healthy throughout.
    let (code, errors) = judged(&at("steady.jsonl"), &[]);
    assert_eq!((code, errors), (Some(0), Vec::new()));
}

#[test]
fn a_step_that_has_come_from_afar_is_an_error_beside_the_step_before_as_in_its_history() {
    let directory = saved();
    let checkpoints = directory.path().join("saved/checkpoints");
    std::fs::remove_dir_all(checkpoints.join("step-400")).expect("removes");
    let (code, errors) = judged(&checkpoints, &["--text", STORY]);
    let path = checkpoints.to_str().expect("a path");
    let history = attnscope(&["history", path, "--text", STORY, "--format", "json"]);
    let history: Value = serde_json::from_slice(&history.stdout).expect("JSON");
    let findings = history["findings"].as_array().expect("findings").iter();
    let mut of_history: Vec<String> = findings
        .filter(|finding| finding["severity"] == "error")
        .filter_map(|finding| finding["check"].as_str().map(str::to_owned))
        .collect();
    of_history.sort();
    of_history.dedup();
    assert_eq!(errors, of_history);
    assert_eq!(code, Some(i32::from(!errors.is_empty())));
    // Alone it is one head with large scores.
    let (code, errors) = judged(&checkpoints.join("step-250"), &["--text", STORY]);
    assert_eq!((code, errors), (Some(0), Vec::new()));
}

/// What the check says of the cross-attention of a translator, and what the first question of the Rows panel does.
fn of_translator(name: &str) -> (Vec<String>, &'static str) {
    let path = fixture(&format!("seq2seq/{name}"));
    let target = path.to_str().expect("a path");
    let arguments = [
        "check",
        target,
        "--text",
        GERMAN,
        "--target-text",
        ENGLISH,
        "--select",
        "entropy-collapse",
        "--format",
        "json",
    ];
    let output = attnscope(&arguments);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = document["targets"][0]["findings"].as_array();
    let severities = findings
        .expect("findings")
        .iter()
        .filter_map(|finding| finding["severity"].as_str().map(str::to_owned));
    let model = opened(&path, &[]);
    let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer).expect("a tokenizer");
    let request = Request {
        target: Target::Text(ENGLISH.to_owned()),
        ..Request::text(GERMAN)
    };
    let prompt =
        attnscope_prompt::prepare(&request, &prompt_form, model.spec.limits()).expect("fits");
    let (input, mut keep) = (input_of(&prompt), Layers::default());
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    attnscope_run::run(&Cpu, &model, &input, options, &mut keep, None, &|| false).expect("runs");
    let layer = keep.0.iter().find(|layer| !layer.heads.is_empty());
    let layer = layer.expect("attention");
    let asked = questions(layer, &layer.heads[0], &|_| false);
    (severities.collect(), asked[0].bearing.label())
}

#[test]
fn the_two_translators_are_told_apart_by_the_check_and_by_rows_alike() {
    assert_eq!(
        of_translator("unscaled"),
        (vec!["warning".to_owned()], "yes")
    );
    assert_eq!(of_translator("scaled"), (Vec::new(), "no"));
    assert_eq!(of_translator("additive"), (Vec::new(), "no"));
}
