//! Settings and facts about the tables and sentences of an alignment, as shown on screen.

use attnscope_checkpoint::embeddings::Table;
use attnscope_checkpoint::{Knob, Origin, SetBy};
use attnscope_compute::attention::SoftmaxAxis;

use super::sentence::Sentence;

/// Lists what is known about both tables and both sentences, one line each.
pub(super) fn knobs_of(
    tables: &[Table; 2],
    [queries, keys]: [&Sentence; 2],
    axis: SoftmaxAxis,
) -> Vec<Knob> {
    let asked = || Origin::Set(SetBy::CommandLine);
    let table = |table: &Table| {
        let of = &table.embeddings;
        format!("{} × {}, {}", of.n_rows, of.width, of.stored_as)
    };
    let words = |sentence: &Sentence| {
        let (unknown, zero) = (sentence.unknown(), sentence.zero());
        let mut said = format!("{}, {} unknown", sentence.words.len(), unknown.len());
        if !unknown.is_empty() {
            said += &format!(" ({})", unknown.join(", "));
        }
        if !zero.is_empty() {
            said += &format!("; rows of zeros: {}", zero.join(", "));
        }
        said
    };
    let dictionary = |table: &Table| format!("{} words", table.dictionary.len());
    let file = |path: &std::path::Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Origin::Derived(name.into_owned())
    };
    let knob = |name: &'static str, value: String, origin: Origin| Knob {
        name,
        value,
        origin,
    };
    let [query_table, key_table] = tables;
    let width = query_table.embeddings.width;
    vec![
        knob(
            "queries",
            table(query_table),
            file(&query_table.embeddings.path),
        ),
        knob("keys", table(key_table), file(&key_table.embeddings.path)),
        knob("query words", words(queries), asked()),
        knob("key words", words(keys), asked()),
        knob(
            "query dictionary",
            dictionary(query_table),
            file(query_table.dictionary.path()),
        ),
        knob(
            "key dictionary",
            dictionary(key_table),
            file(key_table.dictionary.path()),
        ),
        knob("scores", format!("q·k/√{width}"), Origin::Family),
        knob("softmax_axis", axis.to_string(), asked()),
        knob("values", "the keys".to_owned(), Origin::Family),
        knob(
            "output",
            format!("{} × {width}", queries.words.len()),
            Origin::Derived("weights × keys".to_owned()),
        ),
    ]
}
