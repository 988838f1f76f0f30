//! Logs of trainings whose mask becomes another at step 250, and of healthy ones that look alike (`fixtures/histories/make_events.py`).

use attnscope_checks::{Severity, Thresholds};
use attnscope_history::{Finding, History, Judge, beginning, document, of_text, reasons};

const AT: u64 = 250;

fn log(name: &str) -> String {
    let path = testing::root().join(format!("fixtures/histories/{name}.jsonl"));
    std::fs::read_to_string(path).expect("a log")
}

fn judged(text: &str) -> (History, Judge) {
    let history = of_text("run", text).expect("a history");
    assert_eq!(history.notes, Vec::<String>::new());
    let mut judge = Judge::new(Thresholds::default());
    judge.look(&history);
    (history, judge)
}

/// What is told of masks: each first line, with the second.
fn told(text: &str) -> Vec<String> {
    let (history, judge) = judged(text);
    let of = |finding: &Finding| {
        let reason = reasons(&history, finding).swap_remove(0);
        format!("{}; {reason}", beginning(&history, finding, &[]))
    };
    let all = judge.findings().iter();
    all.filter(|of| of.check == "mask-changed")
        .map(of)
        .collect()
}

/// A log of one layer with two heads, whose records have these masks; `documents` of each.
fn made(records: &[(&str, f64)]) -> String {
    let mut text = r#"{"attnscope":"monitor","version":1,"statistics":["entropy"],"layers":[{"name":"l0","stack":null,"layer":0,"n_heads":2}]}"#
        .to_owned();
    for (nth, (masks, documents)) in records.iter().enumerate() {
        let batch = format!(r#"{{"documents":{documents},"masks":{masks}}}"#);
        let step = 10 * nth;
        text += &format!(
            "\n{{\"step\":{step},\"loss\":1.0,\"batch\":{batch},\"values\":{{\"entropy\":[[1.0,1.0]]}}}}"
        );
    }
    text + "\n"
}

/// Such a log where every record has one mask for both heads.
fn of_kinds(kinds: &[&str]) -> String {
    let masks: Vec<String> = kinds
        .iter()
        .map(|kind| format!("{{\"kinds\":[{kind}]}}"))
        .collect();
    made(
        &masks
            .iter()
            .map(|masks| (masks.as_str(), 1.0))
            .collect::<Vec<_>>(),
    )
}

const CAUSAL: &str = r#"{"kind":"causal","reach":60,"keys":31.5}"#;
const SHORT: &str = r#"{"kind":"causal","reach":9,"keys":5.5}"#;
const WINDOW: &str = r#"{"kind":"window","left":15,"right":0,"keys":16}"#;
const DOCUMENTS: &str = r#"{"kind":"documents","later":false,"keys":8}"#;

#[test]
fn a_window_that_is_dropped_or_narrowed_is_told_once_for_all_layers() {
    assert_eq!(
        told(&log("window_dropped")),
        [
            "mask-changed begins at step 250 (window 16 → causal); in every head; sampled queries see 24.5 keys instead of 13.5 on average"
        ]
    );
    assert_eq!(
        told(&log("window_narrowed")),
        [
            "mask-changed begins at step 250 (window 16 → window 8); in every head; sampled queries see 7.4 keys instead of 13.5 on average"
        ]
    );
    for name in ["window_dropped", "window_narrowed"] {
        let (history, judge) = judged(&log(name));
        let grave = judge.findings().iter();
        let grave: Vec<_> = grave.filter(|of| of.severity > Severity::Info).collect();
        assert_eq!(grave.len(), 1, "{name}: {grave:#?}");
        assert_eq!(grave[0].severity, Severity::Warning);
        // Statistics that shift with the mask are explained by it.
        let shifts = judge
            .findings()
            .iter()
            .filter(|of| of.check == "level-shift");
        let at = shifts.map(|of| history.records()[of.begin].step);
        assert!(at.into_iter().all(|step| step != Some(AT)), "{name}");
    }
}

/// One fault is one finding: the leak says which mask made it.
#[test]
fn a_leak_names_the_mask_that_made_it() {
    let (history, judge) = judged(&log("becomes_prefix"));
    let grave = judge.findings().iter();
    let grave: Vec<_> = grave.filter(|of| of.severity > Severity::Info).collect();
    assert_eq!(grave.len(), 8, "{grave:#?}");
    for finding in grave {
        assert_eq!(finding.check, "future-leak");
        assert_eq!(history.records()[finding.begin].step, Some(AT));
        assert!(
            finding.why.ends_with("; mask: causal → prefix 5"),
            "{}",
            finding.why
        );
    }
}

#[test]
fn what_cannot_be_told_from_the_same_mask_is_no_change() {
    for name in ["window_curriculum", "evaluated", "packing_begins"] {
        let (_, judge) = judged(&log(name));
        let grave = judge.findings().iter();
        let grave: Vec<_> = grave.filter(|of| of.severity > Severity::Info).collect();
        assert!(grave.is_empty(), "{name}: {grave:#?}");
    }
    let none: [&str; 0] = [];
    // Short texts, on either side and between.
    assert_eq!(
        told(&of_kinds(&[
            SHORT, SHORT, WINDOW, WINDOW, SHORT, SHORT, WINDOW
        ])),
        none
    );
    // Single records that say something else, such as those of an evaluation.
    assert_eq!(
        told(&of_kinds(&[WINDOW, WINDOW, CAUSAL, WINDOW, WINDOW, CAUSAL])),
        none
    );
    // The batch tells of documents.
    let causal = format!("{{\"kinds\":[{CAUSAL}]}}");
    let packed = format!("{{\"kinds\":[{DOCUMENTS}]}}");
    let (before, after) = ((causal.as_str(), 1.0), (packed.as_str(), 3.5));
    assert_eq!(told(&made(&[before, before, after, after, after])), none);
    // It does not.
    let silent = (packed.as_str(), 1.0);
    assert_eq!(told(&made(&[before, before, silent, silent])).len(), 1);
    // Kinds that a later version may have.
    let new = r#"{"kind":"diagonal"}"#;
    assert_eq!(told(&of_kinds(&[CAUSAL, CAUSAL, new, new, CAUSAL])), none);
}

#[test]
fn a_mask_of_the_first_records_is_one_that_changes() {
    let told = told(&of_kinds(&[CAUSAL, WINDOW, WINDOW, WINDOW]));
    assert_eq!(
        told,
        [
            "mask-changed begins at step 10 (causal → window 16); in every head; sampled queries see 16 keys instead of 31.5 on average"
        ]
    );
}

#[test]
fn a_mask_that_comes_back_ends_the_finding_and_is_told_once() {
    let text = of_kinds(&[
        WINDOW, WINDOW, CAUSAL, CAUSAL, WINDOW, WINDOW, CAUSAL, CAUSAL, WINDOW,
    ]);
    let told = told(&text);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0]
            .starts_with("mask-changed begins at step 20 (window 16 → causal), ends at step 40; "),
        "{told:?}"
    );
}

#[test]
fn heads_that_change_are_named() {
    let both = format!("{{\"kinds\":[{CAUSAL},{WINDOW}]}}");
    let one = format!("{{\"kinds\":[{CAUSAL},{WINDOW}],\"of\":[[0,1]]}}");
    let (both, one) = ((both.as_str(), 1.0), (one.as_str(), 1.0));
    let text = made(&[both, both, one, one]);
    assert_eq!(
        told(&text),
        [
            "mask-changed L0H1 begins at step 20 (causal → window 16); sampled queries see 16 keys instead of 31.5 on average"
        ]
    );
    let (history, judge) = judged(&text);
    let document = document(&history, &judge, Vec::new());
    let value = serde_json::to_value(&document).expect("JSON");
    let finding = &value["findings"][0];
    assert_eq!(finding["check"], "mask-changed");
    assert_eq!(finding["severity"], "warning");
    assert_eq!(finding["place"], "L0H1");
    assert_eq!(finding["begins"]["step"], 20);
    assert_eq!(finding["begins"]["value"], 16.0);
    assert_eq!(finding["from"]["value"], 31.5);
    let why = finding["why"].as_str().expect("a reason");
    assert!(why.starts_with("causal → window 16; "), "{why}");
}

/// A run that was started again may see other layers: a mask stays with its layer.
#[test]
fn a_mask_stays_with_its_layer_when_a_log_gets_more_layers() {
    let head = r#""statistics":["entropy"],"rows":0,"every":1"#;
    let layer =
        |idx: usize| format!(r#"{{"name":"l{idx}","stack":null,"layer":{idx},"n_heads":1}}"#);
    let record = |step: usize, masks: &str, values: &str| {
        format!(
            r#"{{"step":{step},"loss":1.0,"batch":{{"masks":{masks}}},"values":{{"entropy":{values}}}}}"#
        )
    };
    let one = |step| record(step, &format!("{{\"kinds\":[{WINDOW}]}}"), "[[1.0]]");
    let two = format!("{{\"kinds\":[{CAUSAL},{WINDOW}],\"of\":[0,1]}}");
    let more = |step| record(step, &two, "[[1.0],[1.0]]");
    let log = [
        format!(
            r#"{{"attnscope":"monitor","version":1,{head},"layers":[{}]}}"#,
            layer(1)
        ),
        one(0),
        one(1),
        format!(
            r#"{{"segment":{{"step":2,{head},"layers":[{},{}]}}}}"#,
            layer(0),
            layer(1)
        ),
        more(2),
        more(3),
    ];
    let none: [&str; 0] = [];
    assert_eq!(told(&(log.join("\n") + "\n")), none);
}

/// A line may say anything of masks: it is used or named, and nothing else happens.
#[test]
fn masks_that_make_no_sense_are_not_used() {
    let none: [&str; 0] = [];
    let kinds = format!("{{\"kinds\":[{CAUSAL}],\"of\":[7,[0,9,null],null,3]}}");
    let huge = r#"{"kind":"window","left":9223372036854775807,"right":-9223372036854775808}"#;
    let huge = format!("{{\"kinds\":[{huge}]}}");
    let prefix = r#"{"kind":"prefix","size":-9223372036854775808}"#;
    let prefix = format!("{{\"kinds\":[{prefix}],\"of\":[]}}");
    let empty = ("{}", 1.0);
    let records = [
        empty,
        (kinds.as_str(), 1.0),
        (prefix.as_str(), 1.0),
        (huge.as_str(), 1.0),
        empty,
    ];
    assert_eq!(told(&made(&records)), none);
    let records = [
        (huge.as_str(), 1.0),
        (huge.as_str(), 1.0),
        (kinds.as_str(), 1.0),
    ];
    assert_eq!(told(&made(&records)), none);
    for wrong in [
        r#"{"kinds":3}"#,
        r#"{"kinds":[{"kind":1}]}"#,
        r#"[1]"#,
        r#"{"of":{"a":1}}"#,
    ] {
        let history = of_text("run", &made(&[(wrong, 1.0)])).expect("a history");
        assert_eq!(history.notes.len(), 1, "{wrong}: {:?}", history.notes);
    }
}
