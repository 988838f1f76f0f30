//! `heads --over-prompts`: one row per head over a set of prompts, against the rows of `report` for each prompt.

use std::collections::BTreeMap;

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};

const SET: &str = "fixtures/degenerate/prompts.jsonl";
const TARGET: &str = "fixtures/degenerate";

fn json(arguments: &[&str]) -> Value {
    let output = attnscope(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn figures_are_those_of_the_values_that_report_writes_for_each_prompt() {
    let report = json(&["report", TARGET, "--inputs", SET]);
    let over = json(&[
        "heads",
        TARGET,
        "--inputs",
        SET,
        "--over-prompts",
        "--format",
        "json",
    ]);
    let mut values: BTreeMap<(u64, u64, String), Vec<(f64, String)>> = BTreeMap::new();
    for prompt in report["prompts"].as_array().expect("prompts") {
        let id = prompt["id"].as_str().expect("an id");
        for layer in prompt["layers"].as_array().expect("layers") {
            for head in layer["heads"].as_array().expect("heads") {
                for (name, value) in head["stats"].as_object().expect("statistics") {
                    let [layer, head] = [&layer["layer"], &head["head"]];
                    let at = [layer, head].map(|idx| idx.as_u64().expect("an index"));
                    let known = values.entry((at[0], at[1], name.clone())).or_default();
                    known.extend(value.as_f64().map(|value| (value, id.to_owned())));
                }
            }
        }
    }
    assert_eq!(
        over["prompts"].as_u64(),
        Some(report["prompts"].as_array().map_or(0, Vec::len) as u64)
    );
    let mut n_compared = 0;
    for head in over["heads"].as_array().expect("heads") {
        let of = |name: &str| head[name].as_u64().expect("a number");
        for (name, spread) in head["statistics"].as_object().expect("statistics") {
            let Some(all) = values.get(&(of("layer"), of("head"), name.clone())) else {
                assert_eq!(spread["n"], 0);
                continue;
            };
            assert_eq!(spread["n"].as_u64(), Some(all.len() as u64), "{name}");
            if all.is_empty() {
                assert!(spread["mean"].is_null() && spread["deciles"].is_null());
                continue;
            }
            let mut sorted = all.clone();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
            let near = |found: &Value, value: f64| {
                let found = found.as_f64().expect("a number");
                assert!(
                    (found - value).abs() <= 2e-6 * value.abs().max(1.0),
                    "{name}: {found}, not {value}"
                );
            };
            let n = all.len();
            near(
                &spread["mean"],
                all.iter().map(|(value, _)| value).sum::<f64>() / n as f64,
            );
            near(&spread["min"], sorted[0].0);
            near(&spread["max"], sorted[n - 1].0);
            let value_in = |id: &Value| {
                let found = all
                    .iter()
                    .find(|(_, prompt)| Some(prompt.as_str()) == id.as_str());
                found.expect("a prompt").0
            };
            near(&spread["min"], value_in(&spread["min_prompt"]));
            near(&spread["max"], value_in(&spread["max_prompt"]));
            for nth in 1..10 {
                near(
                    &spread["deciles"][nth - 1],
                    sorted[(nth * n).div_ceil(10) - 1].0,
                );
            }
            n_compared += 1;
        }
    }
    assert!(n_compared > 100, "{n_compared}");
}

#[test]
fn csv_text_and_markdown_hold_the_same_heads_and_wrong_flags_are_refused() {
    let run = |more: &[&str]| {
        let arguments = [
            &["heads", TARGET, "--inputs", SET, "--over-prompts"][..],
            more,
        ]
        .concat();
        let output = attnscope(&arguments);
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let (code, csv, said) = run(&["--format", "csv"]);
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<&str> = csv.lines().collect();
    let n_of = |part: &str| lines.iter().filter(|line| line.starts_with(part)).count();
    let (n_statistics, n_places) = (n_of("statistic,"), n_of("place,"));
    assert_eq!(n_statistics + n_places + 1, lines.len());
    let n_heads = lines
        .iter()
        .filter(|line| line.contains(",entropy_relative,"))
        .count();
    assert!(
        n_heads > 0 && n_statistics % n_heads == 0,
        "{n_heads} of {n_statistics}"
    );
    assert_eq!(n_places, n_heads * 10);
    let (_, shown, _) = run(&["--statistic", "previous_mass"]);
    assert!(shown.contains("previous_mass over 24 prompts"), "{shown}");
    assert_eq!(shown.lines().count(), n_heads + 3, "{shown}");
    let (_, markdown, _) = run(&["--format", "markdown"]);
    assert_eq!(
        markdown
            .lines()
            .filter(|line| line.starts_with('|'))
            .count(),
        n_heads + 2
    );
    for (more, expected) in [
        (
            &["--statistic", "previous_mas"][..],
            "did you mean previous_mass?",
        ),
        (
            &["--statistic", "resid_norm"],
            "expected a statistic of heads",
        ),
        (&["--effect", "copying"], "cannot be used with"),
    ] {
        let (code, _, said) = run(more);
        assert_eq!(code, Some(2), "{more:?}: {said}");
        assert!(said.contains(expected), "{more:?}: {said}");
    }
    // The screen goes over prompts with one checkpoint, not with a training.
    let output = attnscope(&["open", "fixtures/history/run.jsonl", "--inputs", SET]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("--inputs: expected one checkpoint, found a training"),
        "{said}"
    );
    let output = attnscope(&["heads", TARGET, "--over-prompts", "the old king"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("--inputs"),
        "{}",
        text(&output.stderr)
    );
}
