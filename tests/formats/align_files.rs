//! Files of embeddings and of words: every form gives the same numbers, and what is broken or would run something is refused.

use std::path::PathBuf;
use std::process::Command;

use attnscope_checkpoint::embeddings::Table;
use serde_json::Value;
use testing::effort::{some_of, tries};
use testing::embedding_files::{Stored, npz, pickle, write};

#[test]
fn every_form_of_file_gives_the_same_numbers() {
    let (width, words) = (3, ["alpha", "beta gamma", "straße", "zero"]);
    let values: Vec<f32> = vec![
        0.5, -1.25, 2.0, 0.0, 3.5, -0.125, 1.0, 1.0, 1.5, 0.0, 0.0, 0.0,
    ];
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let dictionary = at("words.json");
    let entries: serde_json::Map<String, Value> = words
        .iter()
        .enumerate()
        .map(|(row, word)| ((*word).to_owned(), row.into()))
        .collect();
    write(&dictionary, Value::Object(entries).to_string().as_bytes());
    let pickled = at("words.pkl");
    write(&pickled, &pickle(&words));

    let mut tables = Vec::new();
    for kind in ["f2", "f4", "f8"] {
        for (is_fortran, is_deflated) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let path = at(&format!("{kind}{is_fortran}{is_deflated}.npz"));
            let stored = Stored {
                kind,
                is_fortran,
                is_deflated,
            };
            write(
                &path,
                &npz("embeddings", &stored, [words.len(), width], &values),
            );
            let vocabulary = if is_fortran { &pickled } else { &dictionary };
            tables.push(Table::open(&path, Some(vocabulary), "keys").expect("a table"));
        }
    }
    let stored = Stored {
        kind: "f4",
        is_fortran: false,
        is_deflated: false,
    };
    let alone = at("alone.npz");
    write(
        &alone,
        &npz("vectors", &stored, [words.len(), width], &values),
    );
    tables.push(Table::open(&alone, Some(&dictionary), "keys").expect("the only array"));
    let array = at("table.npy");
    write(
        &array,
        &testing::embedding_files::npy(&stored, [words.len(), width], &values),
    );
    tables.push(Table::open(&array, Some(&dictionary), "keys").expect("an array"));
    for name in ["embeddings", "weight"] {
        let path = at(&format!("{name}.safetensors"));
        write(
            &path,
            &testing::embedding_files::tensors(name, [words.len(), width], &values),
        );
        tables.push(Table::open(&path, Some(&pickled), "keys").expect("a tensor"));
    }
    for header in ["", "4 3\n"] {
        let path = at(&format!("{}.txt", header.len()));
        let lines = words.iter().zip(values.chunks(width));
        let lines = lines.map(|(word, row)| format!("{word} {} {} {} \n", row[0], row[1], row[2]));
        write(
            &path,
            (header.to_owned() + &lines.collect::<String>()).as_bytes(),
        );
        tables.push(Table::open(&path, None, "keys").expect("text"));
    }
    assert_eq!(tables.len(), 18);
    for table in &tables {
        let name = table.embeddings.path.display();
        assert_eq!(
            (table.embeddings.n_rows, table.embeddings.width),
            (4, 3),
            "{name}"
        );
        for (row, word) in words.iter().enumerate() {
            assert_eq!(table.dictionary.row(word), Some(row), "{name}");
        }
        // Out of order, and one twice.
        let found = table.embeddings.rows(&[2, 0, 2, 3, 1]).expect("rows");
        let expected = [2, 0, 2, 3, 1].map(|row| &values[row * width..(row + 1) * width]);
        assert_eq!(found, expected.concat(), "{name}");
    }
}

fn refused(args: &[&str], expected: &[&str]) {
    let ran = Command::new(testing::program())
        .arg("align")
        .args(args)
        .output();
    let ran = ran.expect("the program runs");
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
    let stored = Stored {
        kind: "f4",
        is_fortran: false,
        is_deflated: false,
    };
    let table = |width: usize| npz("embeddings", &stored, [2, width], &vec![1.0; 2 * width]);
    let (three, four) = (put("three.npz", &table(3)), put("four.npz", &table(4)));
    let other = put(
        "other.npz",
        &testing::embedding_files::npz_of_two(&stored, [2, 3], &[1.0; 6]),
    );
    let words = put("words.json", br#"{"a": 0, "b": 1}"#);
    let pair = |keys: &str, vocabulary: &str, text: &str, expected: &[&str]| {
        let args = [
            "--queries",
            &three,
            "--queries-vocab",
            &words,
            "--keys",
            keys,
            "--keys-vocab",
            vocabulary,
            "--query-text",
            "a b",
            "--key-text",
            text,
        ];
        refused(&args, expected);
    };
    pair(
        &four,
        &words,
        "a",
        &["three.npz", "3 wide", "four.npz", " 4"],
    );
    pair(
        &other,
        &words,
        "a",
        &["other.npz", "\"embeddings\"", "\"one\"", "\"two\""],
    );
    pair(
        &three,
        &words,
        "  ",
        &["key text", "1 to 4096 words", "found 0"],
    );
    pair("/nowhere.npz", &words, "a", &["/nowhere.npz"]);
    let vocabulary = |name: &str, bytes: &[u8], expected: &[&str]| {
        let path = put(name, bytes);
        pair(&three, &path, "a", &[&[name], expected].concat());
    };
    vocabulary(
        "beyond.json",
        br#"{"a": 0, "b": 7}"#,
        &["\"b\"", "row 7", "0..1"],
    );
    vocabulary(
        "twice.json",
        br#"{"a": 0, "a": 1}"#,
        &["\"a\" stands twice", "0 and 1"],
    );
    vocabulary("list.json", b"[1, 2]", &["expected a JSON object"]);
    vocabulary("float.json", br#"{"a": 0.5}"#, &["\"a\"", "found 0.5"]);
    vocabulary("minus.json", br#"{"a": -1}"#, &["\"a\"", "found -1"]);
    vocabulary("empty.json", b"{}", &["no words"]);
    vocabulary("cut.json", br#"{"a": 0"#, &["EOF"]);
    vocabulary(
        "list.pkl",
        b"\x80\x02]q\x00.",
        &["expected a dictionary", "a list"],
    );
    vocabulary(
        "text.pkl",
        b"\x80\x02}X\x01\x00\x00\x00aX\x01\x00\x00\x00bs.",
        &["a: expected a whole number", "a text"],
    );
    vocabulary(
        "turned.pkl",
        b"\x80\x02}K\x00X\x01\x00\x00\x00bs.",
        &["expected texts as keys"],
    );
    vocabulary(
        "twice.pkl",
        b"\x80\x02}X\x01\x00\x00\x00aK\x00sX\x01\x00\x00\x00aK\x01s.",
        &["\"a\" stands twice"],
    );
    let missing = [
        "--queries",
        &three,
        "--keys",
        &three,
        "--query-text",
        "a",
        "--key-text",
        "a",
    ];
    refused(&missing, &["three.npz", "--queries-vocab"]);
    for (name, text, expected) in [
        (
            "short.txt",
            "a 1 2\nb 1\n",
            "line 2: expected a word and 2 numbers, found 1",
        ),
        (
            "count.txt",
            "3 2\na 1 2\nb 1 2\n",
            "line 1 says 3 words, 2 follow",
        ),
        ("twice.txt", "a 1 2\na 1 2\n", "stands twice"),
        (
            "letters.txt",
            "a 1 x\nb 1 2\n",
            "line 1: expected a number, found \"x\"",
        ),
        ("nothing.txt", "\n\n", "holds nothing"),
    ] {
        let path = put(name, text.as_bytes());
        refused(
            &[
                "--queries",
                &path,
                "--keys",
                &path,
                "--query-text",
                "a",
                "--key-text",
                "a",
            ],
            &[name, expected],
        );
    }
    let huge = put(
        "huge.npz",
        &testing::embedding_files::npz_claiming("(99999999999, 99999999999)"),
    );
    pair(
        &huge,
        &words,
        "a",
        &["huge.npz", "embeddings", "expected at most"],
    );
    let whole = put("whole.npz", &testing::embedding_files::npz_of_integers());
    pair(
        &whole,
        &words,
        "a",
        &["whole.npz", "expected floating point"],
    );
}

#[test]
fn a_pickle_that_would_run_something_is_refused_and_runs_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let witness = directory.path().join("witness");
    let command = format!("touch {}", witness.display());
    let stored = Stored {
        kind: "f4",
        is_fortran: false,
        is_deflated: false,
    };
    let table = directory.path().join("table.npz");
    write(&table, &npz("embeddings", &stored, [1, 2], &[1.0, 2.0]));
    let text = |text: &str| {
        let mut bytes = vec![b'X'];
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    };
    let cases: [(&str, Vec<u8>); 6] = [
        (
            "GLOBAL",
            format!("\x28dp0\ncposix\nsystem\n(V{command}\ntRs.").into_bytes(),
        ),
        (
            "INST",
            format!("(V{command}\niposix\nsystem\n.").into_bytes(),
        ),
        (
            "OBJ",
            [b"(".to_vec(), text(&command), b"o.".to_vec()].concat(),
        ),
        (
            "STACK_GLOBAL",
            [
                b"\x80\x04".to_vec(),
                text("posix"),
                text("system"),
                b"\x93".to_vec(),
                text(&command),
                b"\x85R.".to_vec(),
            ]
            .concat(),
        ),
        ("GLOBAL", b"ccollections\nOrderedDict\n)R.".to_vec()),
        ("BINPERSID", [text("storage"), b"Q.".to_vec()].concat()),
    ];
    for (opcode, bytes) in cases {
        let vocabulary = directory.path().join("words.pkl");
        write(&vocabulary, &bytes);
        let refused = Table::open(&table, Some(&vocabulary), "keys")
            .expect_err("refused")
            .to_string();
        assert!(
            refused.contains(opcode) && refused.contains("words.pkl"),
            "{opcode}: {refused}"
        );
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
        npz(
            "embeddings",
            &Stored {
                kind: "f2",
                is_fortran: true,
                is_deflated,
            },
            [2, 3],
            &[1.0; 6],
        )
    });
    let read = || -> Result<(), String> {
        let table = Table::open(&table, Some(&dictionary), "keys").map_err(|e| e.to_string())?;
        let row = table.dictionary.row("alpha").unwrap_or(0);
        table
            .embeddings
            .rows(&[row])
            .map(drop)
            .map_err(|e| e.to_string())
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
        for at in some_of(0..archive.len(), 4) {
            for flip in [0x01, 0xff] {
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
            let flips = (1..=255u8).step_by(if archive == &stored[0] { 2 } else { 32 });
            for flip in some_of(flips.skip(at % 4), 4) {
                let mut damaged = healthy.clone();
                damaged[at] ^= flip;
                write(&dictionary, &damaged);
                count(read());
            }
            write(&dictionary, &healthy[..at]);
            assert!(read().is_err(), "cut at {at}");
        }
    }
    assert!(
        n_refused > tries(600, 3) && n_read > 0,
        "{n_refused} refused, {n_read} read"
    );
}
