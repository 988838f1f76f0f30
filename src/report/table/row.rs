//! Rows as structures: the fields of a structure are the columns of a table.

use super::cell::Cell;
use super::column::Column;

/// A structure that is one row of a table; [`table_row!`](crate::table_row) defines it.
pub trait TableRow {
    const COLUMNS: &'static [Column];

    /// The row's cells, one for each column.
    fn cells(self) -> Vec<Cell>;
}

/// Defines a structure whose fields are the columns of a table. Each field has its type, its unit (`""` for none) and a
/// description; the type says what kind of column it is, and `Option` that some rows have no value. A column has the field's
/// name, or the one behind `as`.
///
/// ```ignore
/// table_row! {
///     /// A head at one scale.
///     pub struct Point {
///         scale: f64, "", "factor of the scores";
///         entropy: Option<f64>, "nats", "entropy of the weights";
///     }
/// }
/// let table = Table::of([Point { scale: 1.0, entropy: None }]);
/// ```
#[macro_export]
macro_rules! table_row {
    (@id $field:ident) => { stringify!($field) };
    (@id $field:ident $id:literal) => { $id };
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($field:ident $(as $id:literal)?: $of:ty, $unit:literal, $about:expr;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default)]
        $vis struct $name {
            $(pub $field: $of,)*
        }

        impl $crate::table::TableRow for $name {
            const COLUMNS: &'static [$crate::table::Column] = &[$(
                $crate::table::Column::new($crate::table_row!(@id $field $($id)?), <$of as $crate::table::CellValue>::KIND, $about)
                    .in_unit($unit)
                    .required(<$of as $crate::table::CellValue>::IS_REQUIRED),
            )*];

            fn cells(self) -> Vec<$crate::table::Cell> {
                vec![$($crate::table::CellValue::cell(self.$field),)*]
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Table};
    use super::*;

    table_row! {
        /// A row with a column of each kind.
        struct One {
            text: &'static str, "", "a text";
            count: Option<usize>, "keys", "a count";
            share: f32, "", "a share";
        }
    }

    #[test]
    fn the_fields_of_a_row_are_the_columns() {
        let row = One {
            text: "a,b",
            count: Some(3),
            share: 0.1,
        };
        let table = Table::of([row, One::default()]);
        let expected = [
            Column::text("text", "a text").required(true),
            Column::integer("count", "a count").in_unit("keys"),
            Column::new("share", Kind::Number, "a share").required(true),
        ];
        assert_eq!(table.columns, expected);
        let cells = [Cell::text("a,b"), Cell::Integer(3), Cell::Single(0.1)];
        assert_eq!(table.rows[0], cells);
        assert_eq!(table.rows[1][1], Cell::Empty);
        assert_eq!(Table::of::<One>([]).columns, expected);
    }
}
