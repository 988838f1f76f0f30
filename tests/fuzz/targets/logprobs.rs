//! Log-probabilities in the forms of engines and trainers, whatever kind of file they are in.

use attnscope_report::{LogProbRow, LogProbTable, is_logprobs, read_logprobs};
use attnscope_run::TokenLogProb;
use serde_json::json;

use super::Target;
use crate::seeds::{Kind, Seed};

/// Rows of one token each.
fn table() -> LogProbTable {
    let row = |position: usize| {
        let token = TokenLogProb {
            id: position as u32,
            logprob: (position > 0).then_some(-0.5 * position as f64),
            rank: Some(2),
            entropy: Some(1.5),
            top: vec![(3, -0.25)],
        };
        LogProbRow::new("a", position, "x".to_owned(), &token)
    };
    LogProbTable {
        rows: (0..5).map(row).collect(),
    }
}

pub const LOGPROBS: Target = Target {
    name: "logprobs",
    n_quick: 3_000,
    seeds: || {
        let served = json!({"choices": [{
            "prompt_token_ids": [1, 2, 3], "prompt_logprobs": [null, {"2": {"logprob": -1.0, "rank": 1}}, {"3": {"logprob": -2.0}, "9": {"logprob": -1.0}}],
            "token_ids": [4], "logprobs": {"tokens": ["token_id:4"], "token_logprobs": [-0.5], "top_logprobs": [{"token_id:4": -0.5}]},
        }]});
        let rollout = json!({"prompts": [[0, 1]], "responses": [[2, 3, 0]], "rollout_log_probs": [[-1.0, -2.0, 0.0]], "attention_mask": [[0, 1, 1, 1, 0]]});
        let native = json!({"meta_info": {"input_token_logprobs": [[null, 1, null], [-1.0, 2, "a"]], "input_top_logprobs": [null, [[-0.5, 7, "b"]]]}});
        let mut parquet = Vec::new();
        table()
            .write_parquet(&mut parquet)
            .expect("writes to memory");
        let mut csv = Vec::new();
        table()
            .write_csv(false, &mut csv)
            .expect("writes to memory");
        let json = |value: serde_json::Value| Seed::ending(Kind::Json, "json", value.to_string());
        vec![
            json(served),
            json(rollout),
            json(native),
            Seed::ending(Kind::Bytes, "parquet", parquet),
            Seed::ending(Kind::Lines, "csv", csv),
        ]
    },
    tokens: &[
        "logprobs",
        "ids",
        "token_id:",
        "NaN",
        "-Infinity",
        "1e400",
        "[[]]",
        "null",
        "logprob",
        "position",
    ],
    read: |path| {
        is_logprobs(path);
        read_logprobs(path).map(drop).map_err(|e| e.to_string())
    },
};
