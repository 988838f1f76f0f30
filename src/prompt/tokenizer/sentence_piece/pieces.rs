//! The vocabulary of a SentencePiece model, for both ways of splitting.

use super::proto::{Kind, Piece};

/// Pieces by id, and sorted by bytes to look up every piece that is a prefix of a text.
#[derive(Debug, Clone)]
pub struct Pieces {
    pub list: Vec<Piece>,
    /// Ids of the pieces that can occur in a text, sorted by their bytes.
    sorted: Vec<u32>,
    pub unknown: u32,
    /// Ids of the 256 bytes, if unknown characters are encoded byte by byte.
    bytes: Option<Vec<u32>>,
    longest_symbol: usize,
}

impl Pieces {
    /// # Errors
    /// When a piece is empty or repeated, a score is not a number, or there is not exactly one unknown piece.
    pub fn new(list: Vec<Piece>, byte_fallback: bool) -> Result<Self, String> {
        let mut unknown = Vec::new();
        let mut all: Vec<u32> = (0..list.len() as u32).collect();
        for (idx, piece) in list.iter().enumerate() {
            if piece.text.is_empty() {
                return Err(format!("piece {idx} is empty"));
            }
            if !piece.score.is_finite() {
                let score = piece.score;
                return Err(format!("piece {idx}: expected a score, found {score}"));
            }
            if piece.kind == Kind::Unknown {
                unknown.push(idx as u32);
            }
        }
        let [unknown] = unknown[..] else {
            let n = unknown.len();
            return Err(format!("expected one piece of the type unknown, found {n}"));
        };
        let text = |id: &u32| list[*id as usize].text.as_bytes();
        all.sort_by(|a, b| text(a).cmp(text(b)));
        if let Some(pair) = all.windows(2).find(|pair| text(&pair[0]) == text(&pair[1])) {
            let (first, second) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
            let what = &list[first as usize].text;
            return Err(format!("pieces {first} and {second} are both {what:?}"));
        }
        let bytes = byte_fallback.then(|| byte_ids(&list)).transpose()?;
        let in_text = |id: &u32| {
            let kind = list[*id as usize].kind;
            matches!(kind, Kind::Normal | Kind::UserDefined | Kind::Unused)
        };
        all.retain(in_text);
        let symbols = list.iter().filter(|piece| piece.kind == Kind::UserDefined);
        let longest_symbol = symbols.map(|piece| piece.text.len()).max().unwrap_or(0);
        Ok(Self {
            sorted: all,
            unknown,
            bytes,
            longest_symbol,
            list,
        })
    }

    /// The piece with this text.
    pub fn find(&self, text: &str) -> Option<u32> {
        let order = |id: &u32| self.list[*id as usize].text.as_bytes().cmp(text.as_bytes());
        let idx = self.sorted.binary_search_by(order).ok()?;
        Some(self.sorted[idx])
    }

    /// Every piece that is a prefix of `text`, shortest first.
    pub fn prefixes(&self, text: &str) -> Vec<u32> {
        let mut found = Vec::new();
        let mut range = &self.sorted[..];
        for (depth, byte) in text.bytes().enumerate() {
            let at = |id: &u32| self.list[*id as usize].text.as_bytes().get(depth).copied();
            let first = range.partition_point(|id| at(id) < Some(byte));
            let end = range.partition_point(|id| at(id) <= Some(byte));
            range = &range[first..end];
            let Some(shortest) = range.first() else {
                break;
            };
            if self.list[*shortest as usize].text.len() == depth + 1 {
                found.push(*shortest);
            }
        }
        found
    }

    /// Length in bytes of the longest user-defined symbol at the start of `text`; such symbols are never split or changed.
    pub fn symbol(&self, text: &str) -> Option<usize> {
        if self.longest_symbol == 0 {
            return None;
        }
        let is_symbol = |id: &u32| self.list[*id as usize].kind == Kind::UserDefined;
        let longest = self.prefixes(text).into_iter().rfind(is_symbol)?;
        Some(self.list[longest as usize].text.len())
    }

    /// The ids of a found piece or, for a text without one, of its bytes or the unknown token.
    pub fn ids(&self, piece: Option<u32>, text: &str) -> Vec<u32> {
        match (piece, &self.bytes) {
            (Some(id), _) => vec![id],
            (None, Some(bytes)) => text.bytes().map(|byte| bytes[usize::from(byte)]).collect(),
            (None, None) => vec![self.unknown],
        }
    }
}

/// Ids of `<0x00>` to `<0xFF>`.
fn byte_ids(list: &[Piece]) -> Result<Vec<u32>, String> {
    let mut ids = vec![None; 256];
    for (idx, piece) in list.iter().enumerate() {
        if piece.kind != Kind::Byte {
            continue;
        }
        let digits = piece
            .text
            .strip_prefix("<0x")
            .and_then(|t| t.strip_suffix('>'));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let Some(byte) = byte else {
            let text = &piece.text;
            return Err(format!(
                "piece {idx}: expected a byte as <0x41>, found {text:?}"
            ));
        };
        ids[usize::from(byte)] = Some(idx as u32);
    }
    let n_found = ids.iter().flatten().count();
    let whole: Option<Vec<u32>> = ids.into_iter().collect();
    whole.ok_or_else(|| format!("expected a piece for each of 256 bytes, found {n_found}"))
}
