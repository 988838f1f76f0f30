//! The knobs of what a block's rows hold beside one residual: streams, shortcuts, a second state.

use attnscope_spec::{BlockRow, Join};

use super::knob::KnobKind::{Computation, Shape};
use super::spec_knobs::List;

/// Adds the knobs of a block's row.
pub(super) fn row(list: &mut List, row: Option<&BlockRow>) {
    list.word(Shape, "streams", row.map_or(1, |row| row.n_streams()));
    let rule = row.map_or("none".to_owned(), |row| row.stream_rule());
    list.word(Computation, "stream_rule", rule);
    list.word(
        Computation,
        "active_stream",
        row.map_or(0, |row| row.active()),
    );
    let shortcut = row.map_or("none", |row| row.shortcut_word());
    list.word(Shape, "shortcut", shortcut);
    if let Some(join) = row.and_then(|row| row.join) {
        let words = match join {
            Join::Adds => "adds",
            Join::AddsAndSwaps => "adds and swaps",
        };
        list.word(Computation, "second_state", words);
    }
}
