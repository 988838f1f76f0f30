//! What components of vectors are drawn from, as flags name it.

use attnscope_compute::sample::Family;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Parses a family by name; t5 is Student's t with 5 degrees of freedom.
pub fn family() -> impl TypedValueParser<Value = Family> {
    let names = PossibleValuesParser::new(Family::ALL.map(Family::id));
    names.map(|name| Family::find(&name).unwrap_or(Family::Normal))
}
