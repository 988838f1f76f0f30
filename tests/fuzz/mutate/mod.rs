//! From a sound file to a mutant: by bytes, or by what the file is built of, so that the damage lies behind the first check.

mod bytes;
mod containers;
mod fields;
mod json;
mod lines;

pub use containers::archive;

use fastrand::Rng;

use super::seeds::{Kind, Seed};

/// A mutant is at most so much longer than its seed: what is long is slow, and finds little.
const MOST_GROWTH: usize = 1 << 14;

/// A mutant of a seed; `other` is another seed's file, of which parts may be taken, `tokens` what the format's readers know.
pub fn mutant(rng: &mut Rng, seed: &Seed, other: &[u8], tokens: &[&str]) -> Vec<u8> {
    let most = seed.bytes.len() + MOST_GROWTH;
    let mut mutant = seed.bytes.clone();
    of_kind(rng, seed.kind, &mut mutant, other, tokens);
    mutant.truncate(most);
    mutant
}

/// Mutates a file as the kind that it is, and now and then as if nothing were known of it.
fn of_kind(rng: &mut Rng, kind: Kind, bytes: &mut Vec<u8>, other: &[u8], tokens: &[&str]) {
    let is_plain = kind == Kind::Bytes || rng.u8(..4) == 0;
    let is_done = !is_plain
        && match kind {
            Kind::Bytes => false,
            Kind::Lines => lines::mutate(rng, bytes, other, tokens),
            Kind::Json => json::mutate_text(rng, bytes, tokens),
            Kind::Safetensors => containers::safetensors(rng, bytes, tokens),
            Kind::Zip => containers::zip(rng, bytes, other, tokens),
            Kind::Npy => containers::npy(rng, bytes, tokens),
            Kind::Pickle => containers::prefixed(rng, bytes, tokens, &[4, 1]),
            Kind::Gguf => containers::prefixed(rng, bytes, tokens, &[8]),
            Kind::Fields => fields::mutate(rng, bytes, tokens),
        };
    if !is_done {
        bytes::mutate(rng, bytes, other, tokens);
    }
}

/// One of some things.
fn one_of<'a, T>(rng: &mut Rng, all: &'a [T]) -> &'a T {
    &all[rng.usize(..all.len())]
}

/// A place, and some bytes from there on; nothing of nothing.
fn stretch(rng: &mut Rng, n: usize) -> std::ops::Range<usize> {
    if n == 0 {
        return 0..0;
    }
    let start = rng.usize(..n);
    let longest = match rng.u8(..4) {
        0 => n - start,
        1 => 64,
        _ => 8,
    };
    let n_taken = 1 + rng.usize(..longest.max(1));
    start..(start + n_taken).min(n)
}
