//! Pairs whose alignment the grammar knows, and the error rate of another one.

use std::path::Path;

use serde_json::Value;

/// A pair of phrases; for each word of the target the places of its words in the source.
pub struct Pair {
    pub source: String,
    pub target: String,
    pub links: Vec<Vec<usize>>,
}

pub fn fixture_json(path: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(path);
    let text = std::fs::read_to_string(path).expect("a fixture");
    serde_json::from_str(&text).expect("JSON")
}

pub fn gold_pairs() -> Vec<Pair> {
    let pairs = fixture_json("seq2seq/gold.json");
    let pair = |pair: &Value| {
        let text = |side: &str| pair[side].as_str().expect("a text").to_owned();
        Pair {
            source: text("source"),
            target: text("target"),
            links: serde_json::from_value(pair["alignment"].clone()).expect("places"),
        }
    };
    pairs.as_array().expect("pairs").iter().map(pair).collect()
}

/// Counts of an alignment against the gold, every link of which is sure.
#[derive(Default)]
pub struct Alignments {
    n_right: usize,
    n_found: usize,
    n_gold: usize,
}

impl Alignments {
    /// A word of the target was aligned with a place of the source.
    pub fn add(&mut self, place: usize, gold: &[usize]) {
        self.n_found += 1;
        self.n_gold += gold.len();
        self.n_right += usize::from(gold.contains(&place));
    }

    /// Och and Ney 2003: 1 − 2|A ∩ S|/(|A| + |S|).
    pub fn error_rate(&self) -> f64 {
        1.0 - 2.0 * self.n_right as f64 / (self.n_found + self.n_gold) as f64
    }
}
