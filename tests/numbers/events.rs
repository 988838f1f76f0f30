//! Logs of small trainings in which something goes wrong at step 250, and of healthy ones that look alike
//! (`fixtures/histories/make_events.py`).

use attnscope_checks::{Severity, Thresholds};
use attnscope_history::{Finding, History, Judge, of_text};

const AT: u64 = 250;

fn judged(name: &str) -> (History, Judge) {
    let path = testing::root().join(format!("fixtures/histories/{name}.jsonl"));
    let text = std::fs::read_to_string(path).expect("a log");
    let history = of_text(name, &text).expect("a history");
    assert_eq!(history.notes, Vec::<String>::new());
    let mut judge = Judge::new(Thresholds::default());
    judge.look(&history);
    (history, judge)
}

/// Findings of a severity or worse, each by its check, place and step.
fn found(name: &str, least: Severity) -> Vec<(String, Severity, String)> {
    let (history, judge) = judged(name);
    let step = |finding: &&Finding| history.records()[finding.begin].step;
    let grave = judge.findings().iter();
    let grave = grave.filter(|finding| finding.severity >= least);
    let grave = grave.inspect(|finding| {
        let steps = AT..AT + 60;
        let at = step(finding);
        assert!(at.is_some_and(|at| steps.contains(&at)), "{finding:?}");
    });
    let named = grave.map(|finding| {
        let what = (finding.check.to_owned(), finding.severity);
        (what.0, what.1, finding.place.to_string())
    });
    named.collect()
}

/// Whether a check begins at the step of the event, in all the places given.
fn begins(name: &str, check: &str, severity: Severity, places: &[&str]) {
    begins_at(AT, name, check, severity, places);
}

fn begins_at(at: u64, name: &str, check: &str, severity: Severity, places: &[&str]) {
    let (history, judge) = judged(name);
    for place in places {
        let mut all = judge.findings().iter();
        let finding = all.find(|finding| {
            finding.check == check
                && (place.is_empty() || finding.place.to_string() == *place)
                && history.records()[finding.begin].step == Some(at)
        });
        let finding = finding.unwrap_or_else(|| {
            panic!(
                "{name}: no {check} at {place}: {:#?}",
                found(name, Severity::Info)
            )
        });
        assert_eq!(finding.severity, severity, "{name}: {finding:?}");
    }
}

#[test]
fn a_mask_that_is_lost_is_a_leak_at_that_record_in_the_right_heads_alone() {
    begins("leak_head", "future-leak", Severity::Error, &["L1H2"]);
    let only = found("leak_head", Severity::Warning);
    assert_eq!(only.len(), 1, "{only:?}");
    let heads = ["L0H0", "L0H3", "L1H0", "L1H3"];
    begins("padding_leak", "padding-leak", Severity::Error, &heads);
    let (_, judge) = judged("leak_head");
    let why = &judge.findings()[0].why;
    assert!(why.contains("later keys get up to 0."), "{why}");
    assert!(why.contains("1 of 4 heads"), "{why}");
}

#[test]
fn what_breaks_is_named_where_it_broke() {
    begins("dead_head", "dead-head", Severity::Warning, &["L1H1"]);
    begins("no_scores", "level-shift", Severity::Error, &["L0", "L1"]);
    begins("sharp", "level-shift", Severity::Error, &["L0", "L1"]);
    for name in ["rank", "other_data"] {
        begins(name, "loss-jump", Severity::Error, &[""]);
    }
    // Tokens become alike before any weight could have changed.
    begins("rank", "rank-collapse", Severity::Error, &["L1"]);
    for name in ["shuffled", "other_data"] {
        let of = found(name, Severity::Warning);
        assert!(of.iter().all(|(check, ..)| check != "rank-collapse"));
    }
    begins("shuffled", "loss-jump", Severity::Error, &[""]);
    let (_, judge) = judged("shuffled");
    let jump = judge.findings().iter().find(|of| of.check == "loss-jump");
    let why = &jump.expect("a jump").why;
    assert!(
        why.contains("labels are no longer the next tokens"),
        "{why}"
    );
    begins(
        "document_leak",
        "document-leak",
        Severity::Error,
        &["L0H0", "L1H3"],
    );
    begins("axis", "wrong-axis", Severity::Error, &["L0", "L1"]);
    let of_axis = found("axis", Severity::Warning);
    assert!(
        of_axis.iter().all(|(check, ..)| check == "wrong-axis"),
        "{of_axis:?}"
    );
}

/// What was wrong from the first record on is told, though nothing begins.
#[test]
fn faults_that_a_run_has_from_its_start_are_told() {
    let all = ["L0H0", "L0H3", "L1H0", "L1H3"];
    for (name, check, places) in [
        ("open", "future-leak", &all[..]),
        ("off_by_one", "future-leak", &all),
        ("open_padding", "padding-leak", &all),
        ("copied", "label-shift", &[""]),
    ] {
        begins_at(0, name, check, Severity::Error, places);
        let (_, judge) = judged(name);
        let grave = judge
            .findings()
            .iter()
            .filter(|of| of.severity > Severity::Info);
        let others: Vec<_> = grave.filter(|of| of.check != check).collect();
        assert!(others.is_empty(), "{name}: {others:#?}");
    }
    // Some train across documents on purpose.
    begins_at(0, "joined", "document-leak", Severity::Warning, &all);
}

/// An encoder sees later keys as it should, and so does a model whose labels the log does not tell.
#[test]
fn later_keys_are_a_fault_only_of_a_model_that_predicts_them() {
    let path = testing::root().join("fixtures/histories/open.jsonl");
    let text = std::fs::read_to_string(path).expect("a log");
    let leaks = |text: &str| {
        let history = of_text("run", text).expect("a history");
        let mut judge = Judge::new(Thresholds::default());
        judge.look(&history);
        judge.findings().len()
    };
    assert!(leaks(&text) > 0);
    for replaced in ["\"next_loss\"", "\"later_rows\"", "\"batch\""] {
        assert_eq!(leaks(&text.replace(replaced, "\"other\"")), 0, "{replaced}");
    }
    // Labels at some positions alone: what the others see may be meant.
    let part = text.replace("\"batch\":{", "\"batch\":{\"labels\":\"part\",");
    assert_eq!(leaks(&part), 0);
    let next = text.replace("\"next_loss\"", "\"labels\":\"next\",\"other\"");
    assert!(leaks(&next) > 0);
}

#[test]
fn healthy_trainings_that_look_alike_are_not_warned_of() {
    for name in [
        "curriculum",
        "restart",
        "no_dropout",
        "repeated",
        "padded",
        "encoder",
        "batch",
        "packed",
        "prefix",
        "shifted_input",
    ] {
        assert_eq!(found(name, Severity::Warning), [], "{name}");
    }
}

/// A leak that spreads is told in each head where it begins, though others leak already.
#[test]
fn a_leak_that_spreads_is_found_in_each_head() {
    let path = testing::root().join("fixtures/histories/leak_head.jsonl");
    let text = std::fs::read_to_string(path).expect("a log");
    let spread = text.lines().map(|line| {
        let mut record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if record["step"].as_u64() >= Some(300) {
            record["values"]["later_mass"][0][1] = 0.2.into();
        }
        record.to_string()
    });
    let spread: Vec<String> = spread.collect();
    // The header begins with its own key.
    let header = text.lines().next().expect("a header");
    let log = [header.to_owned(), spread[1..].join("\n")].join("\n") + "\n";
    let history = of_text("run", &log).expect("a history");
    let mut judge = Judge::new(Thresholds::default());
    judge.look(&history);
    let leaks = judge.findings().iter();
    let leaks = leaks.filter(|of| of.check == "future-leak");
    let leaks: Vec<(String, Option<u64>, Severity)> = leaks
        .map(|of| {
            let step = history.records()[of.begin].step;
            (of.place.to_string(), step, of.severity)
        })
        .collect();
    let expected = [("L1H2", 250), ("L0H1", 300)];
    let expected = expected.map(|(place, step)| (place.to_owned(), Some(step), Severity::Error));
    assert_eq!(leaks, expected);
}

/// What begins is told once, where it begins, though the first records tell nothing and the last ones all have it.
#[test]
fn a_leak_that_begins_is_not_told_as_one_from_the_start() {
    let path = testing::root().join("fixtures/histories/padding_leak.jsonl");
    let text = std::fs::read_to_string(path).expect("a log");
    let (header, records) = text.split_once('\n').expect("a header");
    let without = records.lines().map(|line| {
        let mut record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if record["step"].as_u64() < Some(100) {
            record["values"]
                .as_object_mut()
                .expect("values")
                .remove("pad_mass");
        }
        record.to_string() + "\n"
    });
    let log = format!("{header}\n{}", without.collect::<String>());
    let history = of_text("run", &log).expect("a history");
    let mut judge = Judge::new(Thresholds::default());
    judge.look(&history);
    let leaks = judge.findings().iter();
    let leaks: Vec<(Option<u64>, String)> = leaks
        .filter(|of| of.check == "padding-leak")
        .map(|of| (history.records()[of.begin].step, of.place.to_string()))
        .collect();
    assert_eq!(leaks.len(), 8, "{leaks:?}");
    assert!(leaks.iter().all(|(step, _)| *step == Some(AT)), "{leaks:?}");
}

/// A run that was started again may see other layers: an axis stays with its layer.
#[test]
fn a_wrong_axis_stays_with_its_layer_when_a_log_gets_more_layers() {
    let head = r#""statistics":["entropy"],"rows":0,"every":1"#;
    let layer =
        |idx: usize| format!(r#"{{"name":"l{idx}","stack":null,"layer":{idx},"n_heads":1}}"#);
    let record = |step: usize, over: &str, values: &str| {
        format!(
            r#"{{"step":{step},"loss":1.0,"batch":{{"over":{over}}},"values":{{"entropy":{values}}}}}"#
        )
    };
    let one = record(0, r#"["queries"]"#, "[[1.0]]");
    let more = |step| record(step, r#"[null,"queries"]"#, "[[1.0],[1.0]]");
    let log = [
        format!(
            r#"{{"attnscope":"monitor","version":1,{head},"layers":[{}]}}"#,
            layer(1)
        ),
        one,
        format!(
            r#"{{"segment":{{"step":1,{head},"layers":[{},{}]}}}}"#,
            layer(0),
            layer(1)
        ),
        more(1),
        more(2),
    ];
    let history = of_text("run", &(log.join("\n") + "\n")).expect("a history");
    let mut judge = Judge::new(Thresholds::default());
    judge.look(&history);
    let axes = judge
        .findings()
        .iter()
        .filter(|of| of.check == "wrong-axis");
    let axes: Vec<(String, usize)> = axes.map(|of| (of.place.to_string(), of.begin)).collect();
    assert_eq!(axes, [("L1".to_owned(), 0)]);
}

/// A watch ends within three records of a leak.
#[test]
fn a_leak_is_an_error_two_records_after_it_began() {
    let path = testing::root().join("fixtures/histories/leak_head.jsonl");
    let text = std::fs::read_to_string(path).expect("a log");
    let until = |n_records: usize| {
        let lines: Vec<&str> = text.lines().take(1 + n_records).collect();
        let history = of_text("run", &(lines.join("\n") + "\n")).expect("a history");
        let mut judge = Judge::new(Thresholds::default());
        judge.look(&history);
        judge.findings().iter().map(|of| of.severity).max()
    };
    // Records of steps 0 to 240 are 25.
    assert_eq!(until(25), None);
    assert_eq!(until(26), Some(Severity::Warning));
    assert_eq!(until(27), Some(Severity::Error));
}
