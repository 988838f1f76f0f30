//! Which row of a table belongs to which token.
//!
//! - **one row later** or **earlier** than the tokenizer's ids, in inputs and predictions: a special token was added in front of the
//!   vocabulary, or taken away.
//!
//! Tried in models of one stack, where no token of the texts would stand outside the tables.

use super::{Family, Known, Reading};

pub(super) const FAMILY: Family = Family {
    id: "vocabulary",
    source: include_str!("vocabulary.rs"),
    readings,
};

fn readings(known: &Known<'_>) -> Vec<Reading> {
    let spec = known.spec();
    let Some(head) = spec.head.as_ref().filter(|_| spec.stacks.len() == 1) else {
        return Vec::new();
    };
    let n_rows = spec.main_stack().embed.tokens.n_rows;
    let n_rows = n_rows.min(head.unembed.n_out()) as i64;
    let [first, last] = known.ids.map(i64::from);
    let mut all = Vec::new();
    for (late, way) in [(1, "later"), (-1, "earlier")] {
        let by = i64::from(late);
        if first + by < 0 || last + by >= n_rows {
            continue;
        }
        let name = format!("every token one row {way} in the tables");
        let advice = "a tokenizer whose ids are the rows of the tables";
        all.push(Reading {
            rows_late: late,
            shares_weights: false,
            ..Reading::new(FAMILY.id, name, advice)
        });
    }
    all
}
