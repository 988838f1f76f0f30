//! A table as a value: column names, and rows of text.

use std::fmt::Display;

use serde::ser::{Error as _, Impossible, Serialize, SerializeStruct, Serializer};

/// A table, ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sheet {
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    /// Builds a table with the fields of a row as columns, even if there are no rows.
    ///
    /// # Errors
    /// When a row is anything but a struct of texts and numbers.
    pub fn of<R: Serialize + Default>(rows: impl IntoIterator<Item = R>) -> Result<Self, Wrong> {
        let columns = R::default().serialize(Fields)?;
        let rows = rows.into_iter().map(|row| {
            let cells = row.serialize(Fields)?;
            Ok(cells.into_iter().map(|(_, cell)| cell).collect())
        });
        Ok(Self {
            columns: columns.into_iter().map(|(name, _)| name).collect(),
            rows: rows.collect::<Result<_, _>>()?,
        })
    }
}

/// Error: a value that cannot be a row.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(String);

impl serde::ser::Error for Wrong {
    fn custom<T: Display>(what: T) -> Self {
        Self(what.to_string())
    }
}

type Cells = Vec<(&'static str, String)>;

/// Defines serializer methods that refuse their value.
macro_rules! refuses {
    ($expected:literal: $($name:ident($($argument:ident: $of:ty),*) -> $gives:ty;)*) => {
        $(fn $name(self, $($argument: $of),*) -> Result<$gives, Wrong> {
            $(let _ = $argument;)*
            Err(Wrong::custom(concat!("expected ", $expected)))
        })*
    };
}

/// Defines methods that refuse containers, which are neither rows nor cells.
macro_rules! refuses_containers {
    ($expected:literal) => {
        type SerializeSeq = Impossible<Self::Ok, Wrong>;
        type SerializeTuple = Impossible<Self::Ok, Wrong>;
        type SerializeTupleStruct = Impossible<Self::Ok, Wrong>;
        type SerializeTupleVariant = Impossible<Self::Ok, Wrong>;
        type SerializeMap = Impossible<Self::Ok, Wrong>;
        type SerializeStructVariant = Impossible<Self::Ok, Wrong>;

        refuses! { $expected:
            serialize_bytes(v: &[u8]) -> Self::Ok;
            serialize_unit() -> Self::Ok;
            serialize_unit_struct(v: &'static str) -> Self::Ok;
            serialize_seq(n: Option<usize>) -> Self::SerializeSeq;
            serialize_tuple(n: usize) -> Self::SerializeTuple;
            serialize_tuple_struct(v: &'static str, n: usize) -> Self::SerializeTupleStruct;
            serialize_tuple_variant(v: &'static str, i: u32, w: &'static str, n: usize) -> Self::SerializeTupleVariant;
            serialize_map(n: Option<usize>) -> Self::SerializeMap;
            serialize_struct_variant(v: &'static str, i: u32, w: &'static str, n: usize) -> Self::SerializeStructVariant;
        }

        fn serialize_newtype_variant<T: ?Sized + Serialize>(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: &T,
        ) -> Result<Self::Ok, Wrong> {
            Err(Wrong::custom(concat!("expected ", $expected)))
        }
    };
}

/// Serializes the fields of a row as cells.
struct Fields;

/// The fields of a row so far.
struct Row(Cells);

impl SerializeStruct for Row {
    type Ok = Cells;
    type Error = Wrong;

    fn serialize_field<T: ?Sized + Serialize>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Wrong> {
        self.0.push((name, value.serialize(Cell)?));
        Ok(())
    }

    fn end(self) -> Result<Cells, Wrong> {
        Ok(self.0)
    }
}

impl Serializer for Fields {
    type Ok = Cells;
    type Error = Wrong;
    type SerializeStruct = Row;

    refuses_containers! { "a structure as a row" }
    refuses! { "a structure as a row":
        serialize_bool(v: bool) -> Cells;
        serialize_i8(v: i8) -> Cells;
        serialize_i16(v: i16) -> Cells;
        serialize_i32(v: i32) -> Cells;
        serialize_i64(v: i64) -> Cells;
        serialize_u8(v: u8) -> Cells;
        serialize_u16(v: u16) -> Cells;
        serialize_u32(v: u32) -> Cells;
        serialize_u64(v: u64) -> Cells;
        serialize_f32(v: f32) -> Cells;
        serialize_f64(v: f64) -> Cells;
        serialize_char(v: char) -> Cells;
        serialize_str(v: &str) -> Cells;
        serialize_none() -> Cells;
        serialize_unit_variant(v: &'static str, i: u32, w: &'static str) -> Cells;
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<Cells, Wrong> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Cells, Wrong> {
        value.serialize(self)
    }

    fn serialize_struct(self, _: &'static str, n: usize) -> Result<Row, Wrong> {
        Ok(Row(Vec::with_capacity(n)))
    }
}

/// Serializes a value as a cell: empty for none, numbers with all their digits.
struct Cell;

/// Defines methods that write values as text.
macro_rules! writes {
    ($($name:ident($value:ident: $of:ty) $text:expr;)*) => {
        $(fn $name(self, $value: $of) -> Result<String, Wrong> {
            Ok($text)
        })*
    };
}

impl Serializer for Cell {
    type Ok = String;
    type Error = Wrong;
    type SerializeStruct = Impossible<String, Wrong>;

    refuses_containers! { "a text or a number as a cell" }
    refuses! { "a text or a number as a cell":
        serialize_struct(v: &'static str, n: usize) -> Self::SerializeStruct;
    }
    writes! {
        serialize_bool(v: bool) v.to_string();
        serialize_i8(v: i8) v.to_string();
        serialize_i16(v: i16) v.to_string();
        serialize_i32(v: i32) v.to_string();
        serialize_i64(v: i64) v.to_string();
        serialize_u8(v: u8) v.to_string();
        serialize_u16(v: u16) v.to_string();
        serialize_u32(v: u32) v.to_string();
        serialize_u64(v: u64) v.to_string();
        serialize_f32(v: f32) ryu::Buffer::new().format(v).to_owned();
        serialize_f64(v: f64) ryu::Buffer::new().format(v).to_owned();
        serialize_char(v: char) v.to_string();
        serialize_str(v: &str) v.to_owned();
    }

    fn serialize_none(self) -> Result<String, Wrong> {
        Ok(String::new())
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<String, Wrong> {
        value.serialize(self)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
    ) -> Result<String, Wrong> {
        Ok(name.to_owned())
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<String, Wrong> {
        value.serialize(self)
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    #[test]
    fn a_row_must_be_a_struct_of_texts_and_numbers() {
        #[derive(Default, Serialize)]
        struct Nested {
            value: Vec<u32>,
        }
        assert!(Sheet::of([Nested { value: vec![1] }]).is_err());
        assert!(Sheet::of([1u32]).is_err());
        assert!(Sheet::of([(1u32, 2u32)]).is_err());
    }

    #[test]
    fn values_of_every_kind_become_text() {
        #[derive(Default, Serialize)]
        struct One {
            text: &'static str,
            letter: char,
            is_so: bool,
            count: Option<i64>,
            share: Option<f32>,
        }
        let row = One {
            text: "a,b",
            letter: 'x',
            is_so: true,
            count: Some(-3),
            share: Some(0.1),
        };
        let sheet = Sheet::of([row, One::default()]).expect("a table");
        assert_eq!(sheet.columns, ["text", "letter", "is_so", "count", "share"]);
        assert_eq!(sheet.rows[0], ["a,b", "x", "true", "-3", "0.1"]);
        assert_eq!(sheet.rows[1], ["", "\0", "false", "", ""]);
    }
}
