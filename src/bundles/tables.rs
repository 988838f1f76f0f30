//! Two tables of embeddings, German and English words of numbers and dates, and a pair of sentences.

use attnscope_checkpoint::embeddings::Table;
use attnscope_compute::attention::SoftmaxAxis;
use attnscope_compute::error::Result;
use attnscope_run::align::Alignment;

/// What the demo aligns: verb, date, tens and ones have other places in either language.
const QUERIES: &str = "she bought eighty eight letters on july ninth";
const KEYS: &str = "sie hat am neunten juli acht und achtzig briefe gekauft";

/// The vectors of both languages, and the row of each word.
pub const TABLES: [(&str, &[u8]); 4] = [
    ("en.npz", include_bytes!("../../fixtures/alignment/en.npz")),
    (
        "en.json",
        include_bytes!("../../fixtures/alignment/en.json"),
    ),
    ("de.npz", include_bytes!("../../fixtures/alignment/de.npz")),
    (
        "de.json",
        include_bytes!("../../fixtures/alignment/de.json"),
    ),
];

/// English words ask, German ones are looked at; in the pair of sentences two words change places.
///
/// # Errors
/// Never for a program that was built from a complete source tree; the bytes are checked like any other.
pub fn demo_alignment(axis: SoftmaxAxis) -> Result<Alignment> {
    let [en, en_words, de, de_words] = TABLES;
    let english = Table::compiled_in(en, en_words)?;
    let german = Table::compiled_in(de, de_words)?;
    Alignment::new([english, german], [QUERIES, KEYS], axis, &[])
}
