//! One value of a table.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use super::column::Kind;
use crate::number::{Number, number};
use crate::plain;
use crate::text_table::digits;

/// A value of a table. An absent value and a NaN are different.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Cell {
    /// There is no value: the column does not apply to the row, or nothing was measured.
    #[default]
    Empty,
    Text(String),
    Integer(u64),
    Number(f64),
    /// A number of single precision, written with the fewest digits that read back as the same number.
    Single(f32),
}

impl Cell {
    /// A number, or an empty cell.
    pub fn of(value: Option<f64>) -> Self {
        value.cell()
    }

    /// An index or a count, or an empty cell.
    pub fn index(value: Option<usize>) -> Self {
        value.cell()
    }

    /// A text.
    pub fn text(value: impl Into<String>) -> Self {
        Self::Text(value.into())
    }

    /// Formats the value for a table that people read.
    pub fn shown(&self) -> String {
        match self {
            Self::Empty => "-".to_owned(),
            Self::Text(text) => plain::one_line(text).into_owned(),
            Self::Integer(value) => value.to_string(),
            Self::Number(value) => digits(*value),
            Self::Single(value) => digits(f64::from(*value)),
        }
    }

    /// Formats the value for CSV: with all digits, and empty without a value. Unless `is_raw`, a text that a spreadsheet would
    /// run as a formula is marked as text.
    pub fn csv(&self, is_raw: bool) -> Cow<'_, str> {
        match self {
            Self::Empty => Cow::Borrowed(""),
            Self::Text(text) if is_raw => Cow::Borrowed(text),
            Self::Text(text) => plain::cell(text),
            Self::Integer(value) => Cow::Owned(value.to_string()),
            Self::Number(value) => Cow::Owned(number(*value)),
            Self::Single(value) if value.is_finite() => Cow::Owned(format!("{value:?}")),
            Self::Single(value) => Cow::Owned(number(f64::from(*value))),
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Empty => to.serialize_none(),
            Self::Text(text) => to.serialize_str(text),
            Self::Integer(value) => to.serialize_u64(*value),
            Self::Number(value) => Number(*value).serialize(to),
            Self::Single(value) if value.is_finite() => to.serialize_f32(*value),
            Self::Single(value) => Number(f64::from(*value)).serialize(to),
        }
    }
}

/// A type whose values convert to cells of one kind of column.
pub trait CellValue {
    const KIND: Kind;
    /// Whether the type always has a value; false for `Option`.
    const IS_REQUIRED: bool = true;

    fn cell(self) -> Cell;
}

impl<T: CellValue> CellValue for Option<T> {
    const KIND: Kind = T::KIND;
    const IS_REQUIRED: bool = false;

    fn cell(self) -> Cell {
        self.map_or(Cell::Empty, T::cell)
    }
}

/// Implements [`CellValue`]: the kind of column, and the conversion to a cell, per type.
macro_rules! cells {
    ($($of:ty: $kind:ident, $value:ident => $cell:expr;)*) => {
        $(impl CellValue for $of {
            const KIND: Kind = Kind::$kind;

            fn cell(self) -> Cell {
                let $value = self;
                $cell
            }
        })*
    };
}

cells! {
    String: Text, text => Cell::Text(text);
    &str: Text, text => Cell::Text(text.to_owned());
    Cow<'_, str>: Text, text => Cell::Text(text.into_owned());
    bool: Text, value => Cell::Text(value.to_string());
    u32: Integer, value => Cell::Integer(u64::from(value));
    u64: Integer, value => Cell::Integer(value);
    usize: Integer, value => Cell::Integer(value as u64);
    f32: Number, value => Cell::Single(value);
    f64: Number, value => Cell::Number(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_csv_read_back_exactly() {
        let cells = [
            0.1f32.cell(),
            (1.0f32 / 3.0).cell(),
            0.1f64.cell(),
            1e-300f64.cell(),
            f32::NEG_INFINITY.cell(),
            f64::NAN.cell(),
            (-0.0f64).cell(),
            None::<f64>.cell(),
        ];
        let written: Vec<Cow<'_, str>> = cells.iter().map(|cell| cell.csv(false)).collect();
        let expected = [
            "0.1",
            "0.33333334",
            "0.1",
            "1e-300",
            "-Infinity",
            "NaN",
            "-0.0",
            "",
        ];
        assert_eq!(written, expected);
    }

    #[test]
    fn only_texts_that_a_spreadsheet_computes_are_marked() {
        let formula = Cell::text("=1+1");
        assert_eq!(formula.csv(false), "'=1+1");
        assert_eq!(formula.csv(true), "=1+1");
        assert_eq!((-1.5f64).cell().csv(false), "-1.5");
    }

    #[test]
    fn an_absent_value_is_null_and_not_a_nan() {
        let json = |cell: &Cell| serde_json::to_string(cell).expect("writes");
        assert_eq!(json(&Cell::Empty), "null");
        assert_eq!(json(&Cell::Number(f64::NAN)), "\"NaN\"");
        assert_eq!(json(&Cell::Single(0.1)), "0.1");
    }
}
