//! Verdicts in the formats of other programs: each is read back by a reader that this program does not use.

use attnscope_checks::{CHECKS, Check, Finding, Severity, Status, Tester, Verdict, of_runs};
use attnscope_report::{
    TargetVerdict, write_check_markdown, write_github, write_junit, write_sarif,
};
use attnscope_spec::{Place, Stack};
use serde_json::{Value, json};
use testing::checkpoint_copy::{Copy, attnscope, text, unread};

const TOKENS: &str = "5,9,2,5,9,2,200,7,7,31,5,9";
const FORMATS: [&str; 3] = ["junit", "sarif", "github"];

/// What a name or a message could hold to break out of a format.
const HOSTILE: &str =
    "<script>alert('x')</script> \"&]]>\r\n::error::x, y: 50 % {0} | `z` \u{1b}[31m\u{0}é";

fn finding(severity: Severity, evidence: &str) -> Finding {
    Finding {
        check: CHECKS[0].id,
        severity,
        place: Place::layer(Stack::Cross, 3).head(7).query(5),
        value: f64::NAN,
        threshold: 0.5,
        unit: "nats",
        evidence: evidence.to_owned(),
        advice: "mend it".to_owned(),
    }
}

fn verdict(status: Status, findings: Vec<Finding>) -> Verdict {
    Verdict {
        status,
        why: format!("because {HOSTILE}"),
        would_test: (status == Status::NotTested).then_some(Tester::OwnCode),
        explains: None,
        findings,
    }
}

/// A target with a verdict of every kind.
fn hostile() -> Vec<TargetVerdict> {
    let check = |idx: usize| -> &'static Check { CHECKS[idx] };
    let errors = vec![
        finding(Severity::Error, HOSTILE),
        finding(Severity::Warning, "a warning"),
        finding(Severity::Info, "for information"),
    ];
    vec![TargetVerdict {
        error: None,
        what_if: Vec::new(),
        first: Vec::new(),
        notes: vec![format!("a note {HOSTILE}").into()],
        unread: vec![HOSTILE.to_owned()],
        cover: Vec::new(),
        next: None,
        left_out: Vec::new(),
        target: format!("models/{HOSTILE}"),
        verdicts: vec![
            (check(0), verdict(Status::Fired, errors)),
            (check(1), verdict(Status::NotApplicable, Vec::new())),
            (check(2), verdict(Status::Undecidable, Vec::new())),
            (check(3), verdict(Status::NotTested, Vec::new())),
            (check(4), verdict(Status::Passed, Vec::new())),
        ],
    }]
}

fn written(
    write: impl Fn(&[TargetVerdict], &mut Vec<u8>) -> std::io::Result<()>,
    targets: &[TargetVerdict],
) -> String {
    let mut bytes = Vec::new();
    write(targets, &mut bytes).expect("writes");
    text(&bytes)
}

/// What `check` writes of the small checkpoint, and how it ends.
fn checked(copy: &Copy, arguments: &[&str]) -> (Option<i32>, String) {
    let path = copy.path().to_str().expect("a path");
    let output = attnscope(&[&["check", path, "--tokens", TOKENS], arguments].concat());
    (output.status.code(), text(&output.stdout))
}

const BROKEN: [&str; 2] = ["--set", "softmax_axis=queries"];

#[test]
fn junit_has_a_suite_for_a_target_and_a_case_for_a_check() {
    let copy = Copy::of("gpt2");
    let (code, xml) = checked(&copy, &[&BROKEN[..], &["--format", "junit"]].concat());
    assert_eq!(code, Some(1));
    let document = roxmltree::Document::parse(&xml).expect("XML");
    let suites: Vec<_> = document
        .descendants()
        .filter(|n| n.has_tag_name("testsuite"))
        .collect();
    assert_eq!(suites.len(), 1);
    assert_eq!(suites[0].attribute("name"), copy.path().to_str());
    let cases: Vec<_> = suites[0]
        .children()
        .filter(|n| n.has_tag_name("testcase"))
        .collect();
    let names: Vec<&str> = cases
        .iter()
        .filter_map(|case| case.attribute("name"))
        .collect();
    let ids: Vec<&str> = of_runs().map(|check| check.id).collect();
    assert_eq!(names, ids);
    let failed =
        |case: &roxmltree::Node<'_, '_>| case.children().any(|n| n.has_tag_name("failure"));
    let wrong_axis = cases
        .iter()
        .find(|case| case.attribute("name") == Some("wrong-axis"));
    assert!(failed(wrong_axis.expect("a case")));
    let n_failed = cases.iter().filter(|case| failed(case)).count();
    assert_eq!(
        suites[0].attribute("failures"),
        Some(n_failed.to_string().as_str())
    );
}

#[test]
fn junit_says_of_each_kind_of_verdict_what_it_is() {
    let xml = written(write_junit, &hostile());
    let document = roxmltree::Document::parse(&xml).expect("XML");
    let cases: Vec<_> = document
        .descendants()
        .filter(|n| n.has_tag_name("testcase"))
        .collect();
    let child = |idx: usize, name: &str| cases[idx].children().find(|n| n.has_tag_name(name));
    let failure = child(0, "failure").expect("an error is a failure");
    let said = failure.attribute("message").expect("a message");
    assert!(
        said.starts_with("decoder.blocks.3.cross_attn head 7: <script>alert('x')</script>"),
        "{said}"
    );
    let out = child(0, "system-out")
        .expect("what is not an error")
        .text()
        .expect("text");
    assert!(
        out.contains("warning: ") && out.contains("info: ") && !out.contains("error: "),
        "{out}"
    );
    for (idx, status) in [(1, "not-applicable"), (2, "undecidable")] {
        let skipped = child(idx, "skipped").expect("skipped");
        let said = skipped.attribute("message").expect("why");
        assert!(
            said.starts_with(&format!("{status}: because <script>")),
            "{said}"
        );
    }
    let untested = child(3, "skipped").expect("skipped").attribute("message");
    assert!(untested.is_some_and(|said| said.starts_with("not-tested: because")));
    assert!(child(4, "failure").is_none() && child(4, "skipped").is_none());
}

#[test]
fn sarif_has_what_the_standard_requires() {
    let copy = Copy::of("gpt2");
    let (code, log) = checked(&copy, &[&BROKEN[..], &["--format", "sarif"]].concat());
    assert_eq!(code, Some(1));
    let log: Value = serde_json::from_str(&log).expect("JSON");
    assert_eq!(log["version"], "2.1.0");
    assert!(
        log["$schema"]
            .as_str()
            .expect("a schema")
            .ends_with("sarif-2.1.0.json")
    );
    assert_eq!(log["runs"].as_array().expect("runs").len(), 1);
    let run = &log["runs"][0];
    assert_eq!(run["tool"]["driver"]["name"], "attnscope");
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    let ids: Vec<&str> = rules
        .iter()
        .filter_map(|rule| rule["id"].as_str())
        .collect();
    assert_eq!(ids, CHECKS.iter().map(|check| check.id).collect::<Vec<_>>());
    for rule in rules {
        let short = rule["shortDescription"]["text"].as_str().expect("a text");
        assert!(!short.is_empty() && !short.contains('#'), "{short}");
        assert!(
            rule["help"]["text"]
                .as_str()
                .expect("help")
                .contains("## Why it matters")
        );
    }
    let results = run["results"].as_array().expect("results");
    assert!(!results.is_empty());
    for result in results {
        let idx = result["ruleIndex"].as_u64().expect("an index") as usize;
        assert_eq!(result["ruleId"], ids[idx]);
        let level = result["level"].as_str().expect("a level");
        assert!(["error", "warning", "note"].contains(&level), "{level}");
        assert!(result["message"]["text"].is_string());
        let place = &result["locations"][0];
        let uri = place["physicalLocation"]["artifactLocation"]["uri"].as_str();
        assert!(uri.expect("a uri").starts_with("file:///"));
        assert!(place["logicalLocations"][0]["fullyQualifiedName"].is_string());
        for name in ["value", "threshold", "unit"] {
            assert!(!result["properties"][name].is_null(), "{name}");
        }
    }
    assert!(
        results
            .iter()
            .any(|result| result["ruleId"] == "wrong-axis")
    );
}

#[test]
fn sarif_keeps_hostile_names_and_numbers_that_json_lacks() {
    let log = written(write_sarif, &hostile());
    let log: Value = serde_json::from_str(&log).expect("JSON");
    let run = &log["runs"][0];
    let levels: Vec<&Value> = run["results"]
        .as_array()
        .expect("results")
        .iter()
        .map(|r| &r["level"])
        .collect();
    assert_eq!(levels, [&json!("error"), &json!("warning"), &json!("note")]);
    let result = &run["results"][0];
    let said = result["message"]["text"].as_str().expect("a text");
    assert!(
        said.contains("{{0}}") && said.contains("</script>"),
        "{said}"
    );
    assert_eq!(result["properties"]["value"], "NaN");
    let place = &result["locations"][0];
    assert_eq!(
        place["logicalLocations"][0]["fullyQualifiedName"],
        "decoder.blocks.3.cross_attn head 7"
    );
    let uri = place["physicalLocation"]["artifactLocation"]["uri"]
        .as_str()
        .expect("a uri");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~/%".contains(c);
    assert!(
        uri.starts_with("models/%3Cscript%3E") && uri.chars().all(is_plain),
        "{uri}"
    );
    let notes = run["invocations"][0]["toolExecutionNotifications"].as_array();
    assert_eq!(
        notes.expect("notes").len(),
        4,
        "what was not judged is said, and the note"
    );
}

#[test]
fn workflow_commands_keep_to_their_lines() {
    let lines = written(write_github, &hostile());
    let lines: Vec<&str> = lines.split('\n').collect();
    let begins = [
        "::notice title=note::",
        "::error title=",
        "::warning title=",
        "::notice title=",
        "attnscope check: 1 target, 1 error",
    ];
    assert_eq!(lines.len(), begins.len() + 1, "{lines:?}");
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line}");
    }
    assert!(
        lines[1].contains("%0D%0A::error::x, y: 50 %25"),
        "{}",
        lines[1]
    );
    assert_eq!(lines.last(), Some(&""), "a line end at the end");
}

#[test]
fn one_check_does_not_take_all_annotations() {
    let mut targets = hostile();
    targets[0].verdicts[0].1.findings = vec![finding(Severity::Error, "seen"); 40];
    let lines = written(write_github, &targets);
    assert_eq!(
        lines
            .lines()
            .filter(|line| line.starts_with("::error"))
            .count(),
        5
    );
    assert!(
        lines.contains("40 errors") && lines.contains("35 not shown"),
        "{lines}"
    );
}

#[test]
fn the_same_verdict_is_the_same_bytes_and_a_healthy_model_passes() {
    let copy = Copy::of("gpt2");
    for format in FORMATS {
        let (_, first) = checked(
            &copy,
            &[
                "--format",
                format,
                "--select",
                "wrong-axis",
                "--threads",
                "1",
            ],
        );
        let (code, second) = checked(
            &copy,
            &[
                "--format",
                format,
                "--select",
                "wrong-axis",
                "--threads",
                "2",
            ],
        );
        assert_eq!(first, second, "{format}");
        assert_eq!(code, Some(0), "{format}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let copy = Copy::of("gpt2");
    for format in FORMATS {
        let path = copy.path().to_str().expect("a path");
        let output = unread(&[
            "check",
            path,
            "--tokens",
            TOKENS,
            "--select",
            "wrong-axis",
            "--format",
            format,
        ]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{format}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn markdown_groups_findings_and_holds_no_markup_of_names() {
    let said = written(write_check_markdown, &hostile());
    // The name in the heading is a span of code.
    assert!(
        !said.lines().skip(1).any(|line| line.contains("<script")),
        "{said}"
    );
    assert!(
        said.contains("**Wrong:**") && said.contains("**First:** mend it"),
        "{said}"
    );
    // Errors, warnings and information are a row each; no cell ends early.
    let rows: Vec<&str> = said.lines().filter(|line| line.starts_with("| ")).collect();
    assert_eq!(rows.len(), 5, "{said}");
    for row in rows {
        assert_eq!(row.replace("\\|", "").matches('|').count(), 8, "{row}");
    }
    let run = testing::judged::fixture("history");
    let output = attnscope(&[
        "check",
        run.to_str().expect("a path"),
        "--format",
        "markdown",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains("entropy-collapse | L0H1-3, L1H0-3 (7 heads)"),
        "{said}"
    );
}

#[test]
fn a_collapse_of_all_heads_is_a_few_lines() {
    let log = testing::judged::fixture("histories/jump.jsonl");
    let log = log.to_str().expect("a path");
    let said = text(&attnscope(&["check", log]).stdout);
    assert!(said.lines().count() <= 30, "{said}");
    for line in [
        "level-shift         L0-2 (3 layers)",
        "entropy-collapse    L0-2H0-3 (12 heads)",
        "note: entropy-collapse begins from step 260 (L2H0) to step 295, in 12 heads",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    // All of it is a flag away.
    let said = text(&attnscope(&["check", log, "--verbose"]).stdout);
    assert!(
        said.contains("note: entropy-collapse L1H3 begins at step 280"),
        "{said}"
    );
}
