//! GGUF block types that are decoded here: lookup tables (`iq4_*`), lattices (`iq2_*`, `iq3_*`), ternary digits (`tq*`), MXFP4.
//!
//! Layouts from ggml (`ggml-common.h`, `ggml-quants.c`). `grids.bin` holds ggml's lattices (MIT licence), written by
//! `fixtures/formats/make_gguf.py`.

use half::f16;

use super::small_floats::{half_scale, scaled_e2m1};

/// A type of block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnBlock {
    Iq2Xxs,
    Iq2Xs,
    Iq2S,
    Iq3Xxs,
    Iq3S,
    Iq4Nl,
    Iq4Xs,
    Tq1,
    Tq2,
    Mxfp4,
}

/// Values of the four-bit codes of `iq4_nl` and `iq4_xs`.
const IQ4: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// All lattices, concatenated: indices of magnitudes, two bits each for `iq2_*`, four for `iq3_*`.
static GRIDS: &[u8; 5120] = include_bytes!("grids.bin");
const OF_IQ2_XXS: usize = 0;
const OF_IQ2_XS: usize = 512;
const OF_IQ2_S: usize = 512 + 1024;
const OF_IQ3_XXS: usize = 512 + 1024 + 2048;
const OF_IQ3_S: usize = 512 + 1024 + 2048 + 512;

const IQ2: [f32; 4] = [8.0, 25.0, 43.0, 0.0];
const IQ3_XXS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];

/// Reads a half-precision number.
fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Adds the eighth sign, which makes the number of negative signs even.
fn even_signs(seven: u32) -> u32 {
    seven | (seven.count_ones() & 1) << 7
}

/// Looks up eight magnitudes of two bits each.
fn eight(grid: usize, index: usize) -> [f32; 8] {
    let at = grid + 2 * index;
    let codes = u16::from_le_bytes([GRIDS[at], GRIDS[at + 1]]);
    std::array::from_fn(|i| IQ2[usize::from(codes >> (2 * i) & 3)])
}

/// Looks up four magnitudes of four bits each.
fn four(grid: usize, index: usize) -> [usize; 4] {
    let at = grid + 2 * index;
    let codes = u16::from_le_bytes([GRIDS[at], GRIDS[at + 1]]);
    std::array::from_fn(|i| usize::from(codes >> (4 * i) & 0xf))
}

/// Writes scale × magnitude, with one sign bit per value.
fn signed(to: &mut [f32], magnitudes: &[f32], signs: u32, scale: f32) {
    for (i, (to, magnitude)) in to.iter_mut().zip(magnitudes).enumerate() {
        let value = scale * magnitude;
        *to = if signs >> i & 1 == 0 { value } else { -value };
    }
}

impl OwnBlock {
    /// Decodes one block.
    pub fn decode(self, block: &[u8], to: &mut [f32]) {
        match self {
            Self::Iq2Xxs => iq2_xxs(block, to),
            Self::Iq2Xs => iq2_xs(block, to),
            Self::Iq2S => iq2_s(block, to),
            Self::Iq3Xxs => iq3_xxs(block, to),
            Self::Iq3S => iq3_s(block, to),
            Self::Iq4Nl => nibbles(&block[2..], to, |code| half(block) * f32::from(IQ4[code])),
            Self::Iq4Xs => iq4_xs(block, to),
            Self::Tq1 => tq1(block, to),
            Self::Tq2 => tq2(block, to),
            Self::Mxfp4 => {
                let scale = half_scale(block[0]);
                nibbles(&block[1..], to, |code| scaled_e2m1(code as u8, scale));
            }
        }
    }
}

/// Decodes the lower halves of all bytes, then the upper halves.
fn nibbles(bytes: &[u8], to: &mut [f32], value: impl Fn(usize) -> f32) {
    let n = to.len() / 2;
    for (i, byte) in bytes[..n].iter().enumerate() {
        to[i] = value(usize::from(byte & 0xf));
        to[i + n] = value(usize::from(byte >> 4));
    }
}

fn iq2_xxs(block: &[u8], to: &mut [f32]) {
    let d = half(block);
    for (part, to) in block[2..].chunks_exact(8).zip(to.chunks_mut(32)) {
        let signs = word(&part[4..]);
        let scale = d * (0.5 + (signs >> 28) as f32) * 0.25;
        for (i, to) in to.chunks_mut(8).enumerate() {
            let of_eight = even_signs(signs >> (7 * i) & 0x7f);
            signed(
                to,
                &eight(OF_IQ2_XXS, usize::from(part[i])),
                of_eight,
                scale,
            );
        }
    }
}

fn iq2_xs(block: &[u8], to: &mut [f32]) {
    let d = half(block);
    let (codes, scales) = block[2..].split_at(64);
    for (i, to) in to.chunks_mut(8).enumerate() {
        let code = u16::from_le_bytes([codes[2 * i], codes[2 * i + 1]]);
        let scale = scales[i / 4] >> (4 * (i / 2 % 2)) & 0xf;
        let scale = d * (0.5 + f32::from(scale)) * 0.25;
        let signs = even_signs(u32::from(code >> 9));
        signed(
            to,
            &eight(OF_IQ2_XS, usize::from(code & 0x1ff)),
            signs,
            scale,
        );
    }
}

fn iq2_s(block: &[u8], to: &mut [f32]) {
    let d = half(block);
    let (low, signs, high, scales) = (&block[2..34], &block[34..66], &block[66..74], &block[74..]);
    for (i, to) in to.chunks_mut(8).enumerate() {
        let high = usize::from(high[i / 4] >> (2 * (i % 4)) & 3);
        let scale = scales[i / 4] >> (4 * (i / 2 % 2)) & 0xf;
        let scale = d * (0.5 + f32::from(scale)) * 0.25;
        let index = usize::from(low[i]) | high << 8;
        signed(to, &eight(OF_IQ2_S, index), u32::from(signs[i]), scale);
    }
}

fn iq3_xxs(block: &[u8], to: &mut [f32]) {
    let d = half(block);
    let (codes, rest) = block[2..].split_at(64);
    for (i, to) in to.chunks_mut(32).enumerate() {
        let signs = word(&rest[4 * i..]);
        let scale = d * (0.5 + (signs >> 28) as f32) * 0.5;
        for (j, to) in to.chunks_mut(8).enumerate() {
            let of_eight = even_signs(signs >> (7 * j) & 0x7f);
            for (half, to) in to.chunks_mut(4).enumerate() {
                let codes = four(OF_IQ3_XXS, usize::from(codes[8 * i + 2 * j + half]));
                let magnitudes = codes.map(|code| IQ3_XXS[code & 7]);
                signed(to, &magnitudes, of_eight >> (4 * half), scale);
            }
        }
    }
}

fn iq3_s(block: &[u8], to: &mut [f32]) {
    let d = half(block);
    let (low, high) = (&block[2..66], &block[66..74]);
    let (signs, scales) = (&block[74..106], &block[106..]);
    for (i, to) in to.chunks_mut(4).enumerate() {
        let index = usize::from(low[i]) | usize::from(high[i / 8] >> (i % 8) & 1) << 8;
        let scale = scales[i / 16] >> (4 * (i / 8 % 2)) & 0xf;
        let scale = d * (1.0 + 2.0 * f32::from(scale));
        let magnitudes = four(OF_IQ3_S, index).map(|code| (2 * code + 1) as f32);
        signed(
            to,
            &magnitudes,
            u32::from(signs[i / 2] >> (4 * (i % 2))),
            scale,
        );
    }
}

fn iq4_xs(block: &[u8], to: &mut [f32]) {
    let d = half(block);
    let high = u16::from_le_bytes([block[2], block[3]]);
    let (low, codes) = block[4..].split_at(4);
    for (i, to) in to.chunks_mut(32).enumerate() {
        let low = i16::from(low[i / 2] >> (4 * (i % 2)) & 0xf);
        let high = (high >> (2 * i) & 3) as i16;
        let scale = d * f32::from((low | high << 4) - 32);
        nibbles(&codes[16 * i..], to, |code| scale * f32::from(IQ4[code]));
    }
}

/// Decodes bytes with five or four ternary digits each.
fn tq1(block: &[u8], to: &mut [f32]) {
    let d = half(&block[52..]);
    let mut at = 0;
    for (bytes, n_digits) in [
        (&block[..32], 5u32),
        (&block[32..48], 5),
        (&block[48..52], 4),
    ] {
        for digit in 0..n_digits {
            for byte in bytes {
                let shifted = byte.wrapping_mul(3u8.wrapping_pow(digit));
                let value = ((u16::from(shifted) * 3) >> 8) as i16 - 1;
                to[at] = d * f32::from(value);
                at += 1;
            }
        }
    }
}

fn tq2(block: &[u8], to: &mut [f32]) {
    let d = half(&block[64..]);
    for (bytes, to) in block[..64].chunks(32).zip(to.chunks_mut(128)) {
        for (digit, to) in to.chunks_mut(32).enumerate() {
            for (byte, to) in bytes.iter().zip(to) {
                *to = d * (f32::from(byte >> (2 * digit) & 3) - 1.0);
            }
        }
    }
}
