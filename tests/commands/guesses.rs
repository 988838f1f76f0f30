//! Weights that nothing describes: home-grown models in twelve styles, guessed back from text to the loss that they were trained to.

use std::path::{Path, PathBuf};

use attnscope_checkpoint::{Checkpoint, TokenizerFile};
use attnscope_compute::ops::Cpu;
use attnscope_prompt::Tokenizer;
use attnscope_studies::guess::{Given, Guess, Kind, guess};
use serde_json::Value;
use testing::checkpoint_copy::attnscope;
use testing::effort::some_of;

/// What a guess may lose more or less than the model lost as it was trained.
const TOLERANCE: f64 = 0.01;

fn fixtures() -> PathBuf {
    testing::root().join("fixtures/guess")
}

/// The ids that a model is judged on: its own, or those of the texts that all share.
fn sequences(file: &str) -> Vec<Vec<u32>> {
    let own = fixtures().join(Path::new(file).with_extension("jsonl"));
    let path = if own.is_file() {
        own
    } else {
        fixtures().join("text.jsonl")
    };
    let chars = TokenizerFile::named(&fixtures().join("chars.json"), None).expect("a table");
    let reading = Tokenizer::open(&chars).expect("a table");
    let tokenizer = reading.tokenizer().expect("a tokenizer");
    let lines = std::fs::read_to_string(path).expect("texts");
    let ids = |line: &str| -> Vec<u32> {
        let line: Value = serde_json::from_str(line).expect("JSON");
        match line["text"].as_str() {
            Some(text) => tokenizer.encode(text, false).expect("ids"),
            None => serde_json::from_value(line["tokens"].clone()).expect("ids"),
        }
    };
    lines.lines().map(ids).collect()
}

fn guessed(file: &str) -> Guess {
    let checkpoint = Checkpoint::open(&fixtures().join(file)).expect("opens");
    let given = Given {
        sequences: sequences(file),
        ..Given::default()
    };
    guess(&Cpu, checkpoint, &given, &mut |_, _| {}, &|| false).expect(file)
}

/// The value of a key, as the file has it.
fn value<'a>(guess: &'a Guess, key: &str) -> Option<&'a str> {
    let line = guess.lines.iter().find(|line| line.key == key);
    line.map(|line| line.value.as_str())
}

/// Encoders: nobody says that they are.
const ENCODERS: [&str; 2] = ["cloze.safetensors", "veil.safetensors"];
/// What most runs of the tests guess: gated and grouped; then transposed, and with gains around 0. Each takes seconds.
const OFTEN: [&str; 3] = ["lamb.safetensors", "flip.pt", "bare.safetensors"];

#[test]
fn home_grown_models_are_guessed_to_their_trained_loss() {
    let chosen: Vec<&str> = some_of(OFTEN, OFTEN.len()).collect();
    are_guessed(&|file| chosen.contains(&file));
}

#[test]
#[ignore = "two minutes: cargo test --test commands guesses -- --ignored"]
fn all_home_grown_models_are_guessed_to_their_trained_loss() {
    are_guessed(&|_| true);
}

fn are_guessed(is_chosen: &dyn Fn(&str) -> bool) {
    let expected = std::fs::read_to_string(fixtures().join("expected.json")).expect("losses");
    let expected: std::collections::BTreeMap<String, f64> =
        serde_json::from_str(&expected).expect("losses");
    assert!(expected.len() >= 12);
    // What must come out beside the loss: settings by which readings differ in kind.
    let settings: &[(&str, &[(&str, &str)])] = &[
        (
            "lamb.safetensors",
            &[
                ("n_kv_heads", "2"),
                ("norm", "\"rms\""),
                ("positions", "\"rotary\""),
                ("gate", "\"enc.{layer}.ffn.w1\""),
            ],
        ),
        (
            "single.safetensors",
            &[("n_kv_heads", "1"), ("positions", "\"places/table\"")],
        ),
        (
            "after.safetensors",
            &[("positions", "\"sines\""), ("embed_scale", "\"sqrt_d\"")],
        ),
        (
            "twin.safetensors",
            &[
                ("block", "\"parallel\""),
                ("rope_interleaved", "true"),
                ("d_rotary", "4"),
            ],
        ),
        ("slope.safetensors", &[("positions", "\"alibi\"")]),
        (
            "braid.safetensors",
            &[
                ("block", "\"parallel\""),
                ("positions", "\"rotary\""),
                ("n_heads", "4"),
            ],
        ),
        (
            "pair.safetensors",
            &[("n_kv_heads", "2"), ("rope_interleaved", "true")],
        ),
        (
            "bare.safetensors",
            &[
                ("positions", "\"none\""),
                ("norm_adds_one", "true"),
                ("activation", "\"relu2\""),
            ],
        ),
    ];
    let mut wrong = Vec::new();
    for (file, loss) in expected.iter().filter(|(file, _)| is_chosen(file)) {
        let guess = guessed(file);
        assert!(
            guess.is_understood(),
            "{file}: {} of {}",
            guess.loss,
            guess.unigram_loss
        );
        assert!(guess.is_decided(), "{file}: {:?}", guess.open);
        let of_file = settings.iter().find(|(own, _)| own == file);
        let differs = of_file.into_iter().flat_map(|(_, all)| all.iter());
        let mut differs = differs.filter(|(key, expected)| value(&guess, key) != Some(*expected));
        let is_near = (guess.loss - loss).abs() <= TOLERANCE;
        if let (Some((key, expected)), true) = (differs.next(), is_near) {
            panic!(
                "{file}: {key} is {:?}, expected {expected}",
                value(&guess, key)
            );
        }
        if !is_near {
            wrong.push(format!("{file}: {:.4}, trained to {loss:.4}", guess.loss));
        }
        assert_eq!(
            guess.kind == Kind::Encoder,
            ENCODERS.contains(&file.as_str()),
            "{file}"
        );
        // Each line has its evidence, and the table of tokens is always among them.
        assert!(
            value(&guess, "tokens").is_some()
                && guess.lines.iter().all(|line| !line.evidence.is_empty())
        );
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn what_guess_writes_opens_the_weights_and_says_that_it_is_a_guess() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    // A table of another name than the usual ones is not found by itself.
    for (name, to) in [
        ("mini.pt", "mini.pt"),
        ("chars.json", "letters.json"),
        ("text.jsonl", "text.jsonl"),
    ] {
        std::fs::copy(fixtures().join(name), at(to)).expect("copied");
    }
    let texts = at("text.jsonl").display().to_string();
    let (chars, toml) = (
        at("letters.json").display().to_string(),
        at("attnscope.toml").display().to_string(),
    );
    let weights = at("mini.pt").display().to_string();
    // Without text there is nothing to rank candidates by, and ids are not guessed.
    let refused = attnscope(&["guess", &weights]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--text"));
    let refused = attnscope(&["guess", &weights, "--text", "the old clock"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("--tokenizer") && said.contains("bytes"),
        "{said}"
    );
    let made = attnscope(&[
        "guess",
        &weights,
        "--inputs",
        &texts,
        "--tokenizer",
        &chars,
        "--output",
        &toml,
        "--kind",
        "decoder",
    ]);
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let written = std::fs::read_to_string(&toml).expect("the file");
    assert!(
        written.contains("tokenizer = \"letters.json\"") && written.contains("nats ahead of"),
        "{written}"
    );
    // The file is not replaced without a word.
    let again = attnscope(&[
        "guess",
        &weights,
        "--inputs",
        &texts,
        "--tokenizer",
        &chars,
        "--output",
        &toml,
    ]);
    assert_eq!(again.status.code(), Some(2));
    let report = attnscope(&["report", &weights, "--inputs", &texts, "--format", "json"]);
    let said = String::from_utf8_lossy(&report.stderr).into_owned();
    assert!(said.contains("is a guess (loss 0.78"), "{said}");
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let losses: Vec<f64> = report["prompts"]
        .as_array()
        .expect("prompts")
        .iter()
        .filter_map(|prompt| prompt["loss"].as_f64())
        .collect();
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    assert!((mean - 0.78636).abs() < TOLERANCE, "{mean}");
    assert_eq!(report["model"]["family"], "described");
}

/// One has no output projection, which no candidate has; the other was trained for so short a time that activations are alike.
#[test]
fn what_the_texts_do_not_decide_is_not_decided() {
    let far = guessed("unprojected.safetensors");
    assert!(
        !far.is_near() && !far.is_decided(),
        "{} of {}",
        far.loss,
        far.most_loss()
    );
    assert!(!far.open.is_empty());
    let early = guessed("early.safetensors");
    assert!(early.is_near() && !early.is_decided(), "{:?}", early.open);
    let (_, rival) = early
        .open
        .iter()
        .find(|(question, _)| *question == "activation")
        .expect("the activation is open");
    assert!(rival.ahead.low < 0.0 && rival.ahead.high > 0.0 && rival.ahead.n_more > 1);
}

#[test]
fn a_guess_that_is_not_decided_exits_with_one_names_both_answers_and_writes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let toml = directory.path().join("attnscope.toml");
    let path = |name: &str| fixtures().join(name).display().to_string();
    let (weights, texts, chars) = (
        path("early.safetensors"),
        path("text.jsonl"),
        path("chars.json"),
    );
    let to = toml.display().to_string();
    let mut args = vec![
        "guess",
        &weights,
        "--inputs",
        &texts,
        "--tokenizer",
        &chars,
        "--kind",
        "decoder",
    ];
    args.extend(["--output", &to]);
    let said = attnscope(&args);
    assert_eq!(said.status.code(), Some(1));
    let told = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        told.contains("not decided: activation: \"")
            && told.contains("more tokens of such text would decide"),
        "{told}"
    );
    assert!(
        told.contains("nothing was written") && !toml.exists(),
        "{told}"
    );
    args.push("--force");
    assert_eq!(attnscope(&args).status.code(), Some(1));
    let written = std::fs::read_to_string(&toml).expect("the file");
    assert!(written.contains("# NOT DECIDED: activation"), "{written}");
}

#[test]
fn text_of_another_kind_decides_nothing() {
    let mut sequences = sequences("lamb.safetensors");
    sequences.iter_mut().for_each(|ids| ids.reverse());
    let checkpoint = Checkpoint::open(&fixtures().join("lamb.safetensors")).expect("opens");
    let given = Given {
        sequences,
        kind: Some(Kind::Decoder),
        ..Given::default()
    };
    let guess = guess(&Cpu, checkpoint, &given, &mut |_, _| {}, &|| false).expect("guesses");
    assert!(
        !guess.is_decided() && !guess.is_near(),
        "{} of {}",
        guess.loss,
        guess.most_loss()
    );
}
