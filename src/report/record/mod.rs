//! The table of every head of every layer, on every prompt, in every checkpoint. Written as CSV and Parquet, and read back.

mod columns;
mod csv;
mod json;
mod natural;
mod parquet;
mod read_csv;
mod read_parquet;
mod step;
mod table;

pub use self::columns::{COLUMNS, SCHEMA};
pub use self::csv::{write_csv_header, write_csv_rows};
pub use self::json::write_json_row;
pub use self::natural::natural;
pub use self::parquet::ParquetWriter;
pub use self::read_parquet::ParquetReader;
pub use self::step::{step_of, step_of_name};
pub use self::table::{About, Row, Source, Table, in_order};
