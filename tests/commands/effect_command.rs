//! `attnscope effect`: every measure in every format, what is refused, and what is said of it.

use serde_json::Value;
use testing::checkpoint_copy::{attnscope, text};

const TEXT: &str =
    "one cold morning the old king gave a red apple . one cold morning the old king gave";

fn fixture(name: &str) -> String {
    testing::root()
        .join("fixtures")
        .join(name)
        .to_string_lossy()
        .into()
}

fn effect(checkpoint: &str, words: &[&str]) -> std::process::Output {
    let checkpoint = fixture(checkpoint);
    let mut all = vec!["effect", checkpoint.as_str(), "--quiet"];
    all.extend(words);
    attnscope(&all)
}

fn document(checkpoint: &str, words: &[&str]) -> Value {
    let output = effect(checkpoint, &[words, &["--format", "json"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn rows(document: &Value) -> &Vec<Value> {
    document["rows"].as_array().expect("rows")
}

#[test]
fn every_measure_gives_rows_that_say_how_they_were_computed() {
    let corrupted =
        "one warm morning the old king gave a red apple . one cold morning the old king gave";
    let measures: [(&str, &[&str]); 9] = [
        ("ablation", &["--parts", "heads"]),
        ("attribution", &[]),
        ("patching", &["--corrupted", corrupted, "--at", "L1"]),
        ("lens", &["--position", "4"]),
        ("rollout", &[]),
        ("contribution", &[]),
        ("circuits", &[]),
        ("retrieval", &[]),
        ("sensitivity", &["--what-if", "kv=int4"]),
    ];
    for (by, more) in measures {
        let words = [&["--text", TEXT, "--by", by], more].concat();
        let found = document("induction", &words);
        assert_eq!(found["by"], by);
        assert_eq!(found["complete"], true);
        assert!(!rows(&found).is_empty(), "{by}");
        assert!(
            !found["notes"].as_array().expect("notes").is_empty(),
            "{by}"
        );
        let columns = found["columns"].as_array().expect("columns");
        for row in rows(&found) {
            for column in columns {
                let id = column["id"].as_str().expect("an id");
                assert!(row.get(id).is_some(), "{by}: {row} lacks {id}");
            }
        }
        let csv = effect(
            "induction",
            &[words.as_slice(), &["--format", "csv"]].concat(),
        );
        let lines = text(&csv.stdout).lines().count();
        assert_eq!(lines, rows(&found).len() + 1, "{by}");
        let html = effect(
            "induction",
            &[words.as_slice(), &["--format", "html"]].concat(),
        );
        assert!(text(&html.stdout).starts_with("<!DOCTYPE html>"), "{by}");
        let parquet = effect(
            "induction",
            &[words.as_slice(), &["--format", "parquet"]].concat(),
        );
        assert!(parquet.stdout.starts_with(b"PAR1"), "{by}");
        let table = effect("induction", &words);
        assert_eq!(table.status.code(), Some(0));
        assert!(
            text(&table.stdout).lines().count() > rows(&found).len(),
            "{by}"
        );
    }
}

#[test]
fn shares_sum_to_the_logit_and_sources_to_their_heads() {
    let words = [
        "--text",
        TEXT,
        "--by",
        "attribution",
        "--sources",
        "--at",
        "L1H3",
    ];
    let found = document("induction", &words);
    let number = |row: &Value, key: &str| row[key].as_f64().expect("a number");
    let whole = rows(&found).iter().filter(|row| row["key"].is_null());
    let sum: f64 = whole.map(|row| number(row, "share")).sum();
    assert_eq!(found["totals"][0]["name"], "logit");
    let logit = found["totals"][0]["value"].as_f64().expect("a logit");
    assert!((sum - logit).abs() < 1e-4 * logit.abs(), "{sum} {logit}");
    let sources = rows(&found).iter().filter(|row| !row["key"].is_null());
    let sources: Vec<&Value> = sources.collect();
    assert!(sources.iter().all(|row| row["place"] == "L1H3"));
    let head = rows(&found)
        .iter()
        .find(|row| row["place"] == "L1H3" && row["key"].is_null());
    let by_source: f64 = sources.iter().map(|row| number(row, "share")).sum();
    assert!((by_source - number(head.expect("a head"), "share")).abs() < 1e-3);
}

#[test]
fn what_a_measure_cannot_do_is_said_with_what_it_takes() {
    let cases: [(&str, &[&str], &str); 11] = [
        (
            "oracle/bert/model",
            &["--tokens", "5,9,2", "--by", "attribution"],
            "activation",
        ),
        (
            "seq2seq/general",
            &["--tokens", "5,6,7", "--by", "ablation"],
            "recurrent",
        ),
        (
            "induction",
            &["--text", TEXT, "--by", "patching"],
            "--corrupted",
        ),
        (
            "induction",
            &[
                "--text",
                TEXT,
                "--by",
                "patching",
                "--corrupted",
                "one cold morning",
            ],
            "equal length",
        ),
        (
            "induction",
            &["--text", TEXT, "--by", "lens", "--sources"],
            "belongs to --by attribution",
        ),
        (
            "induction",
            &["--text", TEXT, "--by", "ablation", "--at", "L9"],
            "there is no L9: the model has layers 0–1",
        ),
        (
            "induction",
            &[
                "--text",
                TEXT,
                "--by",
                "attribution",
                "--token",
                "red apple",
            ],
            "expected one token, found 2",
        ),
        (
            "induction",
            &["--text", TEXT, "--by", "attribution", "--position", "99"],
            "expected one of 0..",
        ),
        (
            "induction",
            &["--text", TEXT, "--by", "ablation", "--replace", "other"],
            "no other prompt",
        ),
        (
            "oracle/hy_v4/model",
            &["--tokens", "5,9,2", "--by", "attribution"],
            "(hyper-connections)",
        ),
        (
            "oracle/hy_v4/model",
            &[
                "--tokens",
                "5,9,2",
                "--corrupted-tokens",
                "5,8,2",
                "--by",
                "patching",
                "--parts",
                "residual",
            ],
            "the residual is several streams",
        ),
    ];
    for (checkpoint, words, expected) in cases {
        let output = effect(checkpoint, words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
    }
}

#[test]
fn streams_are_patched_branch_by_branch_and_the_lens_folds_them() {
    const MODEL: &str = "oracle/hy_v4/model";
    let clean = ["--tokens", "5,9,20,7,33,41", "--by"];
    let corrupted = ["patching", "--corrupted-tokens", "5,9,21,7,33,41"];
    let patched = document(MODEL, &[&clean[..], &corrupted].concat());
    let parts = rows(&patched).iter().map(|row| row["part"].as_str());
    let parts: std::collections::BTreeSet<&str> = parts.map(|part| part.expect("a part")).collect();
    let expected = ["attention", "feed_forward", "head"];
    assert_eq!(parts, expected.into_iter().collect());
    let notes = patched["notes"].as_array().expect("notes").iter();
    let mut notes = notes.filter_map(Value::as_str);
    assert!(notes.any(|note| note.contains("hyper-connections")));
    // What the head reads behind the last layer is the model's own prediction, and behind an earlier one it is not.
    let lens = document(MODEL, &[&clean[..], &["lens", "--position", "5"]].concat());
    let divergences = rows(&lens).iter().map(|row| row["kl"].as_f64());
    let divergences: Vec<f64> = divergences.map(|kl| kl.expect("a number")).collect();
    let (last, earlier) = divergences.split_last().expect("depths");
    assert!(*last == 0.0 && earlier.len() == 3, "{divergences:?}");
    assert!(earlier.iter().all(|kl| *kl > 1e-3), "{divergences:?}");
}

#[test]
fn sums_over_blocks_have_the_same_bytes_whatever_the_threads() {
    // Long enough for several blocks of rows, and with every digit.
    let tokens: Vec<String> = (0..300).map(|n| (n * 37 % 200 + 1).to_string()).collect();
    let tokens = tokens.join(",");
    for measure in ["rollout", "contribution", "retrieval"] {
        let of = |threads: &str| {
            let words = ["--by", measure, "--tokens", &tokens, "--format", "json"];
            let output = effect(
                "oracle/llama/model",
                &[&words[..], &["--threads", threads]].concat(),
            );
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            output.stdout
        };
        let once = of("1");
        for _ in 0..4 {
            assert!(of("8") == once, "{measure} depends on the order of threads");
        }
    }
}
