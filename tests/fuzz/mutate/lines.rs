//! Mutations of text by lines and fields.

use fastrand::Rng;

use super::bytes::{hostile, token};
use super::{json, one_of};

/// Mutates lines; false where there are none.
pub fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8], tokens: &[&str]) -> bool {
    let mut lines: Vec<Vec<u8>> = bytes.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    if bytes.is_empty() {
        return false;
    }
    for _ in 0..1 + rng.usize(..3) {
        let at = rng.usize(..lines.len());
        match rng.u8(..10) {
            0 if lines.len() > 1 => drop(lines.remove(at)),
            1 => lines.insert(at, lines[at].clone()),
            2 => {
                let with = rng.usize(..lines.len());
                lines.swap(at, with);
            }
            3 => {
                let theirs: Vec<&[u8]> = other.split(|b| *b == b'\n').collect();
                lines.insert(at, one_of(rng, &theirs).to_vec());
            }
            4 => {
                let next = lines.get(at + 1).cloned().unwrap_or_default();
                lines[at].extend(next);
            }
            // A line may be JSON of its own.
            5 | 6 if json::mutate_text(rng, &mut lines[at], tokens) => {}
            _ => field(rng, &mut lines[at], tokens),
        }
    }
    *bytes = lines.join(&b'\n');
    true
}

/// Another word in the place of one.
fn field(rng: &mut Rng, line: &mut Vec<u8>, tokens: &[&str]) {
    let mut fields: Vec<Vec<u8>> = line.split(|b| *b == b' ').map(<[u8]>::to_vec).collect();
    let at = rng.usize(..fields.len());
    match rng.u8(..9) {
        0 if fields.len() > 1 => drop(fields.remove(at)),
        1 => fields.insert(at, fields[at].clone()),
        2 => fields[at] = hostile(rng).to_string().into_bytes(),
        3 => fields[at] = b"nan".to_vec(),
        4 => fields[at] = format!("-{}e{}", hostile(rng), rng.u16(..400)).into_bytes(),
        5 => fields[at].clear(),
        6 => {
            let odd = [
                "\u{c}", "\u{a0}", "\u{2028}", "\t", "\r", "\0", "\u{feff}", "é", "𝄞",
            ];
            let odd = one_of(rng, &odd).as_bytes();
            let place = rng.usize(..=fields[at].len());
            fields[at].splice(place..place, odd.iter().copied());
        }
        _ => fields[at] = token(rng, tokens),
    }
    *line = fields.join(&b' ');
}
