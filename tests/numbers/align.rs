//! Alignment between two tables of embeddings: the numbers, every form of file, and what is refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use attnscope::bundles::demo_alignment;
use attnscope_checkpoint::embeddings::Table;
use attnscope_checks::{Status, Thresholds, of_runs};
use attnscope_compute::attention::SoftmaxAxis;
use attnscope_run::align::Alignment;
use serde_json::Value;
use testing::gold::{Alignments, fixture_json, gold_pairs};

const QUERY: &str = "the number eighty four thousand ninety";
const KEY: &str = "die zahl vier und achtzig tausend neunzig";

fn fixture(path: &str) -> PathBuf {
    let root = testing::root();
    root.join("fixtures").join(path)
}

fn fixture_table(language: &str, words: &str) -> Table {
    let vocabulary = fixture(&format!("alignment/{language}.{words}"));
    let path = fixture(&format!("alignment/{language}.npz"));
    Table::open(&path, Some(&vocabulary), "queries").expect("a table")
}

fn aligned(query: &str, key: &str, axis: SoftmaxAxis) -> Alignment {
    let tables = [fixture_table("en", "json"), fixture_table("de", "json")];
    Alignment::new(tables, [query, key], axis, &[]).expect("an alignment")
}

/// softmax(Q Kᵀ/√d) and its product with K, in f64 and by the textbook. // [query, key], [query, width]
fn by_hand(alignment: &Alignment, over_queries: bool) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let width = alignment.queries.width;
    let rows = |values: &[f32]| -> Vec<Vec<f64>> {
        let rows = values.chunks(width);
        rows.map(|row| row.iter().map(|v| f64::from(*v)).collect())
            .collect()
    };
    let (q, k) = (
        rows(&alignment.queries.vectors),
        rows(&alignment.keys.vectors),
    );
    let exps = |q: &[f64]| -> Vec<f64> {
        let dot = |k: &Vec<f64>| q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>();
        k.iter()
            .map(|k| (dot(k) / (width as f64).sqrt()).exp())
            .collect()
    };
    let mut weights: Vec<Vec<f64>> = q.iter().map(|q| exps(q)).collect();
    let columns: Vec<f64> = (0..k.len())
        .map(|key| weights.iter().map(|row| row[key]).sum())
        .collect();
    for row in &mut weights {
        let sum: f64 = row.iter().sum();
        for (weight, column) in row.iter_mut().zip(&columns) {
            *weight /= if over_queries { *column } else { sum };
        }
    }
    let output = weights.iter().map(|row| {
        let along = |at: usize| row.iter().zip(&k).map(|(p, k)| p * k[at]).sum::<f64>();
        (0..width).map(along).collect()
    });
    let output = output.collect();
    (weights, output)
}

fn agree(found: &[f32], expected: &[Vec<f64>], within: f64) {
    let expected: Vec<f64> = expected.concat();
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let off = (f64::from(*found) - expected).abs();
        assert!(
            off <= within * expected.abs().max(1.0),
            "{at}: {found}, {expected}"
        );
    }
}

#[test]
fn weights_and_output_are_those_of_the_formula() {
    for (axis, over_queries) in [(SoftmaxAxis::Keys, false), (SoftmaxAxis::Queries, true)] {
        let alignment = aligned(QUERY, KEY, axis);
        let (weights, output) = by_hand(&alignment, over_queries);
        let found = alignment.align();
        agree(&found.pattern, &weights, 1e-5);
        agree(&found.output, &output, 1e-5);
        assert_eq!(
            (found.n_queries(), found.n_keys(), found.width),
            (6, 7, 300)
        );
    }
}

#[test]
fn the_rows_are_those_that_numpy_reads() {
    // float(np.load("de.npz")["embeddings"][json.load(open("de.json"))["sechzig"]].astype("f8").sum()) and the like.
    let numbers = std::fs::read_to_string(fixture("alignment/sums.json")).expect("sums of NumPy");
    let sums: Value = serde_json::from_str(&numbers).expect("JSON");
    for language in ["de", "en"] {
        let table = fixture_table(language, "json");
        let sums = sums[language].as_object().expect("sums by word");
        assert_eq!(sums.len(), table.dictionary.len());
        for (word, sum) in sums {
            let row = table.dictionary.row(word).expect("a word");
            let values = table.embeddings.rows(&[row]).expect("a row");
            let found: f64 = values.iter().map(|v| f64::from(*v)).sum();
            let expected = sum.as_f64().expect("a number");
            assert!(
                (found - expected).abs() < 1e-9,
                "{word}: {found}, {expected}"
            );
        }
    }
}

#[test]
fn the_error_rate_over_the_gold_pairs_is_that_of_the_training() {
    let mut alignments = Alignments::default();
    for pair in gold_pairs() {
        let alignment = aligned(&pair.target, &pair.source, SoftmaxAxis::Keys);
        let n_keys = alignment.keys.words.len();
        let pattern = alignment.align().pattern;
        for (row, gold) in pattern.chunks(n_keys).zip(&pair.links) {
            // Of two keys that are alike, the first counts as looked at.
            let best = (1..n_keys).fold(0, |best, at| if row[at] > row[best] { at } else { best });
            alignments.add(best, gold);
        }
    }
    let rate = alignments.error_rate();
    let readings = fixture_json("alignment/readings.json");
    let stated = readings["held_out"]["alignment_error_rate"]
        .as_f64()
        .expect("a rate");
    // By NumPy in double precision, from the same tables.
    assert!((rate - 0.11805).abs() < 2e-3, "{rate}");
    // The first half of the pairs that the training was measured on.
    assert!((rate - stated).abs() < 0.03, "{rate} against {stated}");
}

#[test]
fn the_wrong_axis_is_found_and_the_right_one_is_not() {
    let status = |axis: SoftmaxAxis, id: &str| {
        let verdicts = aligned(QUERY, KEY, axis)
            .align()
            .judge(&Thresholds::default());
        let found = verdicts.into_iter().find(|(check, _)| check.id == id);
        found.expect("a verdict").1.status
    };
    assert_eq!(status(SoftmaxAxis::Keys, "wrong-axis"), Status::Passed);
    assert_eq!(status(SoftmaxAxis::Keys, "row-sum"), Status::Passed);
    assert_eq!(
        status(SoftmaxAxis::Keys, "pattern-mismatch"),
        Status::Passed
    );
    assert_eq!(status(SoftmaxAxis::Queries, "wrong-axis"), Status::Fired);
    let head = |axis| {
        aligned(QUERY, KEY, axis).align().layer.heads[0]
            .summary
            .clone()
    };
    let flipped = head(SoftmaxAxis::Queries);
    assert!(
        flipped
            .column_sums
            .iter()
            .all(|sum| (sum - 1.0).abs() < 1e-5)
    );
    assert!(flipped.rows.iter().any(|row| (row.mass - 1.0).abs() > 0.1));
    let right = head(SoftmaxAxis::Keys);
    assert!(right.rows.iter().all(|row| (row.mass - 1.0).abs() < 1e-5));
}

#[test]
fn what_ifs_change_the_attention_and_only_in_places_that_exist() {
    let plain = aligned(QUERY, KEY, SoftmaxAxis::Keys);
    let with = |words: &str| plain.with_what_ifs(&[words.parse().expect("a what-if")]);
    let flipped = with("softmax_axis=queries").expect("another axis").align();
    let declared = aligned(QUERY, KEY, SoftmaxAxis::Queries).align();
    assert_eq!(flipped.pattern, declared.pattern);
    // No scale: the scores of the plain one times √300.
    let (scaled, plain_scores) = (
        with("scale=none").expect("a scale").align(),
        plain.align().scores,
    );
    for (found, plain) in scaled.scores.iter().zip(&plain_scores) {
        assert!((found - plain * 300f32.sqrt()).abs() < 1e-3 * found.abs().max(1.0));
    }
    // Divided by their root mean squares, queries and keys are √d long: scores are √d times the cosine.
    let normed = with("qk_norm=on").expect("a norm").align();
    for (found, cosine) in normed.scores.iter().zip(&plain.align().cosines) {
        assert!(
            (found - cosine * 300f32.sqrt()).abs() < 1e-2,
            "{found} {cosine}"
        );
    }
    let dropped = with("drop=zero").expect("a drop").align();
    assert!(dropped.output.iter().all(|v| *v == 0.0));
    assert_eq!(dropped.pattern, plain.align().pattern);
    let refused = with("scale=none@L3")
        .expect_err("no such layer")
        .to_string();
    assert!(refused.contains("there is no L3"), "{refused}");
}

#[test]
fn unknown_words_are_rows_of_zeros_marked_and_counted() {
    let alignment = aligned("The nurse HAS nurse", "die zzz pferde", SoftmaxAxis::Keys);
    assert_eq!(alignment.queries.unknown(), ["nurse", "nurse"]);
    assert_eq!(alignment.keys.unknown(), ["zzz"]);
    let prompt = alignment.prompt();
    assert_eq!(prompt.labels, ["the", "⟨nurse⟩?", "has", "⟨nurse⟩?"]);
    assert_eq!(prompt.given().labels, ["die", "⟨zzz⟩?", "pferde"]);
    let found = alignment.align();
    // A row of zeros scores every key 0, and has no angle with any.
    assert_eq!(found.scores[3..6], [0.0; 3]);
    assert!(
        found.pattern[3..6]
            .iter()
            .all(|p| (p - 1.0 / 3.0).abs() < 1e-6)
    );
    assert!(found.cosines[3..6].iter().all(|cosine| cosine.is_nan()));
    assert!(found.cosines[1].is_nan() && found.cosines[0].is_finite());
    assert_eq!(found.layer.heads[0].summary.k_norms[1], 0.0);
    assert!(found.output.iter().all(|v| v.is_finite()));
    // All unknown, whatever divides them.
    let nothing = aligned("x y", "z", SoftmaxAxis::Keys);
    for words in [
        "scale=sum_key_norms",
        "scale=p_norm:2",
        "qk_norm=on",
        "softmax_axis=queries",
    ] {
        let changed = nothing.with_what_ifs(&[words.parse().expect("a what-if")]);
        let found = changed.expect("an attention").align();
        assert_eq!(
            found.judge(&Thresholds::default()).len(),
            of_runs().count(),
            "{words}"
        );
    }
}

fn attnscope(args: &[&str]) -> Output {
    let program = testing::program();
    Command::new(program)
        .arg("align")
        .args(args)
        .output()
        .expect("the program runs")
}

fn on_fixture(more: &[&str]) -> Output {
    let paths = ["en.npz", "de.npz", "en.pkl", "de.json"].map(|name| {
        let path = fixture(&format!("alignment/{name}"));
        path.display().to_string()
    });
    let [queries, keys, queries_vocab, keys_vocab] = &paths;
    let mut args = vec![
        "--queries",
        queries,
        "--keys",
        keys,
        "--queries-vocab",
        queries_vocab,
    ];
    args.extend(["--keys-vocab", keys_vocab]);
    args.extend(more);
    attnscope(&args)
}

#[test]
fn the_command_prints_best_keys_sums_and_the_verdict() {
    let ran = on_fixture(&["--query-text", "The Number has nurse", "--key-text", KEY]);
    assert!(ran.status.success());
    let text = String::from_utf8(ran.stdout).expect("text");
    let has = |parts: &[&str]| {
        let is_there = |line: &str| parts.iter().all(|part| line.contains(part));
        assert!(text.lines().any(is_there), "{parts:?} in\n{text}");
    };
    has(&["number", "zahl", "1.000"]);
    has(&["⟨nurse⟩?", "–", "0.143"]);
    has(&["1 unknown", "nurse"]);
    has(&["output: 4 × 300"]);
    has(&["key", "column sum"]);
    assert!(!text.contains("wrong-axis"), "{text}");
    let ran = on_fixture(&[
        "--query-text",
        QUERY,
        "--key-text",
        KEY,
        "--softmax-axis",
        "queries",
    ]);
    let text = String::from_utf8(ran.stdout).expect("text");
    assert!(
        text.contains("wrong-axis") && text.contains("columns sum to 1"),
        "{text}"
    );

    let ran = on_fixture(&["--query-text", QUERY, "--key-text", KEY, "--format", "json"]);
    let document: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let expected = by_hand(&aligned(QUERY, KEY, SoftmaxAxis::Keys), false).0;
    for (query_idx, row) in expected.iter().enumerate() {
        for (key_idx, weight) in row.iter().enumerate() {
            let found = document["pattern"][query_idx][key_idx]
                .as_f64()
                .expect("a weight");
            assert!((found - weight).abs() < 1e-5);
        }
    }
    let ran = on_fixture(&["--query-text", QUERY, "--key-text", KEY, "--format", "csv"]);
    assert_eq!(
        String::from_utf8(ran.stdout).expect("CSV").lines().count(),
        1 + 6 * 7
    );
}

#[test]
fn written_arrays_are_read_back_and_judged_as_a_trace() {
    let directory = tempfile::tempdir().expect("a directory");
    let expected = aligned(QUERY, KEY, SoftmaxAxis::Queries).align();
    for name in ["out.safetensors", "out.npz"] {
        let path = directory.path().join(name).display().to_string();
        let more = ["--query-text", QUERY, "--key-text", KEY, "--output", &path];
        let ran = on_fixture(&[&more[..], &["--softmax-axis", "queries"]].concat());
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        let read =
            attnscope_checkpoint::captured::Captured::open(Path::new(&path)).expect("arrays");
        let output = read.array("output").expect("the output");
        assert_eq!(
            (output.shape, output.values),
            (vec![6, 300], expected.output.clone())
        );
        let pattern = read
            .array("decoder.blocks.0.cross_attn.pattern")
            .expect("a pattern");
        assert_eq!(pattern.values, expected.pattern);
        let judged = Command::new(testing::program())
            .args(["check", &path])
            .output();
        let judged = judged.expect("the program runs");
        assert_eq!(judged.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&judged.stdout).contains("wrong-axis"));
    }
    let path = directory.path().join("a.txt");
    let path = path.to_string_lossy();
    let texts = ["--query-text", QUERY, "--key-text", KEY];
    let ran = on_fixture(&[&texts[..], &["--output", &path]].concat());
    assert_eq!(ran.status.code(), Some(2));
}

#[test]
fn the_demo_is_aligned_as_a_reader_would() {
    let demo = demo_alignment(SoftmaxAxis::Keys).expect("compiled in");
    assert_eq!(
        (demo.queries.unknown().len(), demo.keys.unknown().len()),
        (0, 0)
    );
    let rows = demo.align().layer.heads[0].summary.rows.clone();
    let best: Vec<&str> = rows
        .iter()
        .map(|row| demo.keys.words[row.argmax as usize].text.as_str())
        .collect();
    // Tens and ones change places.
    assert_eq!(
        best,
        [
            "sie", "gekauft", "achtzig", "acht", "briefe", "am", "juli", "neunten"
        ]
    );
    let again = demo.of_texts("four | vier und").expect("two texts");
    assert_eq!(
        (again.queries.text(), again.keys.text()),
        ("four".to_owned(), "vier und".to_owned())
    );
    for bad in ["four vier", "a | b | c", " | vier", "four |"] {
        assert!(demo.of_texts(bad).is_err(), "{bad}");
    }
}
