//! `attnscope effect` on live models: heads are dropped in other code, and the numbers are those of what it then predicts.

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};

use testing::live_stub::Stub;

const IDS: [usize; 6] = [1, 5, 2, 6, 3, 4];
const TOKENS: &str = "1,5,2,6,3,4";
const D_VOCAB: usize = 8;

/// What `fixtures/live/adding.py` gives without some of its heads. // [position][token]
fn logits(dropped: &dyn Fn(usize, usize) -> bool, to_mean: bool) -> Vec<Vec<f64>> {
    let given = |layer: usize, head: usize, position: usize, token: usize| {
        let rest = (3 * position + 5 * token + 7 * head + layer) % 11;
        (1 + layer + 2 * head) as f64 * rest as f64 / 11.0
    };
    let mean = |layer: usize, head: usize, token: usize| {
        let all = (0..IDS.len()).map(|position| given(layer, head, position, token));
        all.sum::<f64>() / IDS.len() as f64
    };
    let of = |position: usize, token: usize| {
        let heads = (0..2).flat_map(|layer| (0..2).map(move |head| (layer, head)));
        heads
            .map(|(layer, head)| match (dropped(layer, head), to_mean) {
                (false, _) => given(layer, head, position, token),
                (true, true) => mean(layer, head, token),
                (true, false) => 0.0,
            })
            .sum()
    };
    let row = |position| (0..D_VOCAB).map(|token| of(position, token)).collect();
    (0..IDS.len()).map(row).collect()
}

/// Change of the loss, divergence, and change of the logit of token 3 less that of token 5 at position 2.
fn by_hand(base: &[Vec<f64>], then: &[Vec<f64>]) -> [f64; 3] {
    let log_p = |row: &[f64], token: usize| {
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        row[token] - sum.ln()
    };
    let pairs = || base.iter().zip(then);
    let n = base.len() as f64;
    let losses = pairs().zip(&IDS[1..]);
    let loss: f64 = losses
        .map(|((base, then), next)| log_p(base, *next) - log_p(then, *next))
        .sum();
    let kl = |(base, then): (&Vec<f64>, &Vec<f64>)| -> f64 {
        (0..D_VOCAB)
            .map(|token| {
                let p = log_p(base, token);
                p.exp() * (p - log_p(then, token))
            })
            .sum()
    };
    let logit = |rows: &[Vec<f64>]| rows[2][3] - rows[2][5];
    [
        loss / (n - 1.0),
        pairs().map(kl).sum::<f64>() / n,
        logit(then) - logit(base),
    ]
}

fn effect(stub: &Stub, words: &[&str]) -> (Option<i32>, String, String) {
    let mut all = vec!["effect", stub.target.as_str(), "--by", "ablation"];
    all.extend(words);
    let output = attnscope(&all);
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_head_that_is_dropped_in_other_code_changes_loss_divergence_and_logit() {
    let Some(stub) = Stub::start("adding.py") else {
        return;
    };
    for replace in ["zero", "mean"] {
        let asked = ["--token", "3", "--against", "5", "--position", "2"];
        let flags = ["--tokens", TOKENS, "--replace", replace, "--format", "json"];
        let (code, out, said) = effect(&stub, &[&flags[..], &asked[..]].concat());
        assert_eq!(code, Some(0), "{said}");
        let document: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(document["complete"], true);
        assert_eq!(document["prompts"][0]["n_tokens"], IDS.len());
        let rows = document["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 6, "four heads, and all heads of two layers");
        let base = logits(&|_, _| false, false);
        for row in rows {
            let (layer, head) = (&row["layer"], row["head"].as_u64());
            let is_dropped = |of_layer: usize, of_head: usize| {
                *layer == of_layer && head.is_none_or(|head| head == of_head as u64)
            };
            let part = if head.is_some() { "head" } else { "all_heads" };
            assert_eq!(row["part"], part);
            let expected = by_hand(&base, &logits(&is_dropped, replace == "mean"));
            for (column, expected) in ["loss_change", "kl", "logit_change"].iter().zip(expected) {
                let found = row[column].as_f64().expect("a number");
                assert!(
                    (found - expected).abs() < 1e-5,
                    "{row} {column}: not {expected}"
                );
            }
        }
    }
}

#[test]
fn a_head_can_be_dropped_beside_a_what_if_on_several_prompts_and_at_some_places() {
    let Some(stub) = Stub::start("adding.py") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let inputs = directory.path().join("inputs.jsonl");
    std::fs::write(
        &inputs,
        "{\"tokens\": [1, 2, 3, 4]}\n{\"tokens\": [6, 5, 4]}\n",
    )
    .expect("writes");
    let inputs = inputs.to_string_lossy();
    let flags = [
        "--inputs",
        &inputs,
        "--what-if",
        "drop=zero@L1H1",
        "--at",
        "L0H1,L1H1",
    ];
    let (code, out, said) = effect(&stub, &[&flags[..], &["--format", "json"]].concat());
    assert_eq!(code, Some(0), "{said}");
    let document: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(document["what_if"][0], "drop=zero@L1H1");
    let rows = document["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["n_prompts"] == 2));
    let of = |place: &str| {
        rows.iter()
            .find(|row| row["place"] == place)
            .expect("a row")
    };
    assert_eq!(of("L1H1")["loss_change"], 0.0, "it was dropped before");
    assert_ne!(of("L0H1")["loss_change"], 0.0);
}

#[test]
fn what_needs_weights_is_refused_in_one_line() {
    let Some(stub) = Stub::start("adding.py") else {
        return;
    };
    let run = |words: &[&str]| {
        let mut all = vec!["effect", stub.target.as_str(), "--tokens", TOKENS];
        all.extend(words);
        let output = attnscope(&all);
        (output.status.code(), text(&output.stderr))
    };
    for (words, said) in [
        (
            &["--by", "lens"][..],
            "attnscope.describe makes a checkpoint",
        ),
        (
            &["--by", "attribution"],
            "attnscope.describe makes a checkpoint",
        ),
        (
            &["--by", "circuits"],
            "attnscope.describe makes a checkpoint",
        ),
        (
            &["--by", "ablation", "--parts", "feed-forward"],
            "--parts feed-forward",
        ),
        (
            &["--by", "ablation", "--replace", "other"],
            "--replace other",
        ),
        (&["--by", "ablation", "--at", "L7"], "there is no L7"),
        (
            &["--by", "ablation", "--token", "99"],
            "expected an id of 0..8",
        ),
        (
            &["--by", "ablation", "--token", "king"],
            "expected an id, since there is no tokenizer",
        ),
    ] {
        let (code, error) = run(words);
        assert_eq!(code, Some(2), "{words:?}: {error}");
        let last = error.lines().last().expect("a line");
        assert!(
            last.starts_with("attnscope: ") && last.contains(said),
            "{words:?}: {error}"
        );
    }
    // A run without a head that fails in the person's code.
    let (code, out, error) = effect(&stub, &["--tokens", "7,1"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(
        error.ends_with(": IndexError: no head (model.py:3: x = heads[0])\n"),
        "{error}"
    );
    if let Some(other) = Stub::start("stub.py") {
        let (code, _, error) = effect(&other, &["--tokens", "1,2"]);
        assert_eq!(code, Some(2));
        assert!(error.contains("a stub has no weights"), "{error}");
    }
}

#[test]
fn rollout_follows_the_patterns_of_one_run() {
    let Some(stub) = Stub::start("stub.py") else {
        return;
    };
    let flags = ["--tokens", "5,6,7,8", "--by", "rollout", "--format", "json"];
    let output = attnscope(&[&["effect", stub.target.as_str()], &flags[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    // Half of the last token itself, and half of what all four tokens give it.
    let of_last = rows.iter().filter(|row| row["position"] == 3);
    let shares: Vec<f64> = of_last
        .map(|row| row["rollout"].as_f64().expect("a share"))
        .collect();
    assert_eq!(shares, [0.125, 0.125, 0.125, 0.625]);
    assert_eq!(rows[0]["key_token"], "t5");
}
