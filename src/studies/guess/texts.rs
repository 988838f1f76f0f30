//! What candidates are judged on: ids cut into pieces that fit, with the next or the hidden tokens to tell.

use attnscope_run::readings::Text;

/// What a model is to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The next token.
    Next,
    /// Tokens that were replaced by this one.
    Masked(u32),
}

/// One token in so many is hidden at a time.
const HIDDEN: usize = 7;

/// Pieces of at most `n_piece` tokens, about `n_all` tokens in all.
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
                    // The first and the last token are what is put around a text.
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
