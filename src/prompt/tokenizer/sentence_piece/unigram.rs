//! Splitting by a unigram language model: the path of pieces with the highest total score.

use super::pieces::Pieces;
use super::proto::Kind;

/// The score of an unknown character is this much below the worst piece.
const UNKNOWN_PENALTY: f32 = 10.0;

/// The best path that ends at a byte.
#[derive(Clone, Copy, Default)]
struct Node {
    piece: Option<u32>,
    score: f32,
    /// Start of its last piece; `None` if no path ends here.
    start: Option<usize>,
}

/// Splits a normalised text into pieces, in order, each with its stretch; `None` for an unknown character.
pub fn cut<'a>(pieces: &Pieces, text: &'a str) -> Vec<(Option<u32>, &'a str)> {
    let normal = || {
        let only = |p: &&super::proto::Piece| p.kind == Kind::Normal;
        pieces.list.iter().filter(only).map(|p| p.score)
    };
    let lowest = normal().fold(f32::MAX, f32::min);
    let highest = normal().fold(f32::MIN, f32::max);
    let mut ends = vec![Node::default(); text.len() + 1];
    for (at, character) in text.char_indices() {
        let so_far = ends[at].score;
        let width = character.len_utf8();
        let mut is_known = false;
        for id in pieces.prefixes(&text[at..]) {
            let piece = &pieces.list[id as usize];
            if piece.kind == Kind::Unused {
                continue;
            }
            let length = piece.text.len();
            let score = match piece.kind {
                // High enough to be chosen wherever it occurs.
                Kind::UserDefined => length as f64 * f64::from(highest) - 0.1,
                _ => f64::from(piece.score),
            };
            reach(
                &mut ends[at + length],
                score + f64::from(so_far),
                at,
                Some(id),
            );
            is_known |= length == width;
        }
        if !is_known {
            let score = lowest - UNKNOWN_PENALTY + so_far;
            reach(&mut ends[at + width], f64::from(score), at, None);
        }
    }
    let mut path = Vec::new();
    let mut end = text.len();
    while let Some(start) = ends[end].start {
        path.push((ends[end].piece, &text[start..end]));
        end = start;
    }
    path.reverse();
    path
}

/// Keeps the better of two paths to a byte; the first if they are equal.
fn reach(node: &mut Node, score: f64, start: usize, piece: Option<u32>) {
    if node.start.is_none() || score > f64::from(node.score) {
        *node = Node {
            piece,
            score: score as f32,
            start: Some(start),
        };
    }
}
