//! Alignment between two tables of embeddings: the numbers, every form of file, and what is refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use attnscope::analysis::align::Alignment;
use attnscope::attention::SoftmaxAxis;
use attnscope::checkpoint::embeddings::Table;
use attnscope::checks::{Status, Thresholds};
use serde_json::Value;

mod embedding_files;

use embedding_files::{Stored, fixture, npz, pickle, write};

const QUERY: &str = "the island has sixty four horses";
const KEY: &str = "die insel hat vier und sechzig pferde";

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
        rows.map(|row| row.iter().map(|v| f64::from(*v)).collect()).collect()
    };
    let (q, k) = (rows(&alignment.queries.vectors), rows(&alignment.keys.vectors));
    let exps = |q: &[f64]| -> Vec<f64> {
        let dot = |k: &Vec<f64>| q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>();
        k.iter().map(|k| (dot(k) / (width as f64).sqrt()).exp()).collect()
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
        assert!(off <= within * expected.abs().max(1.0), "{at}: {found}, {expected}");
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
        assert_eq!((found.n_queries(), found.n_keys(), found.width), (6, 7, 300));
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
            assert!((found - expected).abs() < 1e-9, "{word}: {found}, {expected}");
        }
    }
}

#[test]
fn the_error_rate_over_the_gold_pairs_is_that_of_the_training() {
    let read = |path: &str| -> Value {
        let text = std::fs::read_to_string(fixture(path)).expect("a fixture");
        serde_json::from_str(&text).expect("JSON")
    };
    let (gold, readings) = (read("seq2seq/gold.json"), read("alignment/readings.json"));
    let (mut n_right, mut n_found, mut n_gold) = (0usize, 0usize, 0usize);
    for pair in gold.as_array().expect("pairs") {
        let text = |side: &str| pair[side].as_str().expect("a text").to_owned();
        let alignment = aligned(&text("target"), &text("source"), SoftmaxAxis::Keys);
        let n_keys = alignment.keys.words.len();
        let pattern = alignment.align().pattern;
        let places = pair["alignment"].as_array().expect("places");
        for (row, gold) in pattern.chunks(n_keys).zip(places) {
            let gold: Vec<u64> = gold.as_array().expect("places").iter().filter_map(Value::as_u64).collect();
            // Of two keys that are alike, the first counts as looked at.
            let best = (1..n_keys).fold(0, |best, at| if row[at] > row[best] { at } else { best });
            n_found += 1;
            n_gold += gold.len();
            n_right += usize::from(gold.contains(&(best as u64)));
        }
    }
    // Och and Ney 2003, every link of the gold sure: 1 − 2|A ∩ S|/(|A| + |S|).
    let rate = 1.0 - 2.0 * n_right as f64 / (n_found + n_gold) as f64;
    let stated = readings["held_out"]["alignment_error_rate"].as_f64().expect("a rate");
    // The first half of the pairs that the training was measured on.
    assert!((rate - stated).abs() < 0.03, "{rate} against {stated}");
    println!("alignment error rate {rate:.4} over {n_found} words, stated {stated}");
}

#[test]
fn every_form_of_file_gives_the_same_numbers() {
    let [width, words] = [3, ["alpha", "beta gamma", "straße", "zero"]];
    let values: Vec<f32> = vec![0.5, -1.25, 2.0, 0.0, 3.5, -0.125, 1.0, 1.0, 1.5, 0.0, 0.0, 0.0];
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let dictionary = at("words.json");
    let entries: serde_json::Map<String, Value> =
        words.iter().enumerate().map(|(row, word)| ((*word).to_owned(), row.into())).collect();
    write(&dictionary, Value::Object(entries).to_string().as_bytes());
    let pickled = at("words.pkl");
    write(&pickled, &pickle(&words));

    let mut tables = Vec::new();
    for kind in ["f2", "f4", "f8"] {
        for (is_fortran, is_deflated) in [(false, false), (false, true), (true, false), (true, true)] {
            let path = at(&format!("{kind}{is_fortran}{is_deflated}.npz"));
            let stored = Stored { kind, is_fortran, is_deflated };
            write(&path, &npz("embeddings", &stored, [words.len(), width], &values));
            let vocabulary = if is_fortran { &pickled } else { &dictionary };
            tables.push(Table::open(&path, Some(vocabulary), "keys").expect("a table"));
        }
    }
    let stored = Stored { kind: "f4", is_fortran: false, is_deflated: false };
    let alone = at("alone.npz");
    write(&alone, &npz("vectors", &stored, [words.len(), width], &values));
    tables.push(Table::open(&alone, Some(&dictionary), "keys").expect("the only array"));
    let array = at("table.npy");
    write(&array, &embedding_files::npy(&stored, [words.len(), width], &values));
    tables.push(Table::open(&array, Some(&dictionary), "keys").expect("an array"));
    for name in ["embeddings", "weight"] {
        let path = at(&format!("{name}.safetensors"));
        write(&path, &embedding_files::tensors(name, [words.len(), width], &values));
        tables.push(Table::open(&path, Some(&pickled), "keys").expect("a tensor"));
    }
    for header in ["", "4 3\n"] {
        let path = at(&format!("{}.txt", header.len()));
        let lines = words.iter().zip(values.chunks(width));
        let lines = lines.map(|(word, row)| format!("{word} {} {} {} \n", row[0], row[1], row[2]));
        write(&path, (header.to_owned() + &lines.collect::<String>()).as_bytes());
        tables.push(Table::open(&path, None, "keys").expect("text"));
    }
    assert_eq!(tables.len(), 18);
    for table in &tables {
        let name = table.embeddings.path.display();
        assert_eq!((table.embeddings.n_rows, table.embeddings.width), (4, 3), "{name}");
        for (row, word) in words.iter().enumerate() {
            assert_eq!(table.dictionary.row(word), Some(row), "{name}");
        }
        // Out of order, and one twice.
        let found = table.embeddings.rows(&[2, 0, 2, 3, 1]).expect("rows");
        let expected = [2, 0, 2, 3, 1].map(|row| &values[row * width..(row + 1) * width]);
        assert_eq!(found, expected.concat(), "{name}");
    }
}

#[test]
fn the_wrong_axis_is_found_and_the_right_one_is_not() {
    let status = |axis: SoftmaxAxis, id: &str| {
        let verdicts = aligned(QUERY, KEY, axis).align().judge(&Thresholds::default());
        let found = verdicts.into_iter().find(|(check, _)| check.id == id);
        found.expect("a verdict").1.status
    };
    assert_eq!(status(SoftmaxAxis::Keys, "wrong-axis"), Status::Passed);
    assert_eq!(status(SoftmaxAxis::Keys, "row-sum"), Status::Passed);
    assert_eq!(status(SoftmaxAxis::Keys, "pattern-mismatch"), Status::Passed);
    assert_eq!(status(SoftmaxAxis::Queries, "wrong-axis"), Status::Fired);
    let head = |axis| aligned(QUERY, KEY, axis).align().layer.heads[0].summary.clone();
    let flipped = head(SoftmaxAxis::Queries);
    assert!(flipped.column_sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5));
    assert!(flipped.rows.iter().any(|row| (row.mass - 1.0).abs() > 0.1));
    let right = head(SoftmaxAxis::Keys);
    assert!(right.rows.iter().all(|row| (row.mass - 1.0).abs() < 1e-5));
}

#[test]
fn what_is_supposed_changes_the_attention_and_no_place_is_invented() {
    let plain = aligned(QUERY, KEY, SoftmaxAxis::Keys);
    let with = |words: &str| plain.supposing(&[words.parse().expect("a what-if")]);
    let flipped = with("softmax_axis=queries").expect("another axis").align();
    let declared = aligned(QUERY, KEY, SoftmaxAxis::Queries).align();
    assert_eq!(flipped.pattern, declared.pattern);
    // No scale: the scores of the plain one times √300.
    let (scaled, plain_scores) = (with("scale=none").expect("a scale").align(), plain.align().scores);
    for (found, plain) in scaled.scores.iter().zip(&plain_scores) {
        assert!((found - plain * 300f32.sqrt()).abs() < 1e-3 * found.abs().max(1.0));
    }
    // Divided by their root mean squares, queries and keys are √d long: scores are √d times the cosine.
    let normed = with("qk_norm=on").expect("a norm").align();
    for (found, cosine) in normed.scores.iter().zip(&plain.align().cosines) {
        assert!((found - cosine * 300f32.sqrt()).abs() < 1e-2, "{found} {cosine}");
    }
    let dropped = with("drop=zero").expect("a drop").align();
    assert!(dropped.output.iter().all(|v| *v == 0.0));
    assert_eq!(dropped.pattern, plain.align().pattern);
    let refused = with("scale=none@L3").expect_err("no such layer").to_string();
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
    assert!(found.pattern[3..6].iter().all(|p| (p - 1.0 / 3.0).abs() < 1e-6));
    assert!(found.cosines[3..6].iter().all(|cosine| cosine.is_nan()));
    assert!(found.cosines[1].is_nan() && found.cosines[0].is_finite());
    assert_eq!(found.layer.heads[0].summary.k_norms[1], 0.0);
    assert!(found.output.iter().all(|v| v.is_finite()));
    // All unknown, whatever divides them.
    let nothing = aligned("x y", "z", SoftmaxAxis::Keys);
    for words in ["scale=sum_key_norms", "scale=p_norm:2", "qk_norm=on", "softmax_axis=queries"] {
        let supposed = nothing.supposing(&[words.parse().expect("a what-if")]);
        let found = supposed.expect("an attention").align();
        assert_eq!(found.judge(&Thresholds::default()).len(), 25, "{words}");
    }
}

fn attnscope(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_attnscope");
    Command::new(program).arg("align").args(args).output().expect("the program runs")
}

fn on_fixture(more: &[&str]) -> Output {
    let paths = ["en.npz", "de.npz", "en.pkl", "de.json"].map(|name| {
        let path = fixture(&format!("alignment/{name}"));
        path.display().to_string()
    });
    let [queries, keys, queries_vocab, keys_vocab] = &paths;
    let mut args = vec!["--queries", queries, "--keys", keys, "--queries-vocab", queries_vocab];
    args.extend(["--keys-vocab", keys_vocab]);
    args.extend(more);
    attnscope(&args)
}

#[test]
fn the_command_prints_best_keys_sums_and_the_verdict() {
    let ran = on_fixture(&["--query-text", "The island has nurse", "--key-text", KEY]);
    assert!(ran.status.success());
    let text = String::from_utf8(ran.stdout).expect("text");
    let has = |parts: &[&str]| {
        let is_there = |line: &str| parts.iter().all(|part| line.contains(part));
        assert!(text.lines().any(is_there), "{parts:?} in\n{text}");
    };
    has(&["island", "insel", "1.000"]);
    has(&["⟨nurse⟩?", "0.143", "–"]);
    has(&["1 unknown", "nurse"]);
    has(&["output: 4 × 300"]);
    has(&["key", "column sum"]);
    assert!(!text.contains("wrong-axis"), "{text}");
    let ran = on_fixture(&["--query-text", QUERY, "--key-text", KEY, "--softmax-axis", "queries"]);
    let text = String::from_utf8(ran.stdout).expect("text");
    assert!(text.contains("wrong-axis") && text.contains("columns sum to 1"), "{text}");

    let ran = on_fixture(&["--query-text", QUERY, "--key-text", KEY, "--format", "json"]);
    let document: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    let expected = by_hand(&aligned(QUERY, KEY, SoftmaxAxis::Keys), false).0;
    for (query_idx, row) in expected.iter().enumerate() {
        for (key_idx, weight) in row.iter().enumerate() {
            let found = document["pattern"][query_idx][key_idx].as_f64().expect("a weight");
            assert!((found - weight).abs() < 1e-5);
        }
    }
    let ran = on_fixture(&["--query-text", QUERY, "--key-text", KEY, "--format", "csv"]);
    assert_eq!(String::from_utf8(ran.stdout).expect("CSV").lines().count(), 1 + 6 * 7);
}

#[test]
fn written_arrays_are_read_back_and_judged_as_a_trace() {
    let directory = tempfile::tempdir().expect("a directory");
    let expected = aligned(QUERY, KEY, SoftmaxAxis::Queries).align();
    for name in ["out.safetensors", "out.npz"] {
        let path = directory.path().join(name).display().to_string();
        let more = ["--query-text", QUERY, "--key-text", KEY, "--output", &path];
        let ran = on_fixture(&[&more[..], &["--softmax-axis", "queries"]].concat());
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let read = attnscope::checkpoint::captured::Captured::open(Path::new(&path)).expect("arrays");
        let output = read.array("output").expect("the output");
        assert_eq!((output.shape, output.values), (vec![6, 300], expected.output.clone()));
        let pattern = read.array("decoder.blocks.0.cross_attn.pattern").expect("a pattern");
        assert_eq!(pattern.values, expected.pattern);
        let judged = Command::new(env!("CARGO_BIN_EXE_attnscope")).args(["check", &path]).output();
        let judged = judged.expect("the program runs");
        assert_eq!(judged.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&judged.stdout).contains("wrong-axis"));
    }
    let ran = on_fixture(&["--query-text", QUERY, "--key-text", KEY, "--output", "/tmp/a.txt"]);
    assert_eq!(ran.status.code(), Some(2));
}

fn refused(args: &[&str], expected: &[&str]) {
    let ran = attnscope(args);
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(ran.stdout.is_empty());
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in expected {
        assert!(said.contains(part), "{part:?} in {said}");
    }
}

#[test]
fn what_cannot_be_aligned_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let put = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        write(&path, bytes);
        path.display().to_string()
    };
    let stored = Stored { kind: "f4", is_fortran: false, is_deflated: false };
    let table = |width: usize| npz("embeddings", &stored, [2, width], &vec![1.0; 2 * width]);
    let (three, four) = (put("three.npz", &table(3)), put("four.npz", &table(4)));
    let other = put("other.npz", &embedding_files::npz_of_two(&stored, [2, 3], &[1.0; 6]));
    let words = put("words.json", br#"{"a": 0, "b": 1}"#);
    let pair = |keys: &str, vocabulary: &str, text: &str, expected: &[&str]| {
        let args = [
            "--queries", &three, "--queries-vocab", &words, "--keys", keys, "--keys-vocab", vocabulary,
            "--query-text", "a b", "--key-text", text,
        ];
        refused(&args, expected);
    };
    pair(&four, &words, "a", &["three.npz", "3 wide", "four.npz", " 4"]);
    pair(&other, &words, "a", &["other.npz", "\"embeddings\"", "\"one\"", "\"two\""]);
    pair(&three, &words, "  ", &["key text", "1 to 4096 words", "found 0"]);
    pair("/nowhere.npz", &words, "a", &["/nowhere.npz"]);
    let vocabulary = |name: &str, bytes: &[u8], expected: &[&str]| {
        let path = put(name, bytes);
        pair(&three, &path, "a", &[&[name], expected].concat());
    };
    vocabulary("beyond.json", br#"{"a": 0, "b": 7}"#, &["\"b\"", "row 7", "0..1"]);
    vocabulary("twice.json", br#"{"a": 0, "a": 1}"#, &["\"a\" stands twice", "0 and 1"]);
    vocabulary("list.json", b"[1, 2]", &["expected a JSON object"]);
    vocabulary("float.json", br#"{"a": 0.5}"#, &["\"a\"", "found 0.5"]);
    vocabulary("minus.json", br#"{"a": -1}"#, &["\"a\"", "found -1"]);
    vocabulary("empty.json", b"{}", &["no words"]);
    vocabulary("cut.json", br#"{"a": 0"#, &["EOF"]);
    vocabulary("list.pkl", b"\x80\x02]q\x00.", &["expected a dictionary", "a list"]);
    vocabulary("text.pkl", b"\x80\x02}X\x01\x00\x00\x00aX\x01\x00\x00\x00bs.", &["a: expected a whole number", "a text"]);
    vocabulary("turned.pkl", b"\x80\x02}K\x00X\x01\x00\x00\x00bs.", &["expected texts as keys"]);
    vocabulary("twice.pkl", b"\x80\x02}X\x01\x00\x00\x00aK\x00sX\x01\x00\x00\x00aK\x01s.", &["\"a\" stands twice"]);
    let missing = ["--queries", &three, "--keys", &three, "--query-text", "a", "--key-text", "a"];
    refused(&missing, &["three.npz", "--queries-vocab"]);
    for (name, text, expected) in [
        ("short.txt", "a 1 2\nb 1\n", "line 2: expected a word and 2 numbers, found 1"),
        ("count.txt", "3 2\na 1 2\nb 1 2\n", "line 1 says 3 words, 2 follow"),
        ("twice.txt", "a 1 2\na 1 2\n", "stands twice"),
        ("letters.txt", "a 1 x\nb 1 2\n", "line 1: expected a number, found \"x\""),
        ("nothing.txt", "\n\n", "holds nothing"),
    ] {
        let path = put(name, text.as_bytes());
        refused(&["--queries", &path, "--keys", &path, "--query-text", "a", "--key-text", "a"], &[name, expected]);
    }
    let huge = put("huge.npz", &embedding_files::npz_claiming("(99999999999, 99999999999)"));
    pair(&huge, &words, "a", &["huge.npz", "embeddings", "expected at most"]);
    let whole = put("whole.npz", &embedding_files::npz_of_integers());
    pair(&whole, &words, "a", &["whole.npz", "expected floating point"]);
}

#[test]
fn a_pickle_that_would_run_something_is_refused_and_runs_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let witness = directory.path().join("witness");
    let command = format!("touch {}", witness.display());
    let stored = Stored { kind: "f4", is_fortran: false, is_deflated: false };
    let table = directory.path().join("table.npz");
    write(&table, &npz("embeddings", &stored, [1, 2], &[1.0, 2.0]));
    let text = |text: &str| {
        let mut bytes = vec![b'X'];
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    };
    let cases: [(&str, Vec<u8>); 6] = [
        ("GLOBAL", format!("\x28dp0\ncposix\nsystem\n(V{command}\ntRs.").into_bytes()),
        ("INST", format!("(V{command}\niposix\nsystem\n.").into_bytes()),
        ("OBJ", [b"(".to_vec(), text(&command), b"o.".to_vec()].concat()),
        (
            "STACK_GLOBAL",
            [b"\x80\x04".to_vec(), text("posix"), text("system"), b"\x93".to_vec(), text(&command), b"\x85R.".to_vec()].concat(),
        ),
        ("GLOBAL", b"ccollections\nOrderedDict\n)R.".to_vec()),
        ("BINPERSID", [text("storage"), b"Q.".to_vec()].concat()),
    ];
    for (opcode, bytes) in cases {
        let vocabulary = directory.path().join("words.pkl");
        write(&vocabulary, &bytes);
        let refused = Table::open(&table, Some(&vocabulary), "keys").expect_err("refused").to_string();
        assert!(refused.contains(opcode) && refused.contains("words.pkl"), "{opcode}: {refused}");
        assert_eq!(refused.lines().count(), 1);
        assert!(!witness.exists(), "{opcode} ran");
    }
}

#[test]
fn damaged_files_never_panic_and_never_go_on_for_ever() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    let words = ["alpha", "beta"];
    let (dictionary, table) = (path("w.pkl"), path("t.npz"));
    let healthy = pickle(&words);
    let stored = [false, true].map(|is_deflated| {
        npz("embeddings", &Stored { kind: "f2", is_fortran: true, is_deflated }, [2, 3], &[1.0; 6])
    });
    let read = || -> Result<(), String> {
        let table = Table::open(&table, Some(&dictionary), "keys").map_err(|e| e.to_string())?;
        let row = table.dictionary.row("alpha").unwrap_or(0);
        table.embeddings.rows(&[row]).map(drop).map_err(|e| e.to_string())
    };
    let (mut n_refused, mut n_read) = (0, 0);
    let mut count = |read: Result<(), String>| match read {
        Err(problem) => {
            assert_eq!(problem.lines().count(), 1, "{problem:?}");
            n_refused += 1;
        }
        Ok(()) => n_read += 1,
    };
    for archive in &stored {
        write(&dictionary, &healthy);
        for at in 0..archive.len() {
            for flip in [0x01, 0x10, 0x80, 0xff] {
                let mut damaged = archive.clone();
                damaged[at] ^= flip;
                write(&table, &damaged);
                count(read());
            }
            write(&table, &archive[..at]);
            assert!(read().is_err(), "cut at {at}");
        }
        write(&table, archive);
        for at in 0..healthy.len() {
            for flip in 1..=255u8 {
                let mut damaged = healthy.clone();
                damaged[at] ^= flip;
                write(&dictionary, &damaged);
                count(read());
            }
            write(&dictionary, &healthy[..at]);
            assert!(read().is_err(), "cut at {at}");
        }
    }
    assert!(n_refused > 2000 && n_read > 0, "{n_refused} refused, {n_read} read");
}

#[test]
fn the_demo_is_aligned_as_a_reader_would() {
    let demo = Alignment::demo(SoftmaxAxis::Keys).expect("compiled in");
    assert_eq!((demo.queries.unknown().len(), demo.keys.unknown().len()), (0, 0));
    let rows = demo.align().layer.heads[0].summary.rows.clone();
    let best: Vec<&str> = rows
        .iter()
        .map(|row| demo.keys.words[row.argmax as usize].text.as_str())
        .collect();
    // Tens and ones change places.
    assert_eq!(best, ["die", "insel", "hat", "sechzig", "vier", "pferde"]);
    let again = demo.of_texts("four | vier und").expect("two texts");
    assert_eq!((again.queries.text(), again.keys.text()), ("four".to_owned(), "vier und".to_owned()));
    for bad in ["four vier", "a | b | c", " | vier", "four |"] {
        assert!(demo.of_texts(bad).is_err(), "{bad}");
    }
}
