//! Texts for judging candidates: ids cut into pieces that fit, with the next or the masked tokens to predict.

use attnscope_run::readings::Text;

/// Tokens that a model must predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The next token.
    Next,
    /// Tokens that were replaced by this mask token.
    Masked(u32),
}

/// One in this many tokens is masked at a time.
const HIDDEN: usize = 7;

/// Splits texts into pieces of at most `n_piece` tokens, about `n_all` tokens in total.
pub fn pieces(sequences: &[Vec<u32>], told: Told, n_piece: usize, n_all: usize) -> Vec<Text> {
    let mut texts = Vec::new();
    let mut n = 0;
    let chunks = sequences
        .iter()
        .flat_map(|sequence| sequence.chunks(n_piece.max(2)));
    for chunk in chunks {
        let tokens = &chunk[..chunk.len().min(n_all.saturating_sub(n))];
        n += tokens.len();
        if tokens.len() < 2 {
            continue;
        }
        match told {
            Told::Next => {
                let wanted: Vec<usize> = (0..tokens.len() - 1).collect();
                texts.push(Text::of(tokens.to_vec(), wanted, tokens[1..].to_vec()));
            }
            Told::Masked(mask) => {
                for nth in 0..HIDDEN {
                    // Leave out the first and last token, which the tokenizer adds.
                    let inner = 1..tokens.len().saturating_sub(1);
                    let wanted: Vec<usize> = inner.filter(|idx| idx % HIDDEN == nth).collect();
                    if wanted.is_empty() {
                        continue;
                    }
                    let labels = wanted.iter().map(|idx| tokens[*idx]).collect();
                    let mut tokens = tokens.to_vec();
                    wanted.iter().for_each(|idx| tokens[*idx] = mask);
                    texts.push(Text::of(tokens, wanted, labels));
                }
            }
        }
    }
    texts
}
