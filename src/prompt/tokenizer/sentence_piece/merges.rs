//! Splitting by byte-pair merges: among neighbours that join to a piece, the best score goes first, then the leftmost.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;

use super::pieces::Pieces;
use super::proto::Kind;

/// A stretch of the text that is one piece so far; empty once it has been joined to its left neighbour.
struct Symbol {
    range: Range<usize>,
    left: Option<usize>,
    right: Option<usize>,
    /// Whether it is a user-defined symbol, which is never joined.
    is_fixed: bool,
}

/// A possible join of two neighbours.
struct Join {
    score: f32,
    left: usize,
    right: usize,
    n_bytes: usize,
}

impl Ord for Join {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self
            .score
            .partial_cmp(&other.score)
            .unwrap_or(Ordering::Equal);
        by_score.then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Join {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Join {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Join {}

/// State of splitting one text.
struct Cutting<'p, 'a> {
    pieces: &'p Pieces,
    text: &'a str,
    symbols: Vec<Symbol>,
    agenda: BinaryHeap<Join>,
    /// The two parts of each joined piece that must not be output.
    parts: HashMap<&'a str, (Range<usize>, Range<usize>)>,
}

/// Splits a normalised text into pieces, in order, each with its stretch; `None` for an unknown character.
pub fn cut<'a>(pieces: &Pieces, text: &'a str) -> Vec<(Option<u32>, &'a str)> {
    let mut cutting = Cutting {
        pieces,
        text,
        symbols: symbols(pieces, text),
        agenda: BinaryHeap::new(),
        parts: HashMap::new(),
    };
    for idx in 1..cutting.symbols.len() {
        cutting.offer(Some(idx - 1), Some(idx));
    }
    cutting.join_all();
    let mut path = Vec::new();
    for symbol in &cutting.symbols {
        if !symbol.range.is_empty() {
            cutting.write(symbol.range.clone(), &mut path);
        }
    }
    path
}

fn symbols(pieces: &Pieces, text: &str) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = Vec::new();
    let mut at = 0;
    while let Some(character) = text[at..].chars().next() {
        let fixed = pieces.symbol(&text[at..]);
        let end = at + fixed.unwrap_or(character.len_utf8());
        let idx = symbols.len();
        symbols.push(Symbol {
            range: at..end,
            left: idx.checked_sub(1),
            right: (end < text.len()).then_some(idx + 1),
            is_fixed: fixed.is_some(),
        });
        at = end;
    }
    symbols
}

impl<'a> Cutting<'_, 'a> {
    fn offer(&mut self, left: Option<usize>, right: Option<usize>) {
        let (Some(left), Some(right)) = (left, right) else {
            return;
        };
        let (a, b) = (&self.symbols[left], &self.symbols[right]);
        if a.is_fixed || b.is_fixed {
            return;
        }
        let whole = &self.text[a.range.start..b.range.end];
        let Some(id) = self.pieces.find(whole) else {
            return;
        };
        let piece = &self.pieces.list[id as usize];
        self.agenda.push(Join {
            score: piece.score,
            left,
            right,
            n_bytes: whole.len(),
        });
        if piece.kind == Kind::Unused {
            let parts = (a.range.clone(), b.range.clone());
            self.parts.insert(whole, parts);
        }
    }

    fn join_all(&mut self) {
        while let Some(join) = self.agenda.pop() {
            let (left, right) = (&self.symbols[join.left], &self.symbols[join.right]);
            let is_stale = left.range.is_empty()
                || right.range.is_empty()
                || left.range.len() + right.range.len() != join.n_bytes;
            if is_stale {
                continue;
            }
            let (end, next) = (right.range.end, right.right);
            self.symbols[join.left].range.end = end;
            self.symbols[join.left].right = next;
            self.symbols[join.right].range = end..end;
            if let Some(next) = next {
                self.symbols[next].left = Some(join.left);
            }
            self.offer(self.symbols[join.left].left, Some(join.left));
            self.offer(Some(join.left), next);
        }
    }

    /// Outputs a piece, or its parts if it must not be output.
    fn write(&self, range: Range<usize>, path: &mut Vec<(Option<u32>, &'a str)>) {
        let mut waiting = vec![range];
        while let Some(range) = waiting.pop() {
            let text = &self.text[range];
            let id = self.pieces.find(text);
            let is_unused = id.is_some_and(|id| self.pieces.list[id as usize].kind == Kind::Unused);
            match self.parts.get(text).filter(|_| is_unused) {
                Some((left, right)) => waiting.extend([right.clone(), left.clone()]),
                None => path.push((id, text)),
            }
        }
    }
}
