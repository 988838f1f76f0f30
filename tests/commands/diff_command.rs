//! `attnscope diff`: formats, exit codes, traces and tables as sides, and what is refused.

use std::path::Path;

use serde_json::json;
use testing::checkpoint_copy::{Copy, attnscope, original, put_together, take_apart, text};
use testing::pairs::{Pair, diff};
use testing::refusal::{PROMPT, assert_says, misused, refused};

fn path(path: &Path) -> &str {
    path.to_str().expect("a path")
}

/// Runs `diff` without JSON; the exit code and standard output.
fn written(a: &Path, b: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = attnscope(&[&["diff", "--quiet", path(a), path(b)][..], arguments].concat());
    (output.status.code(), text(&output.stdout))
}

fn turned() -> Pair {
    Pair::of("llama").config(|config| {
        config.insert("rope_theta".to_owned(), json!(500_000.0));
    })
}

#[test]
fn the_first_line_says_where_and_why() {
    let pair = turned();
    let (code, text) = written(pair.a.path(), pair.b.path(), PROMPT);
    assert_eq!(code, Some(1));
    let first = text.lines().next().expect("a line");
    assert!(
        first.starts_with("differs first at rot_q of L0 (head "),
        "{first}"
    );
    assert!(first.ends_with("rope_theta 10000 → 500000"), "{first}");
    for section in [
        "Knobs",
        "Layers that differ given A's input",
        "Hooks",
        "Predictions",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(section)),
            "{section}: {text}"
        );
    }
    let (code, text) = written(pair.a.path(), pair.a.path(), PROMPT);
    assert_eq!(code, Some(0));
    assert!(text.starts_with("the same: "), "{text}");
}

#[test]
fn every_format_tells_the_same_story() {
    let pair = turned();
    let of = |format: &str| {
        let arguments = [PROMPT, &["--format", format]].concat();
        written(pair.a.path(), pair.b.path(), &arguments).1
    };
    let markdown = of("markdown");
    assert!(
        markdown.starts_with("## differs first at rot\\_q of L0"),
        "{markdown}"
    );
    assert!(
        markdown.contains("| rope\\_theta | 10000 | 500000 |"),
        "{markdown}"
    );
    let html = of("html");
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("rope_theta 10000 → 500000"));
    assert_eq!(html.matches("<script").count(), 1);
    // The head that differs most: its cell in the grid leads to the maps of both sides.
    let first = html.find("alt=\"pattern of ").expect("a map");
    let place = html[first..].split(' ').nth(2).expect("a place");
    for side in ["A", "B"] {
        let image = format!("alt=\"pattern of {place} in {side}\"");
        assert_eq!(html.matches(&image).count(), 1, "{image}");
    }
    assert!(html.contains(&format!("<a href=\"#{place}\">")), "{place}");
    assert!(html.contains(&format!("id=\"{place}\"")), "{place}");
    let output = pair.a.output("found.json");
    let arguments = [PROMPT, &["--format", "json", "--output", path(&output)]].concat();
    let (code, printed) = written(pair.a.path(), pair.b.path(), &arguments);
    assert_eq!((code, printed.as_str()), (Some(1), ""));
    let found = std::fs::read_to_string(&output).expect("reads");
    assert!(found.contains("\"hook\": \"rot_q\""), "{found}");
}

#[test]
fn the_page_has_maps_of_recorded_patterns_too() {
    let [model, port] = [
        "oracle/mistral_full/model",
        "ports/mistral_alternating.safetensors",
    ]
    .map(testing::judged::fixture);
    let (_, html) = written(&model, &port, &["--format", "html"]);
    for side in ["A", "B"] {
        let image = format!("alt=\"pattern of L1H3 in {side}\"");
        assert!(html.contains(&image), "{image}");
    }
    let (_, html) = written(&port, &port, &["--format", "html"]);
    assert!(!html.contains("alt=\"pattern of"), "nothing differs");
}

#[test]
fn bytes_are_those_of_one_thread() {
    let pair = turned();
    let of = |threads: &str| {
        let arguments = [PROMPT, &["--format", "json", "--threads", threads]].concat();
        written(pair.a.path(), pair.b.path(), &arguments).1
    };
    assert_eq!(of("1"), of("3"));
}

#[test]
fn a_what_if_applies_to_b() {
    let model = original("gpt2");
    let arguments = [PROMPT, &["--what-if", "scale=none@L1"]].concat();
    let found = diff(&model, &model, &arguments);
    assert_eq!((found.code, found.isolated().as_str()), (Some(1), "L1"));
    assert!(found.first().starts_with("scores L1"), "{}", found.first());
    assert_eq!(found.knobs(), "scale@L1 0.25 1");
    // A head alone.
    let arguments = [PROMPT, &["--what-if", "drop=zero@L0H2"]].concat();
    let found = diff(&model, &model, &arguments);
    assert_eq!(found.first(), "z L0 H2");
}

#[test]
fn several_prompts_are_one_comparison() {
    let pair = turned();
    let inputs = pair.a.output("inputs.jsonl");
    std::fs::write(
        &inputs,
        "{\"id\": \"one\", \"tokens\": [5]}\n{\"id\": \"two\", \"tokens\": [5, 9, 2, 20, 7]}\n",
    )
    .expect("writes");
    let found = diff(pair.a.path(), pair.b.path(), &["--inputs", path(&inputs)]);
    assert!(found.first().starts_with("rot_q L0"), "{}", found.said);
    let prompts = found.json["prompts"].as_array().expect("prompts");
    assert_eq!(
        (&prompts[0]["id"], &prompts[1]["id"]),
        (&json!("one"), &json!("two"))
    );
    // Position 0 rotates by nothing.
    assert_eq!(prompts[0]["kl"], 0.0);
    assert!(prompts[1]["kl"].as_f64() > Some(0.0));
    let heads = prompts[1]["heads"].as_array().expect("heads");
    assert_eq!(heads.len(), 12);
    assert!(heads.iter().any(|head| head["js"].as_f64() > Some(1e-3)));
    assert!(heads[0]["stats"]["entropy"].is_array(), "{}", heads[0]);
}

/// A trace of a checkpoint with all hooks.
fn trace(copy: &Copy, name: &str, arguments: &[&str]) -> std::path::PathBuf {
    let output = copy.output(name);
    let all = [
        &[
            "trace",
            path(copy.path()),
            "--quiet",
            "--hooks",
            "all",
            "--output",
            path(&output),
        ][..],
        PROMPT,
        arguments,
    ];
    let ran = attnscope(&all.concat());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    output
}

#[test]
fn a_trace_stands_for_a_side_and_brings_its_tokens() {
    let pair = turned();
    let of_a = trace(&pair.a, "a.safetensors", &[]);
    let of_b = trace(&pair.b, "b.safetensors", &[]);
    let same = diff(pair.a.path(), &of_a, &[]);
    assert_eq!((same.code, same.said.as_str()), (Some(0), ""));
    assert_eq!(
        same.json["hooks"].as_array().expect("hooks").len(),
        3 * 12 + 1
    );
    for (a, b, isolated) in [
        (pair.a.path(), of_b.as_path(), "L0 L1 L2"),
        (of_a.as_path(), pair.b.path(), "L0 L1 L2"),
        // Nothing can run alone from two recordings.
        (of_a.as_path(), of_b.as_path(), ""),
    ] {
        let found = diff(a, b, &[]);
        assert_eq!(found.code, Some(1), "{}", found.said);
        assert!(found.first().starts_with("rot_q L0"), "{}", found.first());
        assert_eq!(found.isolated(), isolated);
    }
    // What is not there is not compared.
    let some = trace(&pair.b, "some.safetensors", &["--layers", "1"]);
    let found = diff(pair.a.path(), &some, &[]);
    assert!(
        found.first().starts_with("resid_pre L1"),
        "{}",
        found.first()
    );
    let said = refused("diff", pair.a.path(), &[path(&of_b), "--tokens", "5,9,3"]);
    assert_says(&said, &["position 2", "3 and 2"]);
}

/// A copy of a trace that says something of itself.
fn saying(trace: &Path, name: &str, said: &[(&str, &str)]) -> std::path::PathBuf {
    let bytes = std::fs::read(trace).expect("the trace");
    let (mut header, data) = take_apart(&bytes);
    for (key, value) in said {
        header["__metadata__"][format!("attnscope.{key}")] = json!(value);
    }
    let path = trace.with_file_name(name);
    std::fs::write(&path, put_together(&header, &data)).expect("writes");
    path
}

#[test]
fn a_recording_with_dropout_is_not_judged() {
    let pair = turned();
    let of_a = trace(&pair.a, "a.safetensors", &[]);
    let of_b = trace(&pair.b, "b.safetensors", &[]);
    let modules = r#"["drop", "h.0.attn.drop"]"#;
    let training = [("training", "true"), ("random", modules)];
    let dropped = saying(&of_b, "dropped.safetensors", &training);
    let words = "recorded in training mode with random numbers (dropout) in drop and 1 more";
    for (a, b, side) in [
        (pair.a.path(), dropped.as_path(), "B"),
        (&dropped, pair.a.path(), "A"),
        (&of_a, &dropped, "B"),
    ] {
        let (code, text) = written(a, b, &[]);
        assert_eq!(code, Some(2), "{text}");
        let first = text.lines().next().expect("a line");
        let expected =
            format!("cannot be judged: {side} was {words} · differs first at rot_q of L0");
        assert!(first.starts_with(&expected), "{first}");
        let note = format!("{side} was {words}: record it again after model.eval()");
        assert!(text.lines().any(|line| line == note), "{text}");
        let found = diff(a, b, &[]);
        assert_eq!(
            (found.code, &found.json["notes"]),
            (Some(2), &json!([note]))
        );
        let expected = ["dropped: expected a recording without dropout", words];
        assert_says(&found.said, &expected);
    }
    for (said, is_judged, words) in [
        // A capture of an older version names the dropout of attention alone.
        (
            &[("training", "true"), ("dropout_p", "0.1")][..],
            false,
            "in training mode with dropout, p = 0.1",
        ),
        // Dropout in evaluation mode is a fault of the model.
        (
            &[("training", "false"), ("random", modules)],
            true,
            "in evaluation mode with random numbers (dropout) in drop and 1 more",
        ),
        (&[("training", "true")], true, "in training mode"),
        (
            &[("training", "true"), ("random", "{}")],
            true,
            "in training mode",
        ),
    ] {
        let (code, text) = written(pair.a.path(), &saying(&of_b, "said.safetensors", said), &[]);
        assert_eq!(code, Some(if is_judged { 1 } else { 2 }), "{text}");
        assert_eq!(text.starts_with("differs first"), is_judged, "{text}");
        assert!(text.contains(&format!("B was recorded {words}")), "{text}");
    }
    // What is the same is the same, however it was recorded.
    let (code, text) = written(pair.b.path(), &dropped, &[]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn encoder_decoders_are_compared_with_their_traces() {
    let copy = Copy::of("t5_v11");
    let target = ["--target-tokens", "0,5,9"];
    let of_a = trace(&copy, "a.safetensors", &target);
    let same = diff(copy.path(), &of_a, &[]);
    assert_eq!((same.code, same.said.as_str()), (Some(0), ""));
    copy.config(|config| {
        config.insert("layer_norm_epsilon".to_owned(), json!(0.1));
    });
    let found = diff(&of_a, copy.path(), &[]);
    assert!(
        found.first().starts_with("q encoder L0"),
        "{}",
        found.first()
    );
}

#[test]
fn tables_are_compared_head_by_head() {
    let pair = turned();
    let table = |copy: &Copy, name: &str, format: &str| {
        let output = copy.output(name);
        let all = [
            &[
                "report",
                path(copy.path()),
                "--quiet",
                "--format",
                format,
                "--output",
                path(&output),
            ][..],
            PROMPT,
        ];
        let ran = attnscope(&all.concat());
        assert!(ran.status.success(), "{}", text(&ran.stderr));
        output
    };
    for (ending, format) in [("csv", "csv"), ("parquet", "parquet"), ("json", "json")] {
        let a = table(&pair.a, &format!("a.{ending}"), format);
        let b = table(&pair.b, &format!("b.{ending}"), format);
        let same = diff(&a, &a, &[]);
        assert_eq!(
            (same.code, &same.json["same"]),
            (Some(0), &json!(true)),
            "{}",
            same.said
        );
        let found = diff(&a, &b, &[]);
        assert_eq!(
            (found.code, &found.json["first"]),
            (Some(1), &json!(null)),
            "{}",
            found.said
        );
        let prompt = &found.json["prompts"][0];
        let pair = prompt["heads"][0]["stats"]["entropy"].as_array();
        assert!(
            pair.is_some_and(|pair| pair[0] != pair[1]),
            "{ending}: {prompt}"
        );
        assert!(prompt["loss"][0].is_number());
    }
    let a = pair.a.output("a.csv");
    let said = refused("diff", pair.b.path(), &[path(&a)]);
    assert_says(&said, &["expected two tables", "a checkpoint"]);
}

#[test]
fn what_cannot_be_run_side_by_side_is_named_and_the_rest_is_written() {
    let [gpt2, llama] = ["gpt2", "llama"].map(original);
    let found = diff(&gpt2, &llama, PROMPT);
    assert_eq!(found.code, Some(2));
    assert_eq!(found.said.lines().count(), 1, "{}", found.said);
    assert_says(
        &found.said,
        &["cannot be run side by side", "family gpt2 → llama"],
    );
    assert_eq!(
        (&found.json["same"], &found.json["hooks"]),
        (&json!(false), &json!([]))
    );
    assert!(
        found.json["knobs"]
            .as_array()
            .is_some_and(|knobs| knobs.len() > 3)
    );
    assert!(
        found.json["weights"]["only_a"]
            .as_array()
            .is_some_and(|names| !names.is_empty())
    );
}

#[test]
fn tokenizers_that_give_other_ids_are_named_with_the_first() {
    let tokenizer = |ids: [u32; 2]| {
        let vocab = json!({"[UNK]": 0, "a": 1, "cat": ids[0], "sat": ids[1]});
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"},
        })
    };
    let [a, b] = [[2, 3], [3, 2]].map(|ids| {
        let copy = Copy::of("gpt2");
        copy.write("tokenizer.json", tokenizer(ids).to_string().into_bytes());
        copy
    });
    let said = refused("diff", a.path(), &[path(b.path()), "--text", "a cat sat"]);
    assert_says(
        &said,
        &[
            "tokenizers differ at position 1",
            "2 \"cat\" and 3 \"cat\"",
            "--tokens",
        ],
    );
    // Where both give the same ids, or ids are given, nothing is in the way.
    for arguments in [["--text", "a a a"], ["--tokens", "1,2,3"]] {
        assert_eq!(diff(a.path(), b.path(), &arguments).code, Some(0));
    }
}

#[test]
fn bad_input_is_one_line() {
    let copy = Copy::of("gpt2");
    let model = original("gpt2");
    let said = refused("diff", &model, &["/nowhere/at/all"]);
    assert_says(&said, &["/nowhere/at/all"]);
    // A trace whose hooks the model has none of.
    let of_layer = trace(&copy, "trace.safetensors", &["--layers", "2"]);
    let pruned = Copy::of("gpt2");
    pruned.config(|config| {
        config.insert("n_layer".to_owned(), json!(2));
    });
    let said = refused(
        "diff",
        pruned.path(),
        &[path(&of_layer), "--quiet", "--tokens", "5,9,2,5,9,2,5"],
    );
    assert_says(&said, &["ids"]);
    let no_logits = copy.output("layer.safetensors");
    let all = [
        &[
            "trace",
            path(copy.path()),
            "--quiet",
            "--hooks",
            "pattern,q",
            "--layers",
            "2",
            "--output",
            path(&no_logits),
        ][..],
        PROMPT,
    ];
    assert!(attnscope(&all.concat()).status.success());
    let said = refused("diff", pruned.path(), &[path(&no_logits), "--quiet"]);
    assert_says(&said, &["hooks in common", "blocks.2.attn"]);
    // A context that only one side has.
    let long = Copy::of("llama");
    long.config(|config| {
        config.insert("max_position_embeddings".to_owned(), json!(4));
    });
    let said = refused(
        "diff",
        &original("llama"),
        &[path(long.path()), "--tokens", "5,9,2,5,9,2"],
    );
    assert_says(&said, &["at most 4 tokens", "found 6"]);
    let said = misused("diff", &model, &[path(&model), "--tolerance=-1"]);
    assert_says(&said, &["--tolerance"]);
    let said = misused("diff", &model, &[path(&model), "--map", "0-2:0"]);
    assert_says(&said, &["as many layers of A as of B"]);
    let arguments = [&[path(&model), "--map", "0-9:0-9"], PROMPT].concat();
    let said = refused("diff", &model, &arguments);
    assert_says(&said, &["--map", "from 0 to 2"]);
}

#[test]
fn a_model_in_stages_is_compared_with_its_trace_up_to_its_last_states() {
    let case = testing::root().join("fixtures/oracle/maskformer_swin");
    let (model, picture) = (case.join("model"), case.join("picture.png"));
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("trace.safetensors");
    let image = ["--image", path(&picture)];
    let of_trace = [
        "trace",
        path(&model),
        "--quiet",
        "--hooks",
        "all",
        "--output",
        path(&output),
    ];
    let ran = attnscope(&[&of_trace[..], &image].concat());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let same = diff(&model, &output, &image);
    assert_eq!((same.code, same.said.as_str()), (Some(0), ""));
    let hooks = same.json["hooks"].as_array().expect("hooks");
    let after = hooks.iter().filter(|hook| hook["layer"].is_null());
    assert_eq!(after.count(), 1, "{hooks:?}");
}
