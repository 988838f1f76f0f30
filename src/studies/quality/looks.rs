//! Word alignment from attention: links each target word to the source word that each head attends to while writing it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use attnscope_compute::attention::BlockSink;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input};
use attnscope_run::{Layers, Options, Tap, run};
use attnscope_spec::{Model, Place, Stack};

use super::alignment::Link;

/// Word index of each token; `None` for special tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WordMap(pub Vec<Option<usize>>);

impl WordMap {
    /// Builds the map from a text, whose words are separated by white space, and each token's byte range in it. A token that
    /// begins with the white space before a word belongs to that word.
    pub fn of(text: &str, tokens: &[Range<usize>]) -> Self {
        let mut words: Vec<Range<usize>> = Vec::new();
        for (at, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
            let end = at + c.len_utf8();
            match words.last_mut() {
                Some(last) if last.end == at => last.end = end,
                _ => words.push(at..end),
            }
        }
        let word_of = |token: &Range<usize>| {
            let meets = |word: &Range<usize>| word.start < token.end && token.start < word.end;
            words.iter().position(meets)
        };
        Self(tokens.iter().map(word_of).collect())
    }

    /// Number of words.
    pub fn n_words(&self) -> usize {
        self.0.iter().flatten().max().map_or(0, |last| last + 1)
    }
}

/// Links of each head, and of each layer's heads combined.
pub type Links = Vec<(Place, BTreeSet<Link>)>;

/// One matrix per head. // [query, key]
type Matrices = BTreeMap<(usize, usize), Vec<f32>>;

struct Collect {
    n_keys: usize,
    at: Mutex<usize>,
    held: Mutex<Matrices>,
}

impl BlockSink for Collect {
    fn block(&self, head_idx: usize, first_query: usize, _: &[f32], pattern: &[f32]) {
        let layer_idx = *self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = held.entry((layer_idx, head_idx)).or_default();
        let at = first_query * self.n_keys;
        if rows.len() < at + pattern.len() {
            rows.resize(at + pattern.len(), 0.0);
        }
        rows[at..at + pattern.len()].copy_from_slice(pattern);
    }
}

impl Tap for Collect {
    fn wants(&self, _: Stack, _: usize, _: Hook) -> bool {
        false
    }

    fn values(&mut self, _: Stack, _: usize, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    fn blocks(&self, stack: Stack, layer_idx: usize) -> Option<&dyn BlockSink> {
        if stack != Stack::Cross {
            return None;
        }
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = layer_idx;
        Some(self)
    }
}

/// Runs a source with a given target, and links each target word to the source word with the largest weight in the steps that
/// write it. A word whose largest weight is on a special token is not linked.
///
/// # Errors
/// When the model cannot run.
pub fn links<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    (source, target): (&WordMap, &WordMap),
    pace: &dyn Pace,
) -> Result<Links> {
    let encoded = input.encoded(&model.spec);
    let n_keys = encoded.map_or(0, |encoded| encoded.len());
    let mut collect = Collect {
        n_keys,
        at: Mutex::new(0),
        held: Mutex::new(BTreeMap::new()),
    };
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    run(
        ops,
        model,
        input,
        options,
        &mut Layers::default(),
        Some(&mut collect),
        pace,
    )?;
    let n_keys = collect.n_keys;
    let held = collect
        .held
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let mut found = Vec::new();
    let mut layer: Option<(usize, Vec<f32>)> = None;
    for ((layer_idx, head_idx), pattern) in held {
        let place = Place::layer(Stack::Cross, layer_idx);
        found.push((
            place.head(head_idx),
            linked(&pattern, n_keys, source, target),
        ));
        match &mut layer {
            Some((of, sum)) if *of == layer_idx => {
                sum.iter_mut().zip(&pattern).for_each(|(sum, p)| *sum += p);
            }
            _ => {
                if let Some((of, sum)) = layer.replace((layer_idx, pattern)) {
                    let place = Place::layer(Stack::Cross, of);
                    found.push((place, linked(&sum, n_keys, source, target)));
                }
            }
        }
    }
    if let Some((of, sum)) = layer {
        let place = Place::layer(Stack::Cross, of);
        found.push((place, linked(&sum, n_keys, source, target)));
    }
    Ok(found)
}

/// Links that a matrix gives. The row before a token is the step that writes the token. // pattern: [query, key]
fn linked(pattern: &[f32], n_keys: usize, source: &WordMap, target: &WordMap) -> BTreeSet<Link> {
    let mut sums = vec![vec![0.0f64; n_keys]; target.n_words()];
    for (row, word) in pattern.chunks(n_keys.max(1)).zip(target.0.iter().skip(1)) {
        if let Some(word) = word {
            let pairs = sums[*word].iter_mut().zip(row);
            pairs.for_each(|(sum, p)| *sum += f64::from(*p));
        }
    }
    let mut links = BTreeSet::new();
    for (word, sums) in sums.iter().enumerate() {
        // The tokens of a word are summed; special tokens are compared one by one.
        let mut of_words = vec![0.0; source.n_words()];
        let mut largest_mark = 0.0f64;
        for (sum, of) in sums.iter().zip(&source.0) {
            match of {
                Some(of) => of_words[*of] += sum,
                None => largest_mark = largest_mark.max(*sum),
            }
        }
        let best = of_words.iter().enumerate();
        let best = best.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        if let Some((best, _)) = best.filter(|(_, sum)| **sum > largest_mark) {
            links.insert((best, word));
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_belong_to_the_words_that_they_are_part_of() {
        // "ab cde", cut as ▁ab, ▁c, de, and a mark.
        let map = WordMap::of("ab cde", &[0..2, 2..4, 4..6, 6..6]);
        assert_eq!(map.0, [Some(0), Some(1), Some(1), None]);
        assert_eq!(map.n_words(), 2);
    }

    #[test]
    fn tokens_of_a_word_are_summed_and_special_tokens_are_not_words() {
        let source = WordMap(vec![Some(0), Some(0), Some(1), None]);
        // The start token, a word of two tokens, a word of one.
        let target = WordMap(vec![None, Some(0), Some(0), Some(1), None]);
        let pattern = [
            0.3, 0.3, 0.4, 0.0, // writes the first token: word 0, summed over its two tokens
            0.3, 0.2, 0.5, 0.0, // writes the second token of word 0
            0.1, 0.1, 0.2, 0.6, // writes word 1: largest on a special token
            0.0, 0.0, 1.0, 0.0, // writes the end token
        ];
        assert_eq!(
            linked(&pattern, 4, &source, &target),
            BTreeSet::from([(0, 0)])
        );
    }
}
