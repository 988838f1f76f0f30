//! SentencePiece: normalises text with the model's own table, then splits it into pieces exactly as the reference does.

mod charsmap;
mod family;
mod listing;
mod marks;
mod merges;
mod pieces;
mod proto;
mod unigram;

use std::ops::Range;

use super::Token;
pub use charsmap::Charsmap;
pub use family::open;
pub use listing::Listing;
pub use marks::{Mark, Marks};
use pieces::Pieces;
pub use proto::{Kind, Piece};

/// How a normalised text is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Unigram,
    Merges,
}

/// The parts of a model.
#[derive(Debug)]
pub struct Parts<'a> {
    pub pieces: Vec<Piece>,
    pub algorithm: Algorithm,
    pub byte_fallback: bool,
    pub charsmap: &'a [u8],
    /// Whether a blank is added before the text.
    pub dummy_prefix: bool,
    /// Whether blanks at both ends are dropped, and repeated blanks merged.
    pub collapse_blanks: bool,
}

/// A model that splits text.
#[derive(Debug)]
pub struct Model {
    pieces: Pieces,
    algorithm: Algorithm,
    charsmap: Charsmap,
    dummy_prefix: bool,
    collapse_blanks: bool,
}

/// The character for a blank inside pieces.
const BLANK: char = '▁';

impl Model {
    /// # Errors
    /// When the parts do not make a model; says which part.
    pub fn new(parts: Parts<'_>) -> Result<Self, String> {
        Ok(Self {
            pieces: Pieces::new(parts.pieces, parts.byte_fallback)?,
            algorithm: parts.algorithm,
            charsmap: Charsmap::parse(parts.charsmap)?,
            dummy_prefix: parts.dummy_prefix,
            collapse_blanks: parts.collapse_blanks,
        })
    }

    pub fn list(&self) -> &[Piece] {
        &self.pieces.list
    }

    /// The id of a piece of any kind.
    pub fn id_of(&self, text: &str) -> Option<u32> {
        let idx = self.list().iter().position(|piece| piece.text == text)?;
        Some(idx as u32)
    }

    pub fn unknown(&self) -> u32 {
        self.pieces.unknown
    }

    /// Ids of a stretch of text, each with the bytes that it covers; `begins` says whether to add the blank before the text.
    pub fn encode(&self, text: &str, begins: bool) -> Vec<(u32, Range<usize>)> {
        let normal = self.normalise(text, begins);
        let mut found: Vec<(u32, Range<usize>)> = Vec::new();
        let (unknown, mut at) = (self.unknown(), 0);
        for (piece, text) in self.cut(&normal.text) {
            let range = normal.origin(at..at + text.len());
            at += text.len();
            let ids = self.pieces.ids(piece, text);
            match found.last_mut() {
                // Consecutive unknown characters become one token.
                Some((last, whole)) if *last == unknown && ids == [unknown] => {
                    whole.end = range.end
                }
                _ => found.extend(ids.into_iter().map(|id| (id, range.clone()))),
            }
        }
        found
    }

    /// The texts of the pieces, each with the bytes that it covers; consecutive unknown characters form one text.
    pub fn split(&self, text: &str) -> Vec<(String, Range<usize>)> {
        let normal = self.normalise(text, true);
        let mut texts: Vec<(String, Range<usize>)> = Vec::new();
        let (mut after_unknown, mut at) = (false, 0);
        for (piece, text) in self.cut(&normal.text) {
            let range = normal.origin(at..at + text.len());
            at += text.len();
            match texts.last_mut() {
                Some((last, whole)) if after_unknown && piece.is_none() => {
                    last.push_str(text);
                    whole.end = range.end;
                }
                _ => texts.push((text.to_owned(), range)),
            }
            after_unknown = piece.is_none();
        }
        texts
    }

    fn cut<'a>(&self, text: &'a str) -> Vec<(Option<u32>, &'a str)> {
        match self.algorithm {
            Algorithm::Unigram => unigram::cut(&self.pieces, text),
            Algorithm::Merges => merges::cut(&self.pieces, text),
        }
    }

    /// The replacement of the longest known prefix of `text`, and the number of bytes it replaces.
    fn replaced<'a>(&'a self, text: &'a str) -> (&'a str, usize) {
        if let Some(n) = self.pieces.symbol(text) {
            return (&text[..n], n);
        }
        if let Some(found) = self.charsmap.longest(text) {
            return found;
        }
        let n = text.chars().next().map_or(0, char::len_utf8);
        (&text[..n], n)
    }

    fn normalise(&self, text: &str, begins: bool) -> Normal {
        let mut rest = text;
        if self.collapse_blanks {
            while let (" ", n) = self.replaced(rest) {
                rest = &rest[n..];
            }
        }
        let mut normal = Normal::default();
        if rest.is_empty() {
            return normal;
        }
        let at = |rest: &str| text.len() - rest.len();
        if self.dummy_prefix && begins {
            normal.push(BLANK, at(rest)..at(rest));
        }
        let mut after_blank = self.collapse_blanks;
        while !rest.is_empty() {
            let (mut written, n) = self.replaced(rest);
            if after_blank {
                written = written.trim_start_matches(' ');
            }
            let from = at(rest)..at(rest) + n;
            for character in written.chars() {
                let character = if character == ' ' { BLANK } else { character };
                normal.push(character, from.clone());
            }
            if !written.is_empty() {
                after_blank = self.collapse_blanks && written.ends_with(' ');
            }
            rest = &rest[n..];
        }
        if self.collapse_blanks {
            let n_kept = normal.text.trim_end_matches(BLANK).len();
            normal.text.truncate(n_kept);
        }
        normal
    }
}

/// A normalised text, and the origin of its characters.
#[derive(Debug, Default)]
struct Normal {
    text: String,
    /// For each byte, the stretch of the original text.
    from: Vec<(usize, usize)>,
}

impl Normal {
    fn push(&mut self, character: char, from: Range<usize>) {
        self.text.push(character);
        self.from.resize(self.text.len(), (from.start, from.end));
    }

    /// The stretch of the original text for a stretch of the normalised one.
    fn origin(&self, range: Range<usize>) -> Range<usize> {
        let ends = self
            .from
            .get(range.start)
            .zip(self.from.get(range.end.saturating_sub(1)));
        ends.map_or(0..0, |((start, _), (_, end))| *start..*end)
    }
}

/// A model with the tokens around and inside the text that it does not split itself.
#[derive(Debug)]
pub struct Encoder {
    pub model: Model,
    /// Ids of the vocabulary added before and after a text.
    pub before: Vec<u32>,
    pub after: Vec<u32>,
    /// Tokens matched verbatim in the text.
    pub marks: Marks,
    /// Whether the blank before the text is also added after every mark.
    pub every_stretch_begins: bool,
    /// Whether the end tokens are omitted if the text already ends with them.
    pub ends_once: bool,
    pub numbering: Numbering,
}

/// How piece indices become ids of the vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Numbering {
    Same,
    /// Four special tokens first (begin, padding, end, unknown), then the model's pieces from the fourth on.
    Fairseq,
    /// A list beside the model gives each text its id.
    Listed(Listing),
}

/// The unknown token's id in fairseq's numbering.
const FAIRSEQ_UNKNOWN: u32 = 3;

impl Encoder {
    /// Encodes a text, with the tokens around it on request.
    pub fn encode(&self, text: &str, special_tokens: bool) -> Vec<Token> {
        let around = |ids: &[u32], at: usize| -> Vec<Token> {
            let token = |id: &u32| Token {
                id: *id,
                bytes: at..at,
                is_special: true,
                is_known: true,
            };
            let ids = if special_tokens { ids } else { &[] };
            ids.iter().map(token).collect()
        };
        let mut tokens = around(&self.before, 0);
        let (mut rest, mut begins) = (text, true);
        while let Some((at, mark)) = self.marks.first(rest) {
            let begin = text.len() - rest.len();
            let mut stretch = &rest[..at];
            rest = &rest[at + mark.text.len()..];
            if mark.takes_left {
                stretch = stretch.trim_end();
            }
            if mark.takes_right {
                rest = rest.trim_start();
            }
            self.stretch(stretch, begin, begins, &mut tokens);
            tokens.push(Token {
                id: mark.id,
                bytes: begin + at..begin + at + mark.text.len(),
                is_special: true,
                is_known: true,
            });
            begins = self.every_stretch_begins;
        }
        self.stretch(rest, text.len() - rest.len(), begins, &mut tokens);
        // T5's own tokenizer adds no end token if the text already ends with one.
        let ends =
            self.ends_once && tokens.last().map(|token| token.id) == self.after.first().copied();
        if !ends {
            tokens.extend(around(&self.after, text.len()));
        }
        tokens
    }

    /// Appends the tokens of a stretch between special tokens that begins at byte `at`.
    fn stretch(&self, text: &str, at: usize, begins: bool, tokens: &mut Vec<Token>) {
        let unknown = self.model.unknown();
        let number = |place: u32| match &self.numbering {
            Numbering::Fairseq if place == unknown => FAIRSEQ_UNKNOWN,
            Numbering::Fairseq => place + 1,
            _ => place,
        };
        let token = |id: u32, bytes: Range<usize>, is_known: bool| Token {
            id,
            bytes: at + bytes.start..at + bytes.end,
            is_special: false,
            is_known,
        };
        if let Numbering::Listed(listing) = &self.numbering {
            let cut = listing.encode(&self.model, text).into_iter();
            tokens.extend(cut.map(|(id, bytes)| token(id, bytes, id != listing.unknown())));
            return;
        }
        let cut = self.model.encode(text, begins).into_iter();
        tokens.extend(cut.map(|(id, bytes)| token(number(id), bytes, id != unknown)));
    }

    /// Whether an id is that of a special token.
    pub fn is_special(&self, id: u32) -> bool {
        if self.marks.of_id(id).is_some() {
            return true;
        }
        let place = match &self.numbering {
            Numbering::Listed(_) => return false,
            Numbering::Same => id,
            Numbering::Fairseq => id.saturating_sub(1),
        };
        let piece = self.model.list().get(place as usize);
        piece.is_some_and(|piece| matches!(piece.kind, Kind::Control | Kind::Unknown))
    }

    /// The vocabulary's spelling of an id.
    pub fn text_of(&self, id: u32) -> Option<&str> {
        if let Some(mark) = self.marks.of_id(id) {
            return Some(&mark.text);
        }
        let place = match &self.numbering {
            Numbering::Listed(listing) => return listing.text_of(id),
            Numbering::Same => id,
            Numbering::Fairseq if id == FAIRSEQ_UNKNOWN => self.model.unknown(),
            Numbering::Fairseq => id.checked_sub(1)?,
        };
        let piece = self.model.list().get(place as usize)?;
        Some(&piece.text)
    }
}
