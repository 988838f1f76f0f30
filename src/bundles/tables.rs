//! Two embedding tables, with German and English words for numbers and dates, and a pair of sentences.

use attnscope_checkpoint::embeddings::Table;
use attnscope_compute::attention::SoftmaxAxis;
use attnscope_compute::error::Result;
use attnscope_run::align::Alignment;

/// The sentences that the demo aligns. Verb, date, tens and ones are in a different order in each language.
const QUERIES: &str = "she bought eighty eight letters on july ninth";
const KEYS: &str = "sie hat am neunten juli acht und achtzig briefe gekauft";

/// The vectors of both languages, and the row number of each word.
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

/// Aligns the sentences: English words are the queries, German words the keys.
///
/// # Errors
/// Never in a program built from a complete source tree; the compiled-in bytes are validated like a file.
pub fn demo_alignment(axis: SoftmaxAxis) -> Result<Alignment> {
    let [en, en_words, de, de_words] = TABLES;
    let english = Table::compiled_in(en, en_words)?;
    let german = Table::compiled_in(de, de_words)?;
    Alignment::new([english, german], [QUERIES, KEYS], axis, &[])
}
