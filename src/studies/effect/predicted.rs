//! Compares predictions of changed runs with those of the run, where other code computed the logits.

use attnscope_forward::Sequence;

use super::judged::{Asked, Moved, moved_of, wanted_of};
use super::logit_rows::{Reference, Wanted};

/// Logits of the unchanged run at its real positions, with which those of changed runs are compared.
pub struct Predicted {
    real: Vec<usize>,
    wanted: Wanted,
    reference: Reference,
    d_vocab: usize,
    asked: Option<Asked>,
}

impl Predicted {
    /// Takes the logits of the run; those of the next token are losses if `is_causal`. The tokens of the sequence, the asked
    /// position and its tokens are within the logits. // logits: [position, d_vocab]
    pub fn of(
        (logits, d_vocab): (&[f32], usize),
        sequence: &Sequence,
        is_causal: bool,
        asked: Option<Asked>,
    ) -> Self {
        let next = |idx: usize| {
            let token = sequence.tokens.get(idx + 1).copied();
            token.filter(|token| (*token as usize) < d_vocab)
        };
        let targets = (0..sequence.len()).map(|idx| next(idx).filter(|_| is_causal));
        let targets: Vec<Option<u32>> = targets.collect();
        let (real, wanted) = wanted_of(sequence, &targets);
        let rows = rows_at(logits, d_vocab, &real);
        Self {
            reference: Reference::of_logits(rows, d_vocab, &wanted),
            real,
            wanted,
            d_vocab,
            asked,
        }
    }

    /// Compares the logits of a changed run with those of the run; they have as many values. // logits: [position, d_vocab]
    pub fn moved(&self, logits: &[f32]) -> Moved {
        let rows = rows_at(logits, self.d_vocab, &self.real);
        let rows = self.reference.compared(&rows, &self.wanted);
        Moved {
            logit: self.asked.and_then(|asked| self.asked_logit(logits, asked)),
            ..moved_of(&self.wanted, &self.reference.rows, &rows)
        }
    }

    /// Change of the requested logit; `None` at a position that is padding.
    fn asked_logit(&self, logits: &[f32], asked: Asked) -> Option<f64> {
        let at = self
            .real
            .iter()
            .position(|idx| *idx == asked.position_idx)?;
        let change = |token: u32| {
            let changed = logits[asked.position_idx * self.d_vocab + token as usize];
            f64::from(changed) - f64::from(self.reference.logit(at, token))
        };
        Some(change(asked.token) - asked.against.map_or(0.0, change))
    }
}

/// Rows of logits at some positions. // [position of `at`, d_vocab]
fn rows_at(logits: &[f32], d_vocab: usize, at: &[usize]) -> Vec<f32> {
    let rows = at
        .iter()
        .map(|idx| &logits[idx * d_vocab..(idx + 1) * d_vocab]);
    rows.collect::<Vec<&[f32]>>().concat()
}
