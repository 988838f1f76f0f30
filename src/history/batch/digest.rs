//! SHA-256 digests as hexadecimal text.

use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use attnscope_checkpoint::open_regular;
use sha2::{Digest, Sha256};

/// Bytes read from a file at a time.
const PIECE: usize = 1 << 20;

/// Returns the digest of several parts. Each is preceded by its length, so that different lists of parts give different input.
pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    letters(&digest.finalize())
}

/// Returns the digest of bytes, as `sha256sum` prints it.
pub fn of_bytes(bytes: &[u8]) -> String {
    letters(&Sha256::digest(bytes))
}

/// Returns the digest of parts one after another, as that of one text.
pub fn of_joined(parts: &[&[u8]]) -> String {
    let mut digest = Sha256::new();
    parts.iter().for_each(|part| digest.update(part));
    letters(&digest.finalize())
}

/// Returns the digest of a file, as `sha256sum` prints it.
///
/// # Errors
/// When it cannot be read.
pub fn of_file(path: &Path) -> io::Result<String> {
    let mut file = open_regular(path)?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(letters(&digest.finalize())),
            n => digest.update(&piece[..n]),
        }
    }
}

/// Returns the digest of a part of a file, given by its offset and length in bytes.
///
/// # Errors
/// When it cannot be read.
pub fn of_file_part(path: &Path, (start, len): (u64, u64)) -> io::Result<String> {
    let file = open_regular(path)?;
    let mut digest = Sha256::new();
    let (mut at, end) = (start, start.saturating_add(len));
    let mut piece = vec![0; PIECE.min(len as usize)];
    while at < end {
        let n = (end - at).min(piece.len() as u64) as usize;
        file.read_exact_at(&mut piece[..n], at)?;
        digest.update(&piece[..n]);
        at += n as u64;
    }
    Ok(letters(&digest.finalize()))
}

fn letters(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_lengths_count_and_a_file_has_the_digest_of_its_bytes() {
        let of = |parts: [&str; 2]| of_parts(parts.map(str::as_bytes));
        assert_ne!(of(["ab", "c"]), of(["a", "bc"]));
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "abc").expect("writes");
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of_file(file.path()).expect("reads"), known);
        assert_eq!(of_bytes(b"abc"), known);
    }
}
