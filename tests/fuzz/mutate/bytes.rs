//! Mutations of bytes of which nothing is known.

use fastrand::Rng;

use super::{one_of, stretch};

/// Numbers at which counts, offsets and signs turn over.
const NUMBERS: &[u64] = &[
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0xffff,
    0x1_0000,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 40,
    1 << 61,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 7,
    u64::MAX - 1,
    u64::MAX,
];

/// One to four mutations.
pub fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8], tokens: &[&str]) {
    for _ in 0..1 + rng.usize(..4).min(rng.usize(..4)) {
        once(rng, bytes, other, tokens);
    }
}

fn once(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8], tokens: &[&str]) {
    if bytes.is_empty() {
        bytes.push(rng.u8(..));
        return;
    }
    let n = bytes.len();
    let at = near(rng, n);
    match rng.u8(..16) {
        0 | 1 => bytes[at] ^= 1 << rng.u8(..8),
        2 => bytes[at] = rng.u8(..),
        3 => bytes[at] = *one_of(rng, &[0, 0xff, 0x7f, 0x80, b'{', b'"', b'\n', b'0', b'9']),
        4 => bytes[at] = bytes[at].wrapping_add(rng.u8(..16).wrapping_sub(8)),
        5 | 6 => overwrite(bytes, at, &number(rng)),
        7 => {
            let gone = stretch(rng, n);
            bytes.drain(gone);
        }
        8 => {
            let taken = bytes[stretch(rng, n)].to_vec();
            insert(bytes, at, &taken);
        }
        9 => {
            // Many times over: what repeats may be built on itself.
            let taken = bytes[stretch(rng, n)].to_vec();
            let n_times = 1 + rng.usize(..64);
            insert(bytes, at, &taken.repeat(n_times));
        }
        10 => {
            let token = token(rng, tokens);
            insert(bytes, at, &token);
        }
        11 => {
            let token = token(rng, tokens);
            overwrite(bytes, at, &token);
        }
        12 => {
            let at = rng.usize(..n);
            bytes.truncate(at);
        }
        13 => {
            let taken = &other[stretch(rng, other.len())];
            insert(bytes, at, taken);
        }
        14 => {
            bytes.truncate(at);
            bytes.extend(&other[at.min(other.len())..]);
        }
        _ => digits(rng, bytes, at),
    }
}

/// A place; the beginning of a file says more than the rest.
fn near(rng: &mut Rng, n: usize) -> usize {
    match rng.u8(..3) {
        0 => rng.usize(..n.min(64)),
        1 => rng.usize(..n.min(1024)),
        _ => rng.usize(..n),
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    bytes.splice(at..at, new.iter().copied());
}

fn overwrite(bytes: &mut [u8], at: usize, new: &[u8]) {
    let end = (at + new.len()).min(bytes.len());
    bytes[at..end].copy_from_slice(&new[..end - at]);
}

/// A number that means something, of 2, 4 or 8 bytes, the least first or last.
pub fn number(rng: &mut Rng) -> Vec<u8> {
    let number = hostile(rng);
    let n = *one_of(rng, &[2, 4, 8]);
    let mut bytes = number.to_le_bytes()[..n].to_vec();
    if rng.u8(..4) == 0 {
        bytes.reverse();
    }
    bytes
}

/// A number at which something turns over, or a small one.
pub fn hostile(rng: &mut Rng) -> u64 {
    match rng.u8(..4) {
        0 => rng.u64(..300),
        _ => *one_of(rng, NUMBERS),
    }
}

/// A word of the format.
pub fn token(rng: &mut Rng, tokens: &[&str]) -> Vec<u8> {
    if tokens.is_empty() {
        return number(rng);
    }
    one_of(rng, tokens).as_bytes().to_vec()
}

/// Another decimal number in the place of one.
fn digits(rng: &mut Rng, bytes: &mut Vec<u8>, from: usize) {
    let Some(skipped) = bytes[from..].iter().position(u8::is_ascii_digit) else {
        return;
    };
    let start = from + skipped;
    let n = bytes[start..]
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .count();
    let new = match rng.u8(..8) {
        0 => "-1".to_owned(),
        1 => "1e309".to_owned(),
        2 => "0.5".to_owned(),
        3 => "9".repeat(1 + rng.usize(..400)),
        _ => hostile(rng).to_string(),
    };
    bytes.splice(start..start + n, new.into_bytes());
}
