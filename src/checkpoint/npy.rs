//! A NumPy array, in a file or an archive: its header, and its elements in the order of the file.
//!
//! The header is a Python dict with three keys, as in NumPy's format description (NEP 1); no other Python is parsed.

use std::io::Read;

use half::f16;

/// Limit on the bytes of a header; NumPy itself reads at most ten thousand.
const LONGEST_HEADER: usize = 1 << 16;
const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy's own limit on axes.
const MOST_AXES: usize = 64;
/// Number of elements decoded at a time.
const AT_ONCE: usize = 1 << 14;

/// An array whose header has been read.
#[derive(Debug)]
pub(super) struct Npy<R> {
    stored: R,
    kind: Kind,
    /// Bytes before the first element.
    n_before: usize,
    pub shape: Vec<usize>,
    /// Whether the array is column-major: the first axis varies fastest.
    pub is_fortran: bool,
}

/// Element type: byte order, type letter, and bytes per element.
#[derive(Debug, Clone, PartialEq)]
struct Kind {
    is_big_endian: bool,
    letter: char,
    n_bytes: usize,
    /// Spelling in the file.
    said: String,
}

impl<R: Read> Npy<R> {
    /// # Errors
    /// One clause that says what is wrong with the header, or that there are more than `most` elements.
    pub fn open(mut stored: R, most: u64) -> Result<Self, String> {
        let (n_before, header) = header(&mut stored)?;
        let Header {
            kind,
            is_fortran,
            shape,
        } = Literal::new(&header).header()?;
        let n = super::shape::n_elements(&shape);
        if n.is_none_or(|n| n as u64 > most) {
            return Err(format!(
                "expected at most {most} elements, found shape {shape:?}"
            ));
        }
        Ok(Self {
            stored,
            kind,
            n_before,
            shape,
            is_fortran,
        })
    }

    /// Checks before reading that all elements fit into `n_bytes`.
    ///
    /// # Errors
    /// One clause, when there are fewer bytes than the header requires.
    pub fn fits_into(&self, n_bytes: u64) -> Result<(), String> {
        let of_elements = self.n_elements().saturating_mul(self.kind.n_bytes);
        let needed = of_elements.saturating_add(self.n_before);
        if needed as u64 > n_bytes {
            let (shape, said) = (&self.shape, &self.kind.said);
            return Err(format!(
                "truncated: shape {shape:?} of {said} needs {needed} bytes with its header, found {n_bytes}"
            ));
        }
        Ok(())
    }

    pub fn is_float(&self) -> bool {
        self.kind.letter == 'f'
    }

    /// Names the element type: `f16`, `f32` or `f64`, or NumPy's letters for anything but a float.
    pub fn stored_as(&self) -> String {
        if self.is_float() {
            format!("f{}", 8 * self.kind.n_bytes)
        } else {
            self.kind.said.clone()
        }
    }

    /// Bytes before the first element.
    pub fn n_before(&self) -> usize {
        self.n_before
    }

    /// Whether elements have several bytes, the most significant first.
    pub fn is_big_endian(&self) -> bool {
        self.kind.is_big_endian && self.kind.n_bytes > 1
    }

    pub fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Passes each element and its index in the file to `take`.
    ///
    /// # Errors
    /// One clause, when the element type is unsupported or the bytes end early.
    pub fn each(mut self, take: &mut dyn FnMut(usize, f64)) -> Result<(), String> {
        let read = self.kind.reader()?;
        let size = self.kind.n_bytes;
        let n = self.n_elements();
        let mut bytes = vec![0; AT_ONCE.min(n) * size];
        for start in (0..n).step_by(AT_ONCE) {
            let n_here = AT_ONCE.min(n - start);
            let bytes = &mut bytes[..n_here * size];
            self.stored.read_exact(bytes).map_err(|e| unreadable(&e))?;
            for (idx, element) in bytes.chunks_exact_mut(size).enumerate() {
                if self.kind.is_big_endian {
                    element.reverse();
                }
                take(start + idx, read(element));
            }
        }
        Ok(())
    }
}

impl Kind {
    /// Parses a type such as `<f4`: byte order, letter, size.
    fn parse(said: &str) -> Result<Self, String> {
        let refused = || format!("expected floats or whole numbers, found {said:?}");
        let mut letters = said.chars();
        let is_big_endian = match letters.next() {
            Some('<' | '|') => false,
            Some('=') => cfg!(target_endian = "big"),
            Some('>') => true,
            _ => return Err(refused()),
        };
        let letter = letters.next().ok_or_else(refused)?;
        let n_bytes: u8 = letters.as_str().parse().map_err(|_| refused())?;
        Ok(Self {
            is_big_endian,
            letter,
            n_bytes: usize::from(n_bytes),
            said: said.to_owned(),
        })
    }

    /// Returns the conversion from little-endian bytes to a number.
    fn reader(&self) -> Result<fn(&[u8]) -> f64, String> {
        macro_rules! number {
            ($kind:ty, $widen:expr) => {
                |bytes| {
                    let bytes = bytes.try_into().unwrap_or_default();
                    $widen(<$kind>::from_le_bytes(bytes))
                }
            };
        }
        Ok(match (self.letter, self.n_bytes) {
            ('f', 2) => number!(f16, f64::from),
            ('f', 4) => number!(f32, f64::from),
            ('f', 8) => number!(f64, |value| value),
            ('i', 1) => number!(i8, f64::from),
            ('i', 2) => number!(i16, f64::from),
            ('i', 4) => number!(i32, f64::from),
            ('i', 8) => number!(i64, |value| value as f64),
            ('u' | 'b', 1) => number!(u8, f64::from),
            ('u', 2) => number!(u16, f64::from),
            ('u', 4) => number!(u32, f64::from),
            ('u', 8) => number!(u64, |value| value as f64),
            _ => {
                let found = &self.said;
                return Err(format!("expected floats or whole numbers, found {found:?}"));
            }
        })
    }
}

pub(super) fn unreadable(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    // A library's syntax error may have several lines.
    let first = text.lines().next().unwrap_or_default().trim();
    format!("cannot be read ({})", first.trim_end_matches(':'))
}

/// Reads the header's text, after magic number, version and length; also returns the total size of these.
fn header(stored: &mut impl Read) -> Result<(usize, String), String> {
    let mut take = |n: usize| {
        let mut bytes = vec![0; n];
        let read = stored.read_exact(&mut bytes);
        read.map_err(|e| unreadable(&e)).map(|()| bytes)
    };
    let begin = take(MAGIC.len() + 2)?;
    let [before @ .., major, _minor] = begin.as_slice() else {
        return Err("is not a .npy array".to_owned());
    };
    if before != MAGIC {
        return Err(r"is not a .npy array: expected \x93NUMPY before its header".to_owned());
    }
    // The length has two bytes in version 1, four later.
    let n_length = match major {
        1 => 2,
        2 | 3 => 4,
        other => return Err(format!("expected .npy version 1, 2 or 3, found {other}")),
    };
    let length = take(n_length)?;
    let length = length.iter().rev();
    let length = length.fold(0usize, |n, byte| n << 8 | usize::from(*byte));
    if length > LONGEST_HEADER {
        return Err(format!(
            "a header of at most {LONGEST_HEADER} bytes expected, found {length}"
        ));
    }
    let text = String::from_utf8(take(length)?).map_err(|_| "the header is not text".to_owned())?;
    Ok((begin.len() + n_length + length, text))
}

/// The contents of a header.
#[derive(Debug, PartialEq)]
struct Header {
    kind: Kind,
    is_fortran: bool,
    shape: Vec<usize>,
}

/// Parser of a Python literal, without recursion: nothing can nest.
struct Literal<'a> {
    whole: &'a str,
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            whole: text,
            rest: text,
        }
    }

    /// Parses `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`, with the keys in any order.
    fn header(mut self) -> Result<Header, String> {
        let (mut kind, mut is_fortran, mut shape) = (None, None, None);
        self.expect("{")?;
        while !self.takes("}") {
            let key = self.text()?;
            self.expect(":")?;
            let is_new = match key {
                "descr" => kind.replace(self.kind()?).is_none(),
                "fortran_order" => is_fortran.replace(self.truth()?).is_none(),
                "shape" => shape.replace(self.axes()?).is_none(),
                _ => return Err(self.refused("descr, fortran_order or shape", key)),
            };
            if !is_new {
                return Err(format!("the header says {key} twice"));
            }
            if !self.takes(",") {
                self.expect("}")?;
                break;
            }
        }
        if !self.rest.trim().is_empty() {
            return Err(self.refused("the end of the header", self.rest));
        }
        let missing = |key: &str| format!("the header has no {key}");
        Ok(Header {
            kind: kind.ok_or_else(|| missing("descr"))?,
            is_fortran: is_fortran.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }

    fn refused(&self, expected: &str, found: &str) -> String {
        let found: String = found.chars().take(20).collect();
        let at = self.whole.len() - self.rest.len();
        format!("header, byte {at}: expected {expected}, found {found:?}")
    }

    fn takes(&mut self, sign: &str) -> bool {
        let rest = self.rest.trim_start();
        match rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.takes(sign) {
            Ok(())
        } else {
            Err(self.refused(sign, self.rest.trim_start()))
        }
    }

    /// Parses a text in either kind of quotes; escapes are not supported, as none of the three keys needs any.
    fn text(&mut self) -> Result<&'a str, String> {
        let quote = if self.takes("'") { '\'' } else { '"' };
        if quote == '"' {
            self.expect("\"")?;
        }
        let (text, rest) = self
            .rest
            .split_once(quote)
            .ok_or_else(|| self.refused("a closing quote", self.rest))?;
        self.rest = rest;
        Ok(text)
    }

    fn kind(&mut self) -> Result<Kind, String> {
        if self.rest.trim_start().starts_with('[') {
            return Err("expected an array of numbers, found records".to_owned());
        }
        Kind::parse(self.text()?)
    }

    fn truth(&mut self) -> Result<bool, String> {
        if self.takes("True") {
            Ok(true)
        } else {
            self.expect("False").map(|()| false)
        }
    }

    /// Parses `(2, 3)`, `(2,)` or `()`.
    fn axes(&mut self) -> Result<Vec<usize>, String> {
        self.expect("(")?;
        let mut axes = Vec::new();
        while !self.takes(")") {
            let rest = self.rest.trim_start();
            let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let axis = rest[..n_digits].parse();
            axes.push(axis.map_err(|_| self.refused("a whole number", rest))?);
            // Long integers of Python 2 end in L.
            self.rest = rest[n_digits..]
                .strip_prefix('L')
                .unwrap_or(&rest[n_digits..]);
            if axes.len() > MOST_AXES {
                return Err(format!("expected at most {MOST_AXES} axes, found more"));
            }
            if !self.takes(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(axes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(header: &str, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(header.len()).expect("short").to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat()
    }

    fn values(bytes: &[u8]) -> Result<Vec<f64>, String> {
        let mut values = Vec::new();
        Npy::open(bytes, 100)?.each(&mut |_, value| values.push(value))?;
        Ok(values)
    }

    #[test]
    fn elements_of_either_byte_order_are_decoded() {
        for (kind, data) in [
            ("<f4", &[0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0][..]),
            (">f4", &[0x3f, 0xc0, 0, 0, 0xc0, 0, 0, 0]),
            ("<f2", &[0, 0x3e, 0, 0xc0]),
        ] {
            let header =
                format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': (2,), }}   \n");
            assert_eq!(values(&array(&header, data)), Ok(vec![1.5, -2.0]), "{kind}");
        }
        let header = "{\"shape\": (1L, 2L), \"descr\": \"|u1\", \"fortran_order\": True}";
        let bytes = array(header, &[7, 255]);
        assert_eq!(values(&bytes), Ok(vec![7.0, 255.0]));
        let opened = Npy::open(bytes.as_slice(), 2).expect("an array");
        assert_eq!((opened.shape, opened.is_fortran), (vec![1, 2], true));
    }

    #[test]
    fn invalid_headers_are_refused_in_one_clause() {
        let ok = "'fortran_order': False, 'shape': (1,)";
        for (header, says) in [
            (format!("{{{}", "{".repeat(60)), "expected"),
            (format!("{{'descr': [('a', '<f4')], {ok}}}"), "records"),
            (format!("{{'descr': '<f4', 'descr': '<f4', {ok}}}"), "twice"),
            (format!("{{'descr': '<f4', {ok}}} more"), "the end"),
            (
                "{'descr': '<f4', 'shape': (1,)}".to_owned(),
                "no fortran_order",
            ),
            (
                format!("{{'descr': '<c8', {ok}}}"),
                "floats or whole numbers",
            ),
            (
                format!("{{'descr': '<f4', 'x': 1, {ok}}}"),
                "descr, fortran_order or shape",
            ),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}".to_owned(),
                "a whole number",
            ),
        ] {
            let refused = values(&array(&header, &[0; 4])).expect_err("refused");
            assert!(refused.contains(says), "{header}: {refused}");
            assert_eq!(refused.lines().count(), 1);
        }
    }

    #[test]
    fn shapes_with_too_many_elements_are_refused() {
        for shape in [
            "(101,)",
            "(4294967296, 4294967296)",
            "(0, 1099511627776, 1099511627776)",
        ] {
            let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}");
            let refused = Npy::open(array(&header, &[]).as_slice(), 100).expect_err("refused");
            assert!(refused.contains("at most 100 elements"), "{refused}");
        }
    }

    #[test]
    fn an_array_larger_than_its_file_is_refused_before_reading() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 4)}";
        let whole = array(header, &[0; 80]);
        let opened = Npy::open(whole.as_slice(), 100).expect("an array");
        assert_eq!(opened.fits_into(whole.len() as u64), Ok(()));
        let refused = opened.fits_into(whole.len() as u64 - 1);
        let said = refused.expect_err("too short");
        assert!(said.contains("shape [5, 4] of <f4"), "{said}");
    }

    #[test]
    fn an_array_that_ends_early_is_refused() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}";
        let whole = array(header, &[0; 12]);
        assert!(values(&whole).is_ok());
        for n in 0..whole.len() {
            assert!(values(&whole[..n]).is_err(), "{n} bytes");
        }
    }
}
