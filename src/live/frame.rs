//! Frames: the lengths of a header and of a body, a JSON header, and bytes.

use std::io::{self, Read, Write};

use serde_json::Value;

/// Version of the channel, which both sides name in every header.
pub const VERSION: u64 = 1;
/// Bytes before a header: its length as u32 and that of the body as u64, both little-endian.
const N_LENGTHS: usize = 12;
/// Most bytes of a header.
const LONGEST_HEADER: usize = 16 << 20;

/// Writes a frame without a body.
///
/// # Errors
/// When the other end is gone.
pub fn write(to: &mut dyn Write, mut header: Value) -> io::Result<()> {
    header["v"] = VERSION.into();
    let text = serde_json::to_vec(&header)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&0_u64.to_le_bytes())?;
    to.write_all(&text)?;
    to.flush()
}

/// Reads a header, and the length of the body behind it.
///
/// # Errors
/// When the other end is gone, or what it sent is not a header of this version.
pub fn read_header(from: &mut dyn Read) -> io::Result<(Value, u64)> {
    let mut lengths = [0; N_LENGTHS];
    from.read_exact(&mut lengths)?;
    let (of_header, of_body) = lengths.split_at(4);
    let n_header = of_header.try_into().map(u32::from_le_bytes);
    let n_body = of_body.try_into().map(u64::from_le_bytes);
    let (n_header, n_body) = (
        n_header.map_err(io::Error::other)? as usize,
        n_body.map_err(io::Error::other)?,
    );
    if n_header > LONGEST_HEADER {
        return Err(invalid(format!(
            "a header of {n_header} bytes, expected at most {LONGEST_HEADER}"
        )));
    }
    let mut text = vec![0; n_header];
    from.read_exact(&mut text)?;
    let header: Value = serde_json::from_slice(&text)
        .map_err(|e| invalid(format!("a header that is no JSON ({e})")))?;
    match header.get("v").and_then(Value::as_u64) {
        Some(VERSION) => Ok((header, n_body)),
        other => Err(invalid(format!(
            "version {other:?} of the channel, expected {VERSION}"
        ))),
    }
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}
