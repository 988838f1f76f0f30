//! What verdicts advise can be done: commands and flags exist, and following them changes what was complained of.

use std::collections::BTreeSet;

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};
use testing::judged::fixture;

/// Words of the string literals of a Rust file, outside its comments.
fn words_said(source: &str) -> Vec<String> {
    let code = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    let literals = code.split('"').skip(1).step_by(2);
    let words = literals.flat_map(|literal| literal.split([' ', '(', ')', ',', ':', ';', '`']));
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn commands_flags_and_settings_that_checks_name_exist() {
    let pages = ["check", "report", "diff", "history"].map(|command| {
        let output = attnscope(&[command, "--help"]);
        text(&output.stdout)
    });
    let is_flag = |flag: &str| {
        let ends = |rest: &str| !rest.starts_with(|c: char| c == '-' || c.is_alphanumeric());
        pages.iter().any(|page| {
            page.match_indices(flag)
                .any(|(at, _)| ends(&page[at + flag.len()..]))
        })
    };
    let model = fixture("healthy").display().to_string();
    let (mut commands, mut flags) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir(testing::root().join("src/checks")).expect("lists") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|end| end != "rs")
            || path.ends_with("trained_otherwise_tests.rs")
        {
            continue;
        }
        let words = words_said(&std::fs::read_to_string(&path).expect("reads"));
        for pair in words.windows(2) {
            let next = pair[1].as_str();
            match pair[0].as_str() {
                "attnscope" if next.chars().all(|c| c.is_ascii_lowercase() || c == '-') => {
                    commands.insert(next.to_owned());
                }
                "--set" => {
                    let setting = next.replace("=N", "=2");
                    let output =
                        attnscope(&["report", &model, "--set", &setting, "--tokens", "5,9"]);
                    let said = text(&output.stderr);
                    assert!(!said.contains("no setting"), "{}: {said}", path.display());
                }
                _ => {}
            }
            if let Some(name) = pair[0].strip_prefix("--").filter(|name| !name.is_empty()) {
                let name = name.trim_end_matches(|c: char| !c.is_alphanumeric());
                flags.insert(format!("--{name}"));
            }
        }
    }
    assert!(
        commands.len() >= 5 && flags.len() >= 8,
        "{commands:?} {flags:?}"
    );
    for command in commands {
        let output = attnscope(&[command.as_str(), "--help"]);
        assert!(output.status.success(), "attnscope {command} is advised");
    }
    for flag in flags {
        assert!(is_flag(&flag), "{flag} is advised");
    }
}

/// What a check says of a target with some flags: its severity and advice, if it complains.
fn complaint(check: &str, arguments: &[&str]) -> Option<(String, String)> {
    let all = [&["check", "--format", "json", "--select", check], arguments].concat();
    let output = attnscope(&all);
    let verdict: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{arguments:?}: {}", text(&output.stderr)));
    let finding = verdict["targets"][0]["findings"].get(0)?;
    let words = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    Some((words("severity"), words("advice")))
}

/// A check, a target that it complains of, what it advises, and the target after that advice was followed.
struct Followed<'a> {
    check: &'a str,
    before: Vec<&'a str>,
    advised: &'a str,
    after: Vec<&'a str>,
}

#[test]
fn what_is_advised_takes_the_complaint_away() {
    let path = |name: &str| fixture(name).display().to_string();
    let (llama, healthy) = (path("oracle/llama/model"), path("healthy"));
    let degenerate = path("degenerate");
    let (padded, masked) = (
        path("captured/attended_padding.safetensors"),
        path("captured/masked_padding.safetensors"),
    );
    let (dropped, correct) = (
        path("captured/dropped_mask.safetensors"),
        path("captured/correct.safetensors"),
    );
    let (axis, soft) = (
        path("captured/wrong_axis.safetensors"),
        path("captured/soft_mask.safetensors"),
    );
    let ids: Vec<String> = (0..40).map(|idx| (5 + idx * 7 % 53).to_string()).collect();
    let ids = ids.join(",");
    let sentence = ["--text", "the king took a quiet story"];
    let cases = [
        Followed {
            check: "beyond-context",
            before: vec![&llama, "--tokens", &ids, "--set", "n_ctx=32"],
            advised: "--truncate",
            after: vec![&llama, "--tokens", &ids, "--set", "n_ctx=32", "--truncate"],
        },
        Followed {
            check: "beyond-context",
            before: vec![&llama, "--tokens", &ids, "--set", "n_ctx=32"],
            advised: "--set n_ctx=N",
            after: vec![&llama, "--tokens", &ids, "--set", "n_ctx=64"],
        },
        Followed {
            check: "unread-weights",
            before: vec![&llama, "--tokens", "5,9,12", "--set", "n_layers=1"],
            advised: "--set n_layers=3",
            after: vec![&llama, "--tokens", "5,9,12", "--set", "n_layers=3"],
        },
        Followed {
            check: "trained-otherwise",
            before: [&[degenerate.as_str()], &sentence[..]].concat(),
            advised: "--set softmax_axis=queries",
            after: [
                &[degenerate.as_str(), "--set", "softmax_axis=queries"],
                &sentence[..],
            ]
            .concat(),
        },
        Followed {
            check: "score-explosion",
            before: [
                &[healthy.as_str(), "--what-if", "temperature=0.05"],
                &sentence[..],
            ]
            .concat(),
            advised: "--what-if scale=inv_sqrt_d",
            after: [
                &[healthy.as_str(), "--what-if", "scale=inv_sqrt_d"],
                &sentence[..],
            ]
            .concat(),
        },
        // Code that was captured, and its twin that does what is advised.
        Followed {
            check: "mask-shape",
            before: vec![&correct, "--mask", "bidirectional"],
            advised: "declare the mask causal",
            after: vec![&correct, "--mask", "causal"],
        },
        Followed {
            check: "mask-mass",
            before: vec![&dropped],
            advised: "apply the causal mask",
            after: vec![&correct],
        },
        Followed {
            check: "mask-mass",
            before: vec![&soft],
            advised: "−inf",
            after: vec![&correct],
        },
        Followed {
            check: "pad-mass",
            before: vec![&padded],
            advised: "pass the attention mask",
            after: vec![&masked],
        },
        Followed {
            check: "wrong-axis",
            before: vec![&axis],
            advised: "dim=-1",
            after: vec![&correct],
        },
    ];
    for case in cases {
        let (severity, advice) = complaint(case.check, &case.before)
            .unwrap_or_else(|| panic!("{} of {:?}", case.check, case.before));
        assert!(
            advice.contains(case.advised),
            "{} of {:?}: {advice}",
            case.check,
            case.before
        );
        let after = complaint(case.check, &case.after);
        assert!(
            after
                .as_ref()
                .is_none_or(|(now, _)| now == "info" && severity != "info"),
            "{} of {:?}: {after:?}",
            case.check,
            case.after
        );
    }
}
