//! One array of NumPy's, stored or in an archive: its header, and its elements in the order of the file.

use std::io::{Chain, Cursor, Read};

use npyz::{DType, NpyFile, Order, TypeChar, TypeStr};

/// Bytes of a header at most; NumPy itself reads no more than ten thousand.
const LONGEST_HEADER: usize = 1 << 16;

/// An array whose header was read.
pub(super) struct Npy<R: Read> {
    file: NpyFile<Chain<Cursor<Vec<u8>>, R>>,
    kind: TypeStr,
    pub shape: Vec<usize>,
    /// The first axis runs fastest.
    pub is_fortran: bool,
}

impl<R: Read> Npy<R> {
    /// # Errors
    /// One clause: what is wrong with the header, or that there are more elements than `most`.
    pub fn open(mut stored: R, most: u64) -> Result<Self, String> {
        let header = header(&mut stored).map_err(|e| unreadable(&e))?;
        // The reader multiplies the axes before anybody can look at them.
        if is_too_large(&header, most) {
            return Err(format!(
                "expected at most {most} elements, found a header of more"
            ));
        }
        let file = NpyFile::new(Cursor::new(header).chain(stored)).map_err(|e| unreadable(&e))?;
        let shape = file.shape().to_vec();
        let n = shape.iter().try_fold(1u64, |n, axis| n.checked_mul(*axis));
        if n.is_none_or(|n| n > most) {
            return Err(format!(
                "expected at most {most} elements, found shape {shape:?}"
            ));
        }
        let DType::Plain(kind) = file.dtype() else {
            return Err("expected an array of numbers, found records".to_owned());
        };
        Ok(Self {
            is_fortran: file.order() == Order::Fortran,
            shape: shape.iter().map(|axis| *axis as usize).collect(),
            kind,
            file,
        })
    }

    pub fn is_float(&self) -> bool {
        self.kind.type_char() == TypeChar::Float
    }

    /// What it is stored as: `f16`, `f32` or `f64`, and NumPy's letters for what is no float.
    pub fn stored_as(&self) -> String {
        match self.is_float() {
            true => format!("f{}", 8 * self.kind.size_field()),
            false => self.kind.to_string(),
        }
    }

    /// Hands over every element with its place in the file.
    ///
    /// # Errors
    /// One clause: the kind of element is not read, or the bytes end early.
    pub fn each(self, take: &mut dyn FnMut(usize, f64)) -> Result<(), String> {
        let file = self.file;
        macro_rules! read {
            ($kind:ty, $widen:expr) => {
                for (idx, value) in file
                    .data::<$kind>()
                    .map_err(|e| unreadable(&e))?
                    .enumerate()
                {
                    take(idx, $widen(value.map_err(|e| unreadable(&e))?));
                }
            };
        }
        match (self.kind.type_char(), self.kind.size_field()) {
            (TypeChar::Float, 4) => read!(f32, f64::from),
            (TypeChar::Float, 8) => read!(f64, |value| value),
            (TypeChar::Float, 2) => read!(half::f16, f64::from),
            (TypeChar::Int, 8) => read!(i64, |value| value as f64),
            (TypeChar::Int, 4) => read!(i32, f64::from),
            (TypeChar::Uint, 1) => read!(u8, f64::from),
            (TypeChar::Uint, 4) => read!(u32, f64::from),
            (TypeChar::Uint, 8) => read!(u64, |value| value as f64),
            _ => {
                return Err(format!(
                    "expected floats or whole numbers, found {}",
                    self.kind
                ));
            }
        }
        Ok(())
    }
}

pub(super) fn unreadable(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    // What a parser adds to a syntax error takes several lines.
    let first = text.lines().next().unwrap_or_default().trim();
    format!("cannot be read ({})", first.trim_end_matches(':'))
}

/// The bytes before the elements; fewer where there are no more.
fn header(stored: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut header = Vec::new();
    let mut take = |header: &mut Vec<u8>, n: usize| stored.take(n as u64).read_to_end(header);
    take(&mut header, 8)?;
    // Six letters, two bytes of version, and the length: two bytes in version 1, four since.
    let n_length = if header.get(6) == Some(&1) { 2 } else { 4 };
    take(&mut header, n_length)?;
    let length = header.get(8..).unwrap_or_default();
    let length = length
        .iter()
        .rev()
        .fold(0usize, |n, b| n << 8 | usize::from(*b));
    if length > LONGEST_HEADER {
        let problem =
            format!("a header of at most {LONGEST_HEADER} bytes expected, found {length}");
        return Err(std::io::Error::other(problem));
    }
    take(&mut header, length)?;
    Ok(header)
}

/// Whether the axes in a header, empty ones aside, are of more elements than `most`.
fn is_too_large(header: &[u8], most: u64) -> bool {
    let text = String::from_utf8_lossy(header);
    let Some((_, after)) = text.split_once("shape") else {
        return false;
    };
    let inside = after.split(')').next().unwrap_or(after);
    let axes = inside.split(|c: char| !c.is_ascii_digit());
    let axes = axes.filter(|digits| !digits.is_empty());
    let n = axes.map(|digits| digits.parse::<u64>().unwrap_or(u64::MAX).max(1));
    let n = n.fold(1u64, |n, axis| n.saturating_mul(axis));
    n > most
}
