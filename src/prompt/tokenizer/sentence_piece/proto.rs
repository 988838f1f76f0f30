//! The protobuf of a SentencePiece model: pieces, scores, kinds, and normalisation.

/// The kind of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    /// The numbering that SentencePiece models and GGUF files share.
    pub fn of(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

/// One entry of the vocabulary; its index in the list is its id.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    pub text: String,
    pub score: f32,
    pub kind: Kind,
}

/// The contents of a `.model` file.
#[derive(Debug, Clone)]
pub struct ModelFile {
    pub pieces: Vec<Piece>,
    /// 1 unigram, 2 BPE, 3 words, 4 characters.
    pub model_type: u64,
    pub byte_fallback: bool,
    pub blank_as_suffix: bool,
    pub charsmap: Vec<u8>,
    pub dummy_prefix: bool,
    pub collapse_blanks: bool,
    pub escape_blanks: bool,
}

type Fault = String;

/// One field of a message.
enum Field<'a> {
    Number(u64),
    Float(f32),
    Bytes(&'a [u8]),
    Other,
}

/// Iterator over the fields of a message.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.rest.split_first().ok_or("ends inside a number")?;
            self.rest = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("holds a number of more than 64 bits".to_owned())
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], Fault> {
        if n > self.rest.len() {
            let left = self.rest.len();
            return Err(format!("a field of {n} bytes where {left} are left"));
        }
        let (taken, rest) = self.rest.split_at(n);
        self.rest = rest;
        Ok(taken)
    }

    /// The next field and its number; `None` at the end.
    fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, Fault> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(self.varint()?),
            1 => {
                self.take(8)?;
                Field::Other
            }
            2 => {
                let n = usize::try_from(self.varint()?).map_err(|e| e.to_string())?;
                Field::Bytes(self.take(n)?)
            }
            5 => {
                let bytes = self.take(4)?;
                let mut four = [0; 4];
                four.copy_from_slice(bytes);
                Field::Float(f32::from_le_bytes(four))
            }
            other => return Err(format!("holds a field of the unknown wire type {other}")),
        };
        Ok(Some((tag >> 3, field)))
    }
}

/// Parses a model.
///
/// # Errors
/// When the bytes are not such a message, or a piece is invalid.
pub fn parse(bytes: &[u8]) -> Result<ModelFile, Fault> {
    let mut model = ModelFile {
        pieces: Vec::new(),
        model_type: 1,
        byte_fallback: false,
        blank_as_suffix: false,
        charsmap: Vec::new(),
        dummy_prefix: true,
        collapse_blanks: true,
        escape_blanks: true,
    };
    let mut fields = Fields { rest: bytes };
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Bytes(inner)) => {
                let idx = model.pieces.len();
                let piece = piece(inner).map_err(|fault| format!("piece {idx}: {fault}"))?;
                model.pieces.push(piece);
            }
            (2, Field::Bytes(inner)) => trainer(inner, &mut model)?,
            (3, Field::Bytes(inner)) => normalizer(inner, &mut model)?,
            _ => {}
        }
    }
    if model.pieces.is_empty() {
        return Err("holds no pieces; expected a SentencePiece model".to_owned());
    }
    Ok(model)
}

fn piece(bytes: &[u8]) -> Result<Piece, Fault> {
    let mut piece = Piece {
        text: String::new(),
        score: 0.0,
        kind: Kind::Normal,
    };
    let mut fields = Fields { rest: bytes };
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Bytes(text)) => {
                piece.text = std::str::from_utf8(text)
                    .map_err(|_| "is not UTF-8")?
                    .to_owned();
            }
            (2, Field::Float(score)) => piece.score = score,
            (3, Field::Number(kind)) => {
                piece.kind = Kind::of(kind).ok_or_else(|| format!("the unknown type {kind}"))?;
            }
            _ => {}
        }
    }
    Ok(piece)
}

fn trainer(bytes: &[u8], model: &mut ModelFile) -> Result<(), Fault> {
    let mut fields = Fields { rest: bytes };
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (3, Field::Number(kind)) => model.model_type = kind,
            (24, Field::Number(flag)) => model.blank_as_suffix = flag != 0,
            (35, Field::Number(flag)) => model.byte_fallback = flag != 0,
            _ => {}
        }
    }
    Ok(())
}

fn normalizer(bytes: &[u8], model: &mut ModelFile) -> Result<(), Fault> {
    let mut fields = Fields { rest: bytes };
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (2, Field::Bytes(map)) => model.charsmap = map.to_vec(),
            (3, Field::Number(flag)) => model.dummy_prefix = flag != 0,
            (4, Field::Number(flag)) => model.collapse_blanks = flag != 0,
            (5, Field::Number(flag)) => model.escape_blanks = flag != 0,
            _ => {}
        }
    }
    Ok(())
}
