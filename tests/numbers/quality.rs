//! BLEU against sacreBLEU, alignment errors against the trainer's, and a translator without attention on long sentences.

use attnscope_studies::quality::{BleuCounts, tokenise_13a};
use serde_json::Value;

fn judged() -> Value {
    let path = testing::root().join("fixtures/quality/bleu.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the file")).expect("JSON")
}

fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().expect("texts").iter();
    all.map(|text| text.as_str().expect("a text").to_owned())
        .collect()
}

#[test]
fn the_tokenisation_is_sacrebleus() {
    for pair in judged()["tokenised"].as_array().expect("pairs") {
        let pair = texts(pair);
        assert_eq!(tokenise_13a(&pair[0]), pair[1], "{:?}", pair[0]);
    }
}

#[test]
fn scores_of_corpora_and_of_sentences_are_sacrebleus() {
    for corpus in judged()["corpora"].as_array().expect("corpora") {
        let mut all = BleuCounts::default();
        let sentences = corpus["sentences"].as_array().expect("scores");
        for (pair, expected) in corpus["pairs"]
            .as_array()
            .expect("pairs")
            .iter()
            .zip(sentences)
        {
            let hypothesis = pair[0].as_str().expect("a text");
            let counts = BleuCounts::of(hypothesis, &texts(&pair[1]));
            let (found, expected) = (counts.bleu(true).score, expected.as_f64().expect("a score"));
            assert!(
                (found - expected).abs() < 1e-9,
                "{pair}: {found} {expected}"
            );
            all += counts;
        }
        let found = all.bleu(false);
        let number = |key: &str| corpus[key].as_f64().expect("a number");
        assert!(
            (found.score - number("score")).abs() < 1e-9,
            "{found:?} {}",
            corpus["score"]
        );
        let lengths = [found.hypothesis_len, found.reference_len];
        assert_eq!(serde_json::json!(lengths), corpus["lengths"]);
        if found.score > 0.0 {
            assert!((found.brevity_penalty - number("brevity_penalty")).abs() < 1e-12);
        }
    }
}
