//! Two tables that are part of the program, German and English words of numbers and dates, and a pair of sentences.

use super::{Dictionary, Embeddings, Table};
use crate::checkpoint::map::Bytes;
use crate::error::Result;

/// What the demo aligns: verb, date, tens and ones have other places in either language.
pub const DEMO_QUERIES: &str = "she bought eighty eight letters on july ninth";
pub const DEMO_KEYS: &str = "sie hat am neunten juli acht und achtzig briefe gekauft";

/// The English table, whose words ask, and the German one, whose words are looked at.
///
/// # Errors
/// Never for a program that was built from a complete source tree; the bytes are checked like any other.
pub fn demo() -> Result<[Table; 2]> {
    let table = |name: &str, table: &'static [u8], words: &'static [u8]| {
        let embeddings = Bytes::compiled_in(&format!("alignment/{name}.npz"), table);
        let words = Bytes::compiled_in(&format!("alignment/{name}.json"), words);
        Table::of(
            Embeddings::of_bytes(embeddings)?,
            Dictionary::of_bytes(&words)?,
        )
    };
    Ok([
        table(
            "en",
            include_bytes!("../../../fixtures/alignment/en.npz"),
            include_bytes!("../../../fixtures/alignment/en.json"),
        )?,
        table(
            "de",
            include_bytes!("../../../fixtures/alignment/de.npz"),
            include_bytes!("../../../fixtures/alignment/de.json"),
        )?,
    ])
}
