//! SentencePiece: text normalised by the model's own table, then cut into pieces exactly as the reference does.

mod charsmap;
mod family;
mod listing;
mod marks;
mod merges;
mod pieces;
mod proto;
mod unigram;

pub use charsmap::Charsmap;
pub use family::open;
pub use listing::Listing;
pub use marks::{Mark, Marks};
use pieces::Pieces;
pub use proto::{Kind, Piece};

/// How a normalised text is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Unigram,
    Merges,
}

/// Everything that a model is made from.
#[derive(Debug)]
pub struct Parts<'a> {
    pub pieces: Vec<Piece>,
    pub algorithm: Algorithm,
    pub byte_fallback: bool,
    pub charsmap: &'a [u8],
    /// Whether a blank is put before the text.
    pub dummy_prefix: bool,
    /// Whether blanks at both ends are dropped, and others written once.
    pub collapse_blanks: bool,
}

/// A model that cuts text.
#[derive(Debug)]
pub struct Model {
    pieces: Pieces,
    algorithm: Algorithm,
    charsmap: Charsmap,
    dummy_prefix: bool,
    collapse_blanks: bool,
}

/// What a blank is written as inside pieces.
const BLANK: char = '▁';

impl Model {
    /// # Errors
    /// When the parts do not make a model; says which.
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

    /// Ids of a stretch of text; `begins` where the blank before the text belongs.
    pub fn encode(&self, text: &str, begins: bool) -> Vec<u32> {
        let text = self.normalise(text, begins);
        let mut ids = Vec::new();
        for (piece, text) in self.cut(&text) {
            self.pieces.push(&mut ids, piece, text);
        }
        ids
    }

    /// The texts of the pieces; of neighbours that are unknown, one text.
    pub fn split(&self, text: &str) -> Vec<String> {
        let text = self.normalise(text, true);
        let mut texts: Vec<String> = Vec::new();
        let mut after_unknown = false;
        for (piece, text) in self.cut(&text) {
            match texts.last_mut() {
                Some(last) if after_unknown && piece.is_none() => last.push_str(text),
                _ => texts.push(text.to_owned()),
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

    /// What the longest known beginning of `text` becomes, and how many bytes it takes.
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

    fn normalise(&self, text: &str, begins: bool) -> String {
        let mut rest = text;
        if self.collapse_blanks {
            while let (" ", n) = self.replaced(rest) {
                rest = &rest[n..];
            }
        }
        let mut normal = String::with_capacity(text.len() + 3);
        if rest.is_empty() {
            return normal;
        }
        if self.dummy_prefix && begins {
            normal.push(BLANK);
        }
        let mut after_blank = self.collapse_blanks;
        while !rest.is_empty() {
            let (mut written, n) = self.replaced(rest);
            if after_blank {
                written = written.trim_start_matches(' ');
            }
            for character in written.chars() {
                normal.push(if character == ' ' { BLANK } else { character });
            }
            if !written.is_empty() {
                after_blank = self.collapse_blanks && written.ends_with(' ');
            }
            rest = &rest[n..];
        }
        if self.collapse_blanks {
            normal.truncate(normal.trim_end_matches(BLANK).len());
        }
        normal
    }
}

/// A model with the tokens around and inside the text that it does not cut itself.
#[derive(Debug)]
pub struct Encoder {
    pub model: Model,
    /// What is written before and after a text, as ids of the vocabulary.
    pub before: Vec<u32>,
    pub after: Vec<u32>,
    /// Tokens matched in the text as they stand.
    pub marks: Marks,
    /// Whether the blank before the text stands after every mark too.
    pub every_stretch_begins: bool,
    pub numbering: Numbering,
}

/// How ids of the vocabulary follow from places in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Numbering {
    Same,
    /// Four special tokens first (begin, padding, end, unknown), then the model's pieces from the fourth on.
    Fairseq,
    /// A list beside the model gives every text its id.
    Listed(Listing),
}

/// The unknown token's id in fairseq's numbering.
const FAIRSEQ_UNKNOWN: u32 = 3;

impl Encoder {
    /// Ids of a text, with what stands around it where asked.
    pub fn encode(&self, text: &str, special_tokens: bool) -> Vec<u32> {
        let mut ids = Vec::new();
        if special_tokens {
            ids.extend(&self.before);
        }
        let (mut rest, mut begins) = (text, true);
        while let Some((at, mark)) = self.marks.first(rest) {
            let mut stretch = &rest[..at];
            rest = &rest[at + mark.text.len()..];
            if mark.takes_left {
                stretch = stretch.trim_end();
            }
            if mark.takes_right {
                rest = rest.trim_start();
            }
            self.stretch(stretch, begins, &mut ids);
            ids.push(mark.id);
            begins = self.every_stretch_begins;
        }
        self.stretch(rest, begins, &mut ids);
        if special_tokens {
            ids.extend(&self.after);
        }
        ids
    }

    fn stretch(&self, text: &str, begins: bool, ids: &mut Vec<u32>) {
        let number = |place: u32| match &self.numbering {
            Numbering::Fairseq if place == self.model.unknown() => FAIRSEQ_UNKNOWN,
            Numbering::Fairseq => place + 1,
            _ => place,
        };
        match &self.numbering {
            Numbering::Listed(listing) => listing.encode(&self.model, text, ids),
            _ => ids.extend(self.model.encode(text, begins).into_iter().map(number)),
        }
    }

    /// What an id is written as in the vocabulary.
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
