//! The tokens of a text as a table and as JSON.

use std::io::{self, Write};

use attnscope_prompt::{Token, Tokenizer};
use schemars::JsonSchema;
use serde::Serialize;

use super::json::write_pretty;
use super::plain::one_line;
use super::text_table::text_table;

/// The version of the shape in this file.
const VERSION: u32 = 1;

/// The tokens of a text, in order.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct TokenList {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    tokens: Vec<TokenRecord>,
}

/// A token, and the part of the text that it stands for.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct TokenRecord {
    id: u32,
    /// The token as the vocabulary writes it.
    piece: String,
    /// Whether it is no text: put around the text, or found in it as a special token.
    special: bool,
    /// First byte of the text that it stands for.
    start: usize,
    /// The byte after its last one; equal to the first where it stands for nothing.
    end: usize,
}

impl TokenList {
    pub fn of(tokenizer: &Tokenizer, tokens: &[Token]) -> Self {
        let record = |token: &Token| TokenRecord {
            id: token.id,
            piece: tokenizer
                .piece(token.id)
                .unwrap_or_else(|| token.id.to_string()),
            special: token.is_special,
            start: token.bytes.start,
            end: token.bytes.end,
        };
        Self {
            version: VERSION,
            tokens: tokens.iter().map(record).collect(),
        }
    }

    /// Returns a table: the id, the piece, the bytes, and whether the token is special.
    pub fn text(&self) -> String {
        let row = |token: &TokenRecord| {
            vec![
                one_line(&token.piece).into_owned(),
                token.id.to_string(),
                format!("{}..{}", token.start, token.end),
                if token.special { "special" } else { "" }.to_owned(),
            ]
        };
        let rows: Vec<Vec<String>> = self.tokens.iter().map(row).collect();
        text_table(&["piece", "id", "bytes", ""], &rows)
    }

    /// Writes the document, indented, with a newline at the end.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        write_pretty(self, to)
    }
}
