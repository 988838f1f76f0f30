//! Log-probabilities in the forms of engines and trainers, what is refused, and what `attnscope logprobs` writes.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testing::checkpoint_copy::{attnscope, text};

use crate::third_side::{fixture, judged, path};

/// The ids and values of the first prompt of a side.
fn first_prompt(name: &str) -> (Vec<u32>, Vec<Option<f64>>) {
    let lines = std::fs::read_to_string(fixture(name)).expect("a side");
    let row: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    let ids = row["ids"].as_array().expect("ids").iter();
    let values = row["logprobs"].as_array().expect("values").iter();
    (
        ids.map(|id| id.as_u64().expect("an id") as u32).collect(),
        values.map(Value::as_f64).collect(),
    )
}

/// A row of verl: prompts padded on the left, responses on the right, and a mask of both.
fn verl(ids: &[u32], values: &[Option<f64>], n: usize) -> Value {
    let prompts = [&[0, 0, 0], &ids[..n]].concat();
    let responses = [&ids[n..], &[0, 0]].concat();
    let logs = [&values[n..], &[Some(0.0), Some(0.0)]].concat();
    let mask = [vec![0; 3], vec![1; ids.len()], vec![0; 2]].concat();
    json!({"prompts": [prompts], "responses": [responses], "rollout_log_probs": [logs], "attention_mask": [mask]})
}

/// A table in the forms of engines and trainers; 60 tokens are the prompt, the others were written.
fn forms(ids: &[u32], values: &[Option<f64>]) -> Vec<(&'static str, Value)> {
    let n = 60;
    let map = |range: std::ops::Range<usize>| -> Vec<Value> {
        let one = |idx: usize| match values[idx] {
            None => Value::Null,
            // Another token stands beside the one that was meant, with a smaller id.
            Some(value) => {
                json!({"0": {"logprob": -9.5, "rank": 9, "decoded_token": "x"}, (ids[idx].to_string()): {"logprob": value, "rank": 1}})
            }
        };
        range.map(one).collect()
    };
    let triple = |range: std::ops::Range<usize>| -> Vec<Value> {
        range
            .map(|idx| json!([values[idx], ids[idx], null]))
            .collect()
    };
    let object = |range: std::ops::Range<usize>| -> Vec<Value> {
        range
            .map(|idx| json!({"id": ids[idx], "text": "x", "token": "x", "logprob": values[idx]}))
            .collect()
    };
    let pieces: Vec<String> = ids.iter().map(|id| format!("token_id:{id}")).collect();
    let all = ids.len();
    vec![
        ("openai_echo", json!({"choices": [{"logprobs": {"tokens": pieces, "token_logprobs": values, "top_logprobs": null}}]})),
        (
            "vllm_served",
            json!({"choices": [{
                "prompt_token_ids": ids[..n], "prompt_logprobs": map(0..n), "token_ids": ids[n..],
                "logprobs": {"tokens": pieces[n..], "token_logprobs": values[n..]},
            }]}),
        ),
        (
            "vllm_chat",
            json!({"prompt_token_ids": ids[..n], "prompt_logprobs": map(0..n), "choices": [{
                "token_ids": ids[n..], "logprobs": {"content": object(n..all)},
            }]}),
        ),
        (
            "vllm_object",
            json!([{"request_id": "r", "prompt_token_ids": ids[..n], "prompt_logprobs": map(0..n),
                "outputs": [{"token_ids": ids[n..], "logprobs": map(n..all)}]}]),
        ),
        ("sglang", json!({"meta_info": {"input_token_logprobs": triple(0..n), "output_token_logprobs": triple(n..all)}})),
        ("tgi", json!({"details": {"prefill": object(0..n), "tokens": object(n..all)}})),
        ("kept_under_a_key", json!({"custom_id": "c", "response": {"body": {"choices": [{"logprobs": {"tokens": pieces, "token_logprobs": values}}]}}})),
        ("trl", json!({"prompt_ids": [ids[..n]], "completion_ids": [ids[n..]], "logprobs": [values[n..]]})),
        (
            "verl",
            verl(ids, values, n),
        ),
        ("one_value_less", json!({"ids": ids, "logprobs": values[1..]})),
        (
            "rows",
            Value::Array((0..all).map(|idx| json!({"prompt": "a", "position": idx, "id": ids[idx], "logprob": values[idx], "top": [[ids[idx], values[idx]]]})).collect()),
        ),
    ]
}

#[test]
fn forms_of_engines_and_trainers_say_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, expected) in [
        ("llama.same.jsonl", None),
        (
            "llama.restart.jsonl",
            Some("positions that begin again at token 64"),
        ),
    ] {
        let (ids, values) = first_prompt(name);
        for (form, document) in forms(&ids, &values) {
            let side = directory.path().join(format!("{form}.json"));
            std::fs::write(&side, document.to_string()).expect("writes");
            let (code, found) = judged(&side, "llama");
            assert_eq!(code, Some(i32::from(expected.is_some())), "{form}: {found}");
            let judged = &found["sides"]["a"];
            let n = if ["trl", "verl"].contains(&form) {
                ids.len() - 60
            } else {
                ids.len() - 1
            };
            assert_eq!(judged["tokens"], n, "{form}");
            assert_eq!(judged["cause"]["reading"].as_str(), expected, "{form}");
        }
    }
}

#[test]
fn what_cannot_be_compared_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, content: &str| {
        let side = directory.path().join(name);
        std::fs::write(&side, content).expect("writes");
        side
    };
    let says = |side: &Path, words: &[&str]| {
        let output = attnscope(&["diff", "--quiet", path(side), path(&fixture("llama"))]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        words
            .iter()
            .for_each(|word| assert!(said.contains(word), "{said}"));
    };
    let two = write(
        "two.json",
        r#"{"ids": [1, 2], "old_log_probs": [0, -1], "rollout_log_probs": [0, -2]}"#,
    );
    says(
        &two,
        &["two.json", "rollout_log_probs, old_log_probs", "FILE#NAME"],
    );
    let chosen = PathBuf::from(format!("{}#old_log_probs", path(&two)));
    assert_eq!(judged(&chosen, "llama").1["sides"]["a"]["tokens"], 1);
    says(
        &write("far.json", r#"{"ids": [1, 9000], "logprobs": [null, -1]}"#),
        &["ids below 52", "found 9000"],
    );
    says(
        &write(
            "long.json",
            &json!({"ids": vec![3; 300], "logprobs": vec![-1.0; 300]}).to_string(),
        ),
        &["at most 256 tokens", "found 300"],
    );
    says(
        &write("more.json", r#"{"ids": [1], "logprobs": [null, -1]}"#),
        &["more.json", "found 2 for 1 tokens"],
    );
    says(
        &write("none.json", r#"{"logprobs": [null, -1]}"#),
        &["expected the id of every token"],
    );
    says(
        &write(
            "pieces.json",
            r#"{"choices": [{"logprobs": {"tokens": ["a", "b"], "token_logprobs": [null, -1]}}]}"#,
        ),
        &["pieces of text", "ask the engine for ids"],
    );
    // What was written behind an unknown prompt is no departure.
    let written = r#"{"choices": [{"logprobs": {"tokens": ["token_id:3", "token_id:4"], "token_logprobs": [-0.5, -1]}}]}"#;
    says(
        &write("written.json", written),
        &["the tokens before those that were written", "echo"],
    );
    let counted = r#"{"meta_info": {"prompt_tokens": 9, "input_token_logprobs": [[null, 3, null]], "output_token_logprobs": [[-1, 4, null]]}}"#;
    says(
        &write("counted.json", counted),
        &["the tokens before those that were written"],
    );
    says(
        &write("broken.json", r#"{"logprobs": ["#),
        &["broken.json", "expected JSON"],
    );
    says(
        &write("nothing.json", r#"{"logprob_of": 3}"#),
        &["nothing.json", "expected log-probabilities"],
    );
    // NaN is data: it departs, and nothing is lost.
    let (code, found) = judged(
        &write(
            "nan.json",
            r#"{"ids": [1, 3, 4], "logprobs": [null, NaN, -Infinity]}"#,
        ),
        "llama",
    );
    assert_eq!(
        (code, &found["sides"]["a"]["mean_abs"]),
        (Some(1), &json!("NaN"))
    );
}

#[test]
fn logprobs_are_those_of_transformers_in_every_format() {
    let directory = tempfile::tempdir().expect("a directory");
    let inputs = directory.path().join("inputs.jsonl");
    let lines = std::fs::read_to_string(fixture("gemma2.same.jsonl")).expect("a side");
    let rows: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let prompts: Vec<String> = rows
        .iter()
        .map(|row| json!({"id": row["id"], "tokens": row["ids"]}).to_string())
        .collect();
    std::fs::write(&inputs, prompts.join("\n")).expect("writes");
    let model = fixture("gemma2");
    for (name, arguments) in [
        ("a.jsonl", &["--format", "jsonl"][..]),
        ("a.csv", &["--format", "csv"]),
        ("a.parquet", &["--format", "parquet"]),
        ("a.safetensors", &["--full"]),
    ] {
        let target = directory.path().join(name);
        let command = [
            "logprobs",
            "--quiet",
            path(&model),
            "--inputs",
            path(&inputs),
            "--top",
            "3",
            "--output",
            path(&target),
        ];
        let output = attnscope(&[&command[..], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let output = attnscope(&[
            "diff",
            "--quiet",
            "--format",
            "json",
            path(&fixture("gemma2.same.jsonl")),
            path(&target),
            "--tolerance",
            "0.00002",
        ]);
        let found: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
        assert_eq!(
            (output.status.code(), &found["tokens"]),
            (Some(0), &json!(333)),
            "{name}: {found}"
        );
        assert!(
            found["between"]["max_abs"].as_f64().expect("a number") < 1e-4,
            "{name}"
        );
    }
    // Rank, entropy and the likeliest tokens are those of the whole distributions.
    let rows = std::fs::read_to_string(directory.path().join("a.jsonl")).expect("rows");
    let bytes = std::fs::read(directory.path().join("a.safetensors")).expect("a file");
    let whole = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let logs: Vec<f32> = whole
        .tensor("p1/logprobs")
        .expect("a tensor")
        .data()
        .chunks(4)
        .map(|b| f32::from_le_bytes(b.try_into().expect("4")))
        .collect();
    let mut n = 0;
    for row in rows
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|row| row["prompt"] == "p1" && row["position"] != 0)
    {
        let at = row["position"].as_u64().expect("a place") as usize;
        let log = &logs[(at - 1) * 52..at * 52];
        let id = row["id"].as_u64().expect("an id") as usize;
        assert!((row["logprob"].as_f64().expect("a number") - f64::from(log[id])).abs() < 1e-5);
        assert_eq!(
            row["rank"],
            1 + log.iter().filter(|other| **other > log[id]).count()
        );
        let entropy: f64 = log
            .iter()
            .map(|log| -f64::from(*log) * f64::from(*log).exp())
            .sum();
        assert!((row["entropy"].as_f64().expect("a number") - entropy).abs() < 1e-4);
        let best = (0..52)
            .max_by(|a, b| log[*a].total_cmp(&log[*b]))
            .expect("a token");
        assert_eq!(row["top"][0][0], best);
        n += 1;
    }
    assert_eq!(n, 111);
}

#[test]
fn models_that_predict_no_next_token_are_refused() {
    for (name, why) in [
        ("bert", "it sees the tokens that it predicts"),
        ("t5_v11", "expected a decoder alone"),
    ] {
        let model = testing::checkpoint_copy::original(name);
        let output = if name == "bert" {
            attnscope(&["logprobs", "--quiet", path(&model), "--tokens", "1,2,3"])
        } else {
            attnscope(&[
                "diff",
                "--quiet",
                path(&fixture("llama.same.jsonl")),
                path(&model),
            ])
        };
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains(why),
            "{said}"
        );
    }
}
