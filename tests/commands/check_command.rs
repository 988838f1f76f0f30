//! The commands around checks: exit codes, which checks are asked, the shape of the JSON, pages and thresholds.

use std::collections::BTreeSet;
use std::fs;

use attnscope_checks::stats::STATISTICS;
use attnscope_checks::{CHECKS, of_runs};
use serde_json::{Value, json};
use testing::checkpoint_copy::{attnscope, text};
use testing::judged::fixture;

fn path(name: &str) -> String {
    fixture(name).to_str().expect("a path").to_owned()
}

fn captured(name: &str) -> String {
    path(&format!("captured/{name}.safetensors"))
}

/// Exit code, standard output and standard error.
fn check(arguments: &[&str]) -> (i32, String, String) {
    let output = attnscope(&[&["check"], arguments].concat());
    let code = output.status.code().expect("it ends by itself");
    (code, text(&output.stdout), text(&output.stderr))
}

fn code(arguments: &[&str]) -> i32 {
    check(arguments).0
}

fn verdict(arguments: &[&str]) -> Value {
    let (_, out, error) = check(&[arguments, &["--format", "json"]].concat());
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out} {error}"))
}

#[test]
fn the_exit_code_follows_the_severity_that_is_asked_for() {
    let cases = [
        // An error, a warning, information, nothing.
        ("wrong_axis", [1, 1, 1, 0]),
        ("soft_mask_faint", [0, 1, 1, 0]),
        ("correct", [0, 0, 1, 0]),
        ("window", [0, 0, 0, 0]),
    ];
    for (name, codes) in cases {
        let file = captured(name);
        assert_eq!(code(&[&file]), codes[0], "{name} by default");
        for (level, expected) in ["error", "warning", "info", "never"].iter().zip(codes) {
            assert_eq!(
                code(&[&file, "--fail-on", level]),
                expected,
                "{name} {level}"
            );
        }
    }
}

#[test]
fn only_the_checks_that_are_asked_for_speak() {
    let file = captured("wrong_axis_heads");
    let ids = |arguments: &[&str]| -> BTreeSet<String> {
        let said = verdict(&[&[file.as_str()], arguments].concat());
        let checks = said["targets"][0]["checks"].as_array().expect("checks");
        let id = |check: &Value| check["id"].as_str().expect("an id").to_owned();
        checks.iter().map(id).collect()
    };
    assert_eq!(ids(&[]).len(), of_runs().count());
    assert_eq!(
        ids(&["--select", "mask-mass"]),
        BTreeSet::from(["mask-mass".to_owned()])
    );
    let both = ids(&["--select", "mask-mass,wrong-axis", "--ignore", "wrong-axis"]);
    assert_eq!(both, BTreeSet::from(["mask-mass".to_owned()]));
    assert_eq!(ids(&["--ignore", "mask-mass"]).len(), of_runs().count() - 1);
    assert_eq!(code(&[&file, "--select", "row-sum,nan-or-inf"]), 0);
    assert_eq!(code(&[&file, "--ignore", "mask-mass,wrong-axis"]), 0);
    assert_eq!(code(&[&file, "--ignore", "mask-mass"]), 1);
}

#[test]
fn an_unknown_check_is_refused_with_the_nearest_one() {
    let file = captured("correct");
    for flag in ["--select", "--ignore"] {
        let (code, out, error) = check(&[&file, flag, "row-sum,entropy"]);
        assert_eq!((code, out.as_str()), (2, ""), "{error}");
        let both = "did you mean entropy-collapse or entropy-uniform?";
        assert!(error.contains(both), "{error}");
    }
    let output = attnscope(&["explain", "wrong-axes"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean wrong-axis?"));
}

#[test]
fn a_statistic_is_explained_by_its_id_and_by_its_name_on_the_screen() {
    let by_id = attnscope(&["explain", "induction_mass"]);
    assert_eq!(by_id.status.code(), Some(0));
    let page = text(&by_id.stdout);
    assert!(
        page.starts_with("# induction_mass · after same token"),
        "{page}"
    );
    let by_name = attnscope(&["explain", "after same token"]);
    assert_eq!(text(&by_name.stdout), page);
    let list = text(&attnscope(&["explain", "statistics"]).stdout);
    assert_eq!(list.lines().count(), STATISTICS.len());
}

#[test]
fn thresholds_of_a_file_change_the_verdict_and_wrong_ones_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let table = directory.path().join("lines.toml");
    let table = table.to_str().expect("a path");
    let with = |content: &str| {
        std::fs::write(table, content).expect("writes");
        check(&[&captured("soft_mask"), "--thresholds", table])
    };
    assert_eq!(with("").0, 1);
    assert_eq!(with("[mask-mass]\nerror_mass = 0.1\n").0, 0);
    for content in [
        "[mask-mass]\nmost = 1\n",
        "[mask-mass]\nerror_mass = nan\n",
        "[mask",
    ] {
        let (code, _, error) = with(content);
        assert_eq!(code, 2, "{content}");
        assert!(error.contains("lines.toml"), "{error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
    assert_eq!(
        code(&[&captured("correct"), "--thresholds", "/no/such/file"]),
        2
    );
}

#[test]
fn several_targets_have_a_verdict_each_and_one_exit_code() {
    let (good, bad, lost) = (
        captured("correct"),
        captured("wrong_axis"),
        captured("none"),
    );
    let said = verdict(&[&good, &bad, &path("captured/pattern_only.npz")]);
    let targets = said["targets"].as_array().expect("targets");
    let names: Vec<&str> = targets
        .iter()
        .map(|t| t["target"].as_str().expect("a name"))
        .collect();
    assert_eq!(
        names,
        [good.as_str(), &bad, &path("captured/pattern_only.npz")]
    );
    assert_eq!(code(&[&good, &good]), 0);
    assert_eq!(code(&[&good, &bad]), 1);
    assert_eq!(code(&[&bad, &good]), 1);
    for order in [[&lost, &bad], [&bad, &lost]] {
        assert_eq!(code(&[order[0], order[1]]), 2);
    }
    // A checkpoint and a trace together.
    let model = path("healthy");
    let said = verdict(&[
        &model,
        &good,
        "--text",
        "the king was small and saw a red mat .",
    ]);
    assert_eq!(said["targets"].as_array().expect("targets").len(), 2);
}

#[test]
fn the_json_has_the_shape_that_programs_rely_on() {
    let keys = |value: &Value| -> BTreeSet<String> {
        value
            .as_object()
            .expect("an object")
            .keys()
            .cloned()
            .collect()
    };
    let set =
        |names: &[&str]| -> BTreeSet<String> { names.iter().map(|n| (*n).to_owned()).collect() };
    let said = verdict(&[
        &captured("dropped_mask"),
        &captured("probe_wrong_axis"),
        &captured("encoder_decoder"),
    ]);
    assert_eq!(
        keys(&said),
        set(&["version", "targets", "cover", "left_out"])
    );
    assert_eq!(said["version"], 1);
    // Traces hold runs of their own, which no prompt can lengthen.
    assert_eq!(said["cover"], serde_json::json!([]));
    assert_eq!(said["left_out"], serde_json::json!([]));
    for target in said["targets"].as_array().expect("targets") {
        assert_eq!(keys(target), set(&["target", "checks", "findings"]));
        let checks = target["checks"].as_array().expect("checks");
        let ids: Vec<&str> = checks
            .iter()
            .map(|c| c["id"].as_str().expect("an id"))
            .collect();
        assert_eq!(ids, of_runs().map(|check| check.id).collect::<Vec<_>>());
        for check in checks {
            assert_eq!(keys(check), set(&["id", "status", "why", "would_test"]));
            let status = check["status"].as_str().expect("a status");
            let known = [
                "fired",
                "passed",
                "not-tested",
                "not-applicable",
                "undecidable",
            ];
            assert!(known.contains(&status), "{status}");
            assert_eq!(check["would_test"].is_string(), status == "not-tested");
            assert!(
                !check["why"].as_str().expect("a text").is_empty(),
                "{check}"
            );
        }
        for finding in target["findings"].as_array().expect("findings") {
            let names = [
                "check",
                "severity",
                "place",
                "value",
                "threshold",
                "unit",
                "evidence",
                "advice",
            ];
            assert_eq!(keys(finding), set(&names));
            assert_eq!(
                keys(&finding["place"]),
                set(&["stack", "layer", "head", "query", "key"])
            );
            assert!(
                ["error", "warning", "info"].contains(&finding["severity"].as_str().expect("one"))
            );
            assert!(
                finding["value"].is_number() && finding["threshold"].is_number(),
                "{finding}"
            );
        }
    }
    let place = |target_idx: usize| said["targets"][target_idx]["findings"][0]["place"].clone();
    assert_eq!(
        place(0),
        json!({"stack": null, "layer": 1, "head": 1, "query": 4, "key": 5})
    );
    assert_eq!(
        place(1),
        json!({"stack": null, "layer": null, "head": null, "query": 6, "key": 8})
    );
    assert_eq!(
        place(2),
        json!({"stack": "decoder", "layer": 0, "head": 1, "query": null, "key": 0})
    );
}

#[test]
fn numbers_that_are_none_are_words_in_the_json() {
    let directory = testing::judged::healthy_with(|weights| {
        let stored = weights.get_mut("transformer.ln_f.weight").expect("a norm");
        stored.bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    let model = directory.path().to_str().expect("a path");
    let said = verdict(&[model, "--tokens", "5,9,2,5,9,2", "--select", "nan-or-inf"]);
    let finding = &said["targets"][0]["findings"][0];
    assert_eq!(finding["value"], "NaN");
    assert!(
        finding["evidence"]
            .as_str()
            .expect("a text")
            .contains("transformer.ln_f.weight")
    );
}

#[test]
fn the_same_input_gives_the_same_bytes_whatever_the_threads() {
    let model = path("degenerate_early");
    let all = fs::read_to_string(path("healthy/prompts.jsonl")).expect("reads");
    let directory = tempfile::tempdir().expect("a directory");
    let prompts = directory.path().join("prompts.jsonl");
    let first: Vec<&str> = all.lines().take(8).collect();
    fs::write(&prompts, first.join("\n")).expect("writes");
    let prompts = prompts.to_str().expect("a path").to_owned();
    let of = |threads: &str| {
        let arguments = [
            model.as_str(),
            "--inputs",
            &prompts,
            "--format",
            "json",
            "--threads",
            threads,
        ];
        let (code, out, _) = check(&arguments);
        assert_eq!(code, 1);
        out
    };
    let once = of("1");
    assert_eq!(once, of("2"));
    assert_eq!(once, of("2"));
}

#[test]
fn the_text_names_counts_findings_and_what_was_not_judged() {
    let (code, out, _) = check(&[
        &path("degenerate"),
        "--inputs",
        &path("healthy/prompts.jsonl"),
    ]);
    assert_eq!(code, 1);
    for part in [
        "1 error",
        "trained-otherwise",
        "softmax over queries",
        "do: ",
        "18 do not apply",
        "not tested without the code that trained it",
    ] {
        assert!(out.contains(part), "{part:?} is not in\n{out}");
    }
    let to = tempfile::tempdir().expect("a directory");
    let file = to.path().join("verdict.txt");
    let file = file.to_str().expect("a path");
    let (code, out, _) = check(&[&captured("wrong_axis"), "--output", file]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        std::fs::read_to_string(file)
            .expect("reads")
            .contains("wrong-axis")
    );
}

#[test]
fn flags_of_traces_are_refused_for_a_checkpoint() {
    let model = path("healthy");
    for flags in [
        ["--mask", "causal"],
        ["--window", "4"],
        ["--documents", "0,5"],
        ["--softmax-axis", "keys"],
    ] {
        let (code, _, error) = check(&[&model, "--tokens", "5,9,2", flags[0], flags[1]]);
        assert_eq!(code, 2);
        assert!(
            error.contains("--set") && error.contains("healthy"),
            "{error}"
        );
    }
    assert_eq!(code(&[&captured("window"), "--window", "0"]), 2);
}

#[test]
fn every_check_is_explained_and_the_table_of_thresholds_is_printed() {
    for check in CHECKS {
        let output = attnscope(&["explain", check.id]);
        assert_eq!(output.status.code(), Some(0));
        let page = text(&output.stdout);
        assert!(page.starts_with(&format!("# {} (", check.id)), "{page}");
        for part in [
            "What it does",
            "Why it matters",
            "How it is measured",
            "False alarms",
            "Example",
        ] {
            assert!(page.contains(&format!("## {part}")), "{}: {part}", check.id);
        }
    }
    let list = text(&attnscope(&["explain"]).stdout);
    assert_eq!(list.lines().count(), CHECKS.len());
    let output = attnscope(&["thresholds"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), attnscope_checks::DEFAULT_THRESHOLDS);
    // What is printed is a file that may be given back.
    let directory = tempfile::tempdir().expect("a directory");
    let table = directory.path().join("defaults.toml");
    std::fs::write(&table, &output.stdout).expect("writes");
    let table = table.to_str().expect("a path");
    assert_eq!(code(&[&captured("correct"), "--thresholds", table]), 0);
}

#[test]
fn the_capture_script_is_printed_whole() {
    let output = attnscope(&["capture-script"]);
    assert_eq!(output.status.code(), Some(0));
    let script = text(&output.stdout);
    assert!(script.starts_with("\"\"\"") && script.ends_with('\n'));
    for part in [
        "import torch",
        "\nclass capture(",
        "\nclass record:",
        "\ndef probe(",
    ] {
        assert!(script.contains(part), "{part}");
    }
}
