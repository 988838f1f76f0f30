//! The table: what every head of every layer did, on every prompt, in every checkpoint. Written as CSV and Parquet, and read back.

mod columns;
mod csv;
mod natural;
mod parquet;
mod read_csv;
mod read_parquet;
mod step;
mod table;

pub use self::columns::{COLUMNS, Kind, SCHEMA};
pub use self::natural::natural;
pub use self::step::step_of;
pub use self::table::{About, Row, Source, Table};
