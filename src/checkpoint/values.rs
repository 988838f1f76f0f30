//! Continuous input of a model: one row of numbers per position, from a CSV file or a NumPy array.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use attnscope_compute::error::{Error, Result};

use super::npy::Npy;
use super::whole_file::read_whole;

/// Limit on the numbers of a file. Written as JSON they still fit into one header of a live channel, which has 16 MiB.
const MOST_NUMBERS: usize = 1 << 19;
/// Limit on the bytes of a file, which a text of [`MOST_NUMBERS`] numbers stays far below.
const MOST_BYTES: usize = 64 << 20;
/// Magic bytes of a NumPy array and of a NumPy archive.
const NPY: &[u8] = b"\x93NUMPY";
const ZIP: &[u8] = b"PK\x03\x04";

/// A table of finite numbers, [position, feature], with the file that it was read from.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    path: PathBuf,
    rows: Arc<[Vec<f64>]>,
    grid: Option<[usize; 2]>,
}

/// Rows of numbers, and the rows and columns of the map that they are places of, if the file says it.
type Table = (Vec<Vec<f64>>, Option<[usize; 2]>);

// All numbers are finite, so every table equals itself.
impl Eq for Values {}

impl Values {
    /// Reads a CSV file or a NumPy array, whichever the first bytes say.
    ///
    /// # Errors
    /// When the file cannot be read, is not a table [position, feature], is empty, or holds a number that is not finite.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = read_whole(path, MOST_BYTES)?;
        let is_npy = path.extension().is_some_and(|ending| ending == "npy");
        let rows = if is_npy || bytes.starts_with(NPY) {
            of_npy(&bytes)
        } else if bytes.starts_with(ZIP) {
            Err("expected a CSV file or a NumPy array (.npy), found an archive".to_owned())
        } else {
            of_csv(&bytes).map(|rows| (rows, None))
        };
        let (rows, grid) = rows.map_err(|problem| Error::file(path, problem))?;
        Ok(Self {
            path: path.to_path_buf(),
            rows: rows.into(),
            grid,
        })
    }

    /// The file that the numbers were read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One row of features per position; there is at least one, and all have one width.
    pub fn rows(&self) -> &[Vec<f64>] {
        &self.rows
    }

    /// Rows and columns of the map whose places the positions are, row by row; `None` if the file holds a table.
    pub fn grid(&self) -> Option<[usize; 2]> {
        self.grid
    }
}

fn of_npy(bytes: &[u8]) -> std::result::Result<Table, String> {
    let array = Npy::open(bytes, MOST_NUMBERS as u64)?;
    array.fits_into(bytes.len() as u64)?;
    let (n_rows, width, grid) = match *array.shape {
        [n_rows, width] if n_rows > 0 && width > 0 => (n_rows, width, None),
        [down, across, width]
            if [down, across, width].iter().all(|n| *n > 0) && !array.is_fortran =>
        {
            (down * across, width, Some([down, across]))
        }
        _ => {
            let found = &array.shape;
            return Err(format!(
                "expected an array [position, feature], found shape {found:?}"
            ));
        }
    };
    let is_fortran = array.is_fortran;
    let mut rows = vec![vec![0.0; width]; n_rows];
    array.each(&mut |idx, value| {
        let (row, column) = if is_fortran {
            (idx % n_rows, idx / n_rows)
        } else {
            (idx / width, idx % width)
        };
        rows[row][column] = value;
    })?;
    for (row_idx, row) in rows.iter().enumerate() {
        if let Some(column_idx) = row.iter().position(|value| !value.is_finite()) {
            let found = row[column_idx];
            return Err(format!(
                "[{row_idx}, {column_idx}]: expected a finite number, found {found}"
            ));
        }
    }
    Ok((rows, grid))
}

fn of_csv(bytes: &[u8]) -> std::result::Result<Vec<Vec<f64>>, String> {
    // Spreadsheets write a byte order mark.
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    // Rows of unequal length are reported below, with the line that they differ from.
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text);
    let mut rows: Vec<Vec<f64>> = Vec::new();
    let mut header = None;
    let mut first_line = 0;
    let mut n_numbers = 0;
    for (record_idx, record) in reader.records().enumerate() {
        let record = record.map_err(|e| {
            let line = e.position().map_or(0, csv::Position::line);
            format!("line {line}: expected numbers with commas between them, found bytes that are not UTF-8")
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        let is_header = record_idx == 0 && record.iter().all(|field| number(field).is_none());
        if is_header && record.iter().any(|field| !field.is_empty()) {
            header = record.get(0).map(shortened);
            continue;
        }
        let fields = record.iter().enumerate();
        let row = fields
            .map(|(idx, field)| match number(field) {
                Some(value) if value.is_finite() => Ok(value),
                Some(_) => Err((idx, "a finite number", field)),
                None => Err((idx, "a number", field)),
            })
            .collect::<std::result::Result<Vec<f64>, _>>()
            .map_err(|(idx, expected, found)| {
                let (found, column) = (shortened(found), idx + 1);
                format!("line {line}, column {column}: expected {expected}, found {found:?}")
            })?;
        match rows.first() {
            None => first_line = line,
            Some(first) if first.len() != row.len() => {
                return Err(format!(
                    "line {line}: expected {} numbers as in line {first_line}, found {}",
                    first.len(),
                    row.len()
                ));
            }
            Some(_) => {}
        }
        n_numbers += row.len();
        if n_numbers > MOST_NUMBERS {
            return Err(format!(
                "expected at most {MOST_NUMBERS} numbers, found more"
            ));
        }
        rows.push(row);
    }
    match (rows.is_empty(), header) {
        (false, _) => Ok(rows),
        (true, None) => Err("expected a row of numbers per position, found none".to_owned()),
        (true, Some(header)) => Err(format!(
            "expected a row of numbers per position, found only a header that begins with {header:?}"
        )),
    }
}

fn shortened(field: &str) -> String {
    field.chars().take(20).collect()
}

/// A field as a number, which may be infinite or NaN.
fn number(field: &str) -> Option<f64> {
    field.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, bytes: &[u8]) -> std::result::Result<Vec<Vec<f64>>, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).expect("writes");
        let read = Values::read(&path).map(|values| values.rows().to_vec());
        read.map_err(|e| {
            let said = e.to_string();
            let place = format!("{}: ", path.display());
            assert_eq!(said.lines().count(), 1, "{said}");
            said.strip_prefix(&place).expect("the file").to_owned()
        })
    }

    fn npy(kind: &str, is_fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
        let order = if is_fortran { "True" } else { "False" };
        let header = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}");
        let length = u16::try_from(header.len()).expect("short").to_le_bytes();
        [NPY, &[1, 0], &length, header.as_bytes(), data].concat()
    }

    #[test]
    fn csv_is_read_with_and_without_a_header() {
        let expected = vec![vec![1.0, -2.5], vec![3e-2, 4.0]];
        for text in [
            "1,-2.5\n0.03,4\n",
            "open,close\n1,-2.5\n3e-2,4",
            "\u{feff}open, close\r\n 1 , -2.5\r\n\r\n0.03,4\r\n",
            "# of a sensor\n\"1\",\"-2.5\"\n0.03,4\n",
        ] {
            assert_eq!(read("a.csv", text.as_bytes()), Ok(expected.clone()));
        }
        assert_eq!(read("a.txt", b"7\n"), Ok(vec![vec![7.0]]));
    }

    #[test]
    fn what_is_wrong_in_csv_is_said_with_its_line() {
        for (text, says) in [
            ("", "expected a row of numbers per position, found none"),
            (
                "a,b\n",
                "expected a row of numbers per position, found only a header that begins with \"a\"",
            ),
            (
                "a,b\n1,2\n3\n",
                "line 3: expected 2 numbers as in line 2, found 1",
            ),
            (
                "1,2\n3,4,5\n",
                "line 2: expected 2 numbers as in line 1, found 3",
            ),
            (
                "1,2\n3,x\n",
                "line 2, column 2: expected a number, found \"x\"",
            ),
            (
                "time,0\n1,2\n",
                "line 1, column 1: expected a number, found \"time\"",
            ),
            (
                "1,2\n3,\n",
                "line 2, column 2: expected a number, found \"\"",
            ),
            (
                "1;2\n",
                "expected a row of numbers per position, found only a header that begins with \"1;2\"",
            ),
            (
                "1,2\nnan,4\n",
                "line 2, column 1: expected a finite number, found \"nan\"",
            ),
            (
                "-inf\n",
                "line 1, column 1: expected a finite number, found \"-inf\"",
            ),
        ] {
            assert_eq!(
                read("a.csv", text.as_bytes()),
                Err(says.to_owned()),
                "{text}"
            );
        }
        let said = read("a.csv", b"1,2\n\xff,4\n").expect_err("refused");
        assert!(
            said.contains("line 2: ") && said.contains("UTF-8"),
            "{said}"
        );
        let said = read("a.npz", b"PK\x03\x04 and more").expect_err("refused");
        assert!(said.contains("found an archive"), "{said}");
        let many = "1,2,3,4\n".repeat(MOST_NUMBERS / 4 + 1);
        let said = read("a.csv", many.as_bytes()).expect_err("refused");
        assert_eq!(said, "expected at most 524288 numbers, found more");
    }

    #[test]
    fn arrays_are_read_in_either_order() {
        let data: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.5]
            .into_iter()
            .flat_map(f32::to_le_bytes)
            .collect();
        let rows = vec![vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.5]];
        assert_eq!(read("a.npy", &npy("<f4", false, "(2, 3)", &data)), Ok(rows));
        let turned = vec![vec![1.0, 3.0, 5.0], vec![2.0, 4.0, 6.5]];
        assert_eq!(read("a", &npy("<f4", true, "(2, 3)", &data)), Ok(turned));
        let whole = [7i64, -8].into_iter().flat_map(i64::to_le_bytes);
        let whole: Vec<u8> = whole.collect();
        let found = read("a.npy", &npy("<i8", false, "(1, 2)", &whole));
        assert_eq!(found, Ok(vec![vec![7.0, -8.0]]));
    }

    #[test]
    fn an_array_of_three_axes_holds_the_places_of_a_map() {
        let data: Vec<u8> = (0..6u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
        let bytes = npy("<f4", false, "(1, 3, 2)", &data);
        let (rows, grid) = of_npy(&bytes).expect("a map");
        assert_eq!(grid, Some([1, 3]));
        assert_eq!(rows[1], [2.0, 3.0]);
    }

    #[test]
    fn arrays_that_are_no_table_of_finite_numbers_are_refused() {
        let one = 1.0f32.to_le_bytes();
        for shape in ["(1,)", "(1, 1, 1, 1)", "(0, 1, 1)", "()"] {
            let said = read("a.npy", &npy("<f4", false, shape, &one)).expect_err("refused");
            let expected = "expected an array [position, feature], found shape [";
            assert!(said.starts_with(expected), "{said}");
        }
        let said = read("a.npy", &npy("<f4", false, "(0, 3)", &[])).expect_err("refused");
        assert!(said.ends_with("found shape [0, 3]"), "{said}");
        let bytes = [one, f32::NAN.to_le_bytes()].concat();
        let said = read("a.npy", &npy("<f4", false, "(2, 1)", &bytes)).expect_err("refused");
        assert_eq!(said, "[1, 0]: expected a finite number, found NaN");
        let said = read("a.npy", &npy("<f4", false, "(2, 1)", &one)).expect_err("refused");
        assert!(said.starts_with("truncated: "), "{said}");
        let said = read("a.npy", b"1,2\n").expect_err("refused");
        assert!(said.starts_with("is not a .npy array") || said.starts_with("cannot be read"));
        let said = read("a.npy", &npy("<c8", false, "(1, 1)", &[0; 8])).expect_err("refused");
        assert!(said.contains("floats or whole numbers"), "{said}");
    }
}
