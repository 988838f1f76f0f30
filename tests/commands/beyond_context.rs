//! Prompts beyond a model's context: run where positions go on, refused where they are rows of a table, cut where that is asked for.

use std::path::PathBuf;

use attnscope_checkpoint::TokenizerFile;
use attnscope_prompt::{PositionRule, PromptForm, Request, Tokenizer, prepare};
use serde_json::Value;
use testing::checkpoint_copy::{attnscope, original, text};

fn oracle(name: &str) -> String {
    original(name).display().to_string()
}

/// What a command says of tokens with one knob set.
fn said_of(command: &str, tokens: &str, set: &str, format: &str) -> std::process::Output {
    let model = oracle("llama");
    let flags = ["--tokens", tokens, "--set", set, "--format", format];
    attnscope(&[[command, model.as_str()].as_slice(), &flags].concat())
}

fn ids(n: usize) -> String {
    let ids = (0..n).map(|idx| (5 + idx * 7 % 53).to_string());
    ids.collect::<Vec<_>>().join(",")
}

#[test]
fn rotary_positions_go_on_beyond_the_context_and_it_is_said() {
    let checked = |set: &str| {
        let output = said_of("check", &ids(40), set, "json");
        let verdict: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
        (verdict["targets"][0].clone(), text(&output.stderr))
    };
    let (verdict, said) = checked("n_ctx=32");
    assert!(
        said.contains("40 tokens, more than the 32 positions"),
        "{said}"
    );
    let findings = verdict["findings"].as_array().expect("findings");
    let beyond = findings
        .iter()
        .find(|found| found["check"] == "beyond-context");
    let beyond = beyond.expect("the finding");
    assert_eq!(beyond["severity"], "info");
    assert_eq!(
        (&beyond["value"], &beyond["threshold"]),
        (&40.0.into(), &32.0.into())
    );

    let (verdict, said) = checked("n_ctx=64");
    assert!(!said.contains("more than"), "{said}");
    let checks = verdict["checks"].as_array().expect("checks");
    let status = checks.iter().find(|check| check["id"] == "beyond-context");
    assert_eq!(status.expect("the check")["status"], "passed");
}

#[test]
fn what_is_computed_beyond_the_context_does_not_depend_on_where_it_ends() {
    let report = |set: &str| {
        let output = said_of("report", &ids(40), set, "csv");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(report("n_ctx=32"), report("n_ctx=64"));
}

#[test]
fn rows_of_a_table_end_where_the_table_ends() {
    let tokens = ids(3000);
    for family in ["gpt2", "opt_350m"] {
        let output = attnscope(&[
            "report",
            oracle(family).as_str(),
            "--tokens",
            tokens.as_str(),
        ]);
        assert_eq!(output.status.code(), Some(2), "{family}");
        let said = text(&output.stderr);
        assert!(
            said.contains("3000 tokens, the model") && said.contains("--truncate"),
            "{said}"
        );
    }
}

/// A tokenizer that puts tokens around a text.
fn around(name: &str) -> PromptForm {
    let directory: PathBuf = testing::root()
        .join("fixtures/formats/tokenizers")
        .join(name);
    let config = std::fs::read(directory.join("config.json")).expect("a fixture");
    let config: Value = serde_json::from_slice(&config).expect("JSON");
    let file = TokenizerFile::find(&directory, config["model_type"].as_str());
    Tokenizer::open(&file).expect("a tokenizer")
}

#[test]
fn a_text_that_is_cut_keeps_the_tokens_at_its_end() {
    for (name, n_end) in [("bert", 1), ("roberta", 1), ("t5", 1), ("mbart", 2)] {
        let prompt_form = around(name);
        let limits = attnscope_prompt::Limits {
            d_vocab: usize::MAX,
            d_vocab_target: None,
            n_ctx: None,
            n_ctx_target: None,
            is_n_ctx_hard: true,
            positions: PositionRule::Index,
            start_token: None,
            preprocessing: None,
            starts: attnscope_prompt::Starts::NONE,
            sound: None,
            rows_of_target: None,
        };
        let request = Request {
            truncate: true,
            ..Request::text("the old king gave a red apple to his horse in the garden")
        };
        let whole = prepare(&request, &prompt_form, limits)
            .expect("a prompt")
            .tokens;
        for n_ctx in n_end + 1..whole.len() {
            let limits = attnscope_prompt::Limits {
                n_ctx: Some(n_ctx),
                ..limits
            };
            let cut = prepare(&request, &prompt_form, limits).expect("a prompt");
            assert_eq!(cut.n_cut, whole.len() - n_ctx, "{name}");
            let (begin, end) = cut.tokens.split_at(n_ctx - n_end);
            assert_eq!(begin, &whole[..n_ctx - n_end], "{name}");
            assert_eq!(
                end,
                &whole[whole.len() - n_end..],
                "{name} {n_ctx} {whole:?}"
            );
        }
        // Without special tokens the last token is one of the text.
        let plain = Request {
            special_tokens: false,
            ..request
        };
        let whole = prepare(&plain, &prompt_form, limits)
            .expect("a prompt")
            .tokens;
        let limits = attnscope_prompt::Limits {
            n_ctx: Some(5),
            ..limits
        };
        let cut = prepare(&plain, &prompt_form, limits).expect("a prompt");
        assert_eq!(cut.tokens, whole[..5], "{name}");
    }
}
