//! Parses the arguments of pickle opcodes: numbers, texts and memo indices, never beyond the end of the bytes.

use std::rc::Rc;

use super::value::{Value, quote};

/// Cursor over the bytes of a pickle.
pub struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    fn n_left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, n: u64, opcode: &str) -> Result<&'a [u8], String> {
        let left = self.n_left();
        match usize::try_from(n) {
            Ok(n) if n <= left => {
                let taken = &self.bytes[self.at..self.at + n];
                self.at += n;
                Ok(taken)
            }
            _ => Err(format!("{opcode} claims {n} bytes, {left} are left")),
        }
    }

    /// Reads an unsigned number of `n` bytes, least significant first.
    fn unsigned(&mut self, n: u64, opcode: &str) -> Result<u64, String> {
        let bytes = self.take(n, opcode)?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |sum, b| sum << 8 | u64::from(*b)))
    }

    /// Reads text up to the end of the line.
    pub fn line(&mut self, opcode: &str) -> Result<&'a str, String> {
        let left = &self.bytes[self.at..];
        let Some(n) = left.iter().position(|b| *b == b'\n') else {
            return Err(format!(
                "{opcode} ends without the end of a line: truncated"
            ));
        };
        self.at += n + 1;
        std::str::from_utf8(&left[..n]).map_err(|_| format!("{opcode} expected text"))
    }

    /// Checks the length of a frame against the bytes left; frames have no other use here.
    pub fn frame(&mut self) -> Result<(), String> {
        let n = self.unsigned(8, "FRAME")?;
        let left = self.n_left();
        if n > left as u64 {
            return Err(format!("FRAME claims {n} bytes, {left} are left"));
        }
        Ok(())
    }

    /// Reads the memo index of an opcode.
    pub fn place(&mut self, opcode: u8) -> Result<u64, String> {
        match opcode {
            b'q' | b'h' => self.unsigned(1, "a place in the memo"),
            b'r' | b'j' => self.unsigned(4, "a place in the memo"),
            _ => {
                let text = self.line("a place in the memo")?;
                text.parse()
                    .map_err(|_| format!("expected a place in the memo, found {}", quote(text)))
            }
        }
    }

    pub fn number(&mut self, opcode: u8) -> Result<Value<'a>, String> {
        match opcode {
            b'I' => match self.line("INT")? {
                "00" => Ok(Value::Bool(false)),
                "01" => Ok(Value::Bool(true)),
                text => integer(text, "INT"),
            },
            b'L' => {
                let text = self.line("LONG")?;
                integer(text.strip_suffix('L').unwrap_or(text), "LONG")
            }
            b'F' => {
                let text = self.line("FLOAT")?;
                let parsed = text.parse().map(Value::Float);
                parsed.map_err(|_| format!("FLOAT expected a number, found {}", quote(text)))
            }
            b'K' => Ok(Value::Int(self.unsigned(1, "BININT1")? as i64)),
            b'M' => Ok(Value::Int(self.unsigned(2, "BININT2")? as i64)),
            b'J' => {
                let bits = self.unsigned(4, "BININT")? as u32;
                Ok(Value::Int(i64::from(bits.cast_signed())))
            }
            b'G' => {
                // The only number that is stored most significant byte first.
                let bits = self.unsigned(8, "BINFLOAT")?.swap_bytes();
                Ok(Value::Float(f64::from_bits(bits)))
            }
            0x8a => {
                let n = self.unsigned(1, "LONG1")?;
                Ok(long(self.take(n, "LONG1")?))
            }
            _ => {
                let n = self.unsigned(4, "LONG4")?;
                Ok(long(self.take(n, "LONG4")?))
            }
        }
    }

    pub fn text(&mut self, opcode: u8) -> Result<Value<'a>, String> {
        let (length_bytes, name) = match opcode {
            b'S' => return self.quoted(),
            b'V' => return self.escaped(),
            b'U' => (1, "SHORT_BINSTRING"),
            b'T' => (4, "BINSTRING"),
            b'C' => (1, "SHORT_BINBYTES"),
            b'B' => (4, "BINBYTES"),
            0x8e => (8, "BINBYTES8"),
            0x96 => (8, "BYTEARRAY8"),
            0x8c => (1, "SHORT_BINUNICODE"),
            b'X' => (4, "BINUNICODE"),
            _ => (8, "BINUNICODE8"),
        };
        let n = self.unsigned(length_bytes, name)?;
        let bytes = self.take(n, name)?;
        match (name, std::str::from_utf8(bytes)) {
            ("SHORT_BINBYTES" | "BINBYTES" | "BINBYTES8" | "BYTEARRAY8", _) => {
                Ok(Value::Bytes(bytes))
            }
            (_, Ok(text)) => Ok(Value::Text(Rc::from(text))),
            // Python 2 strings were bytes.
            ("BINSTRING" | "SHORT_BINSTRING", Err(_)) => Ok(Value::Bytes(bytes)),
            (_, Err(_)) => Err(format!("{name} expected UTF-8")),
        }
    }

    /// Reads a quoted text, as protocol 0 writes it.
    fn quoted(&mut self) -> Result<Value<'a>, String> {
        let line = self.line("STRING")?.trim_end();
        let mut inside = None;
        for mark in ['\'', '"'] {
            inside = inside.or(line.strip_prefix(mark).and_then(|l| l.strip_suffix(mark)));
        }
        let Some(inside) = inside else {
            return Err("STRING expected quotation marks".to_owned());
        };
        unescape(inside, "STRING", |c, rest| {
            Some(match c {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                '\\' | '\'' | '"' => c,
                'x' => hexadecimal(rest, 2)?,
                _ => return None,
            })
        })
    }

    /// Reads a text with `\u` escapes, as protocol 0 writes it.
    fn escaped(&mut self) -> Result<Value<'a>, String> {
        let left = &self.bytes[self.at..];
        let Some(n) = left.iter().position(|b| *b == b'\n') else {
            return Err("UNICODE ends without the end of a line: truncated".to_owned());
        };
        self.at += n + 1;
        // Here, bytes above 127 are Latin-1.
        let line: String = left[..n].iter().map(|b| char::from(*b)).collect();
        unescape(&line, "UNICODE", |c, rest| match c {
            'u' => hexadecimal(rest, 4),
            'U' => hexadecimal(rest, 8),
            _ => None,
        })
    }
}

fn unescape<'a>(
    line: &str,
    opcode: &str,
    meaning: impl Fn(char, &mut std::str::Chars<'_>) -> Option<char>,
) -> Result<Value<'a>, String> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        let escape = rest.next();
        match escape.and_then(|c| meaning(c, &mut rest)) {
            Some(c) => text.push(c),
            None => return Err(format!("{opcode} holds an escape that is not understood")),
        }
    }
    Ok(Value::Text(Rc::from(text)))
}

fn hexadecimal(rest: &mut std::str::Chars<'_>, n: usize) -> Option<char> {
    let digits: String = rest.take(n).collect();
    if digits.len() != n {
        return None;
    }
    u32::from_str_radix(&digits, 16)
        .ok()
        .and_then(char::from_u32)
}

fn integer<'a>(text: &str, opcode: &str) -> Result<Value<'a>, String> {
    text.parse().map(Value::Int).map_err(|_| {
        format!(
            "{opcode} expected an integer of 64 bits, found {}",
            quote(text)
        )
    })
}

/// Reads a two's complement integer of any length, least significant byte first.
fn long(bytes: &[u8]) -> Value<'_> {
    if bytes.len() > 8 {
        return Value::Big(bytes);
    }
    let is_negative = bytes.last().is_some_and(|b| *b >= 0x80);
    let mut whole = [if is_negative { 0xff } else { 0 }; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    Value::Int(i64::from_le_bytes(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(opcode: u8, bytes: &[u8]) -> Result<Value<'_>, String> {
        Scan::new(bytes).number(opcode)
    }

    fn text(opcode: u8, bytes: &[u8]) -> Result<Value<'_>, String> {
        Scan::new(bytes).text(opcode)
    }

    #[test]
    fn integers_of_every_width_keep_their_sign() {
        for (opcode, bytes, expected) in [
            (b'K', &b"\xff"[..], 255),
            (b'M', b"\xff\xff", 65535),
            (b'J', b"\xff\xff\xff\xff", -1),
            (b'J', b"\xff\xff\xff\x7f", i64::from(i32::MAX)),
            (0x8a, b"\0", 0),
            (0x8a, b"\x01\xff", -1),
            (0x8a, b"\x02\xff\0", 255),
            (0x8a, b"\x08\0\0\0\0\0\0\0\x80", i64::MIN),
            (0x8b, b"\x01\0\0\0\x80", -128),
            (b'I', b"-12\n", -12),
            (b'L', b"12L\n", 12),
        ] {
            assert_eq!(number(opcode, bytes), Ok(Value::Int(expected)), "{bytes:?}");
        }
    }

    #[test]
    fn floats_are_read_most_significant_byte_first() {
        let half = 0.5f64.to_be_bytes();
        assert_eq!(number(b'G', &half), Ok(Value::Float(0.5)));
        assert_eq!(number(b'F', b"-inf\n"), Ok(Value::Float(f64::NEG_INFINITY)));
    }

    #[test]
    fn escapes_in_protocol_0_texts_are_decoded() {
        for (opcode, bytes, expected) in [
            (b'S', &b"'a\\n\\'\\x41'\n"[..], "a\n'A"),
            (b'S', b"\"\"\n", ""),
            (b'V', b"\xe4\\u005c\\u000a\n", "ä\\\n"),
            (b'V', b"\\U0001f600\n", "😀"),
        ] {
            assert_eq!(text(opcode, bytes), Ok(Value::Text(expected.into())));
        }
        for (opcode, bytes) in [
            (b'S', &b"'\n"[..]),
            (b'S', b"'\\q'\n"),
            (b'V', b"\\u12\n"),
            (b'V', b"\\ud800\n"),
            (b'V', b"\\\n"),
        ] {
            assert!(text(opcode, bytes).is_err(), "{bytes:?}");
        }
    }
}
