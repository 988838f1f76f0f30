//! Rounding in blocks, as quantised GGUF files store weights: each block of a row has a scale, and some formats an offset too.
//!
//! Values are quantised and read back by candle, whose quantisers are those of ggml without an importance matrix. IQ4_NL, which candle does
//! not write, is here.

use std::fmt;

use candle_core::quantized::GgmlType;
use candle_core::quantized::k_quants::{
    BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K,
    BlockQ8_0,
};
use half::f16;

/// A block format of ggml.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockFormat {
    Q8_0,
    Q6K,
    Q5K,
    Q5_1,
    Q5_0,
    Q4K,
    Q4_1,
    Q4_0,
    Iq4Nl,
    Q3K,
    Q2K,
}

/// The 16 values of IQ4_NL, in units of a block's scale.
const IQ4_NL: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

/// Scales of IQ4_NL that are tried on each side of the first one.
const N_TRIED: i32 = 7;

/// Values of a short block.
const SHORT: usize = 32;

impl BlockFormat {
    /// All of them, those with more bits first.
    pub const ALL: [Self; 11] = [
        Self::Q8_0,
        Self::Q6K,
        Self::Q5K,
        Self::Q5_1,
        Self::Q5_0,
        Self::Q4K,
        Self::Q4_1,
        Self::Q4_0,
        Self::Iq4Nl,
        Self::Q3K,
        Self::Q2K,
    ];

    /// Its name, as files and programs write it, in small letters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q8_0 => "q8_0",
            Self::Q6K => "q6_k",
            Self::Q5K => "q5_k",
            Self::Q5_1 => "q5_1",
            Self::Q5_0 => "q5_0",
            Self::Q4K => "q4_k",
            Self::Q4_1 => "q4_1",
            Self::Q4_0 => "q4_0",
            Self::Iq4Nl => "iq4_nl",
            Self::Q3K => "q3_k",
            Self::Q2K => "q2_k",
        }
    }

    /// The format of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Whether rows of some width consist of whole blocks.
    pub fn divides(self, width: usize) -> bool {
        let long = 256;
        let n = match self {
            Self::Q6K | Self::Q5K | Self::Q4K | Self::Q3K | Self::Q2K => long,
            _ => SHORT,
        };
        width > 0 && width.is_multiple_of(n)
    }

    /// The format that `llama-quantize` gives rows of some width where it is asked for this one; `None` if it leaves them alone.
    pub fn of_width(self, width: usize) -> Option<Self> {
        let shorter = match self {
            own if own.divides(width) => own,
            Self::Q6K => Self::Q8_0,
            Self::Q5K => Self::Q5_1,
            Self::Q4K => Self::Q5_0,
            Self::Q3K | Self::Q2K => Self::Iq4Nl,
            own => own,
        };
        shorter.divides(width).then_some(shorter)
    }

    /// Rounds a row of whole blocks in place. A block that is not finite stays as it is.
    pub fn round_row(self, row: &mut [f32]) {
        if !self.divides(row.len()) || !row.iter().all(|value| value.is_finite()) {
            return;
        }
        match self {
            Self::Q8_0 => through::<BlockQ8_0>(row),
            Self::Q6K => through::<BlockQ6K>(row),
            Self::Q5K => through::<BlockQ5K>(row),
            Self::Q5_1 => through::<BlockQ5_1>(row),
            Self::Q5_0 => through::<BlockQ5_0>(row),
            Self::Q4K => through::<BlockQ4K>(row),
            Self::Q4_1 => through::<BlockQ4_1>(row),
            Self::Q4_0 => through::<BlockQ4_0>(row),
            Self::Iq4Nl => row.chunks_mut(SHORT).for_each(round_iq4_nl),
            Self::Q3K => through::<BlockQ3K>(row),
            Self::Q2K => through::<BlockQ2K>(row),
        }
    }
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Quantises a row and reads it back.
fn through<T: GgmlType>(row: &mut [f32]) {
    let mut blocks = vec![T::zeros(); row.len() / T::BLCK_SIZE];
    T::from_float(row, &mut blocks);
    T::to_float(&blocks, row);
}

/// The index of the nearest of the 16 values.
fn nearest(value: f32) -> usize {
    let above = IQ4_NL.partition_point(|own| *own < value);
    match above {
        0 => 0,
        16 => 15,
        _ if value - IQ4_NL[above - 1] < IQ4_NL[above] - value => above - 1,
        _ => above,
    }
}

/// Rounds a block to IQ4_NL: the scale is the one of several whose best fit weighs large values most (quantize_row_iq4_nl_impl of ggml,
/// without an importance matrix).
fn round_iq4_nl(block: &mut [f32]) {
    let furthest = |most: f32, value: &f32| {
        if value.abs() > most.abs() {
            *value
        } else {
            most
        }
    };
    let most = block.iter().fold(0.0, furthest);
    if most.abs() < 1e-15 {
        block.fill(0.0);
        return;
    }
    // Sums of weight · value · level and of weight · level², with the square of a value as its weight.
    let sums = |inverse: f32| {
        block.iter().fold((0.0f32, 0.0f32), |(with, of), value| {
            let (weight, level) = (value * value, IQ4_NL[nearest(inverse * value)]);
            (with + weight * level * value, of + weight * level * level)
        })
    };
    let (with, of) = sums(IQ4_NL[0] / -most);
    let mut scale = with / of;
    let mut best = scale * with;
    for step in -N_TRIED..=N_TRIED {
        let (with, of) = sums((step as f32 + IQ4_NL[0]) / most);
        if of > 0.0 && with * with > best * of {
            scale = with / of;
            best = scale * with;
        }
    }
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let stored = f16::from_f32(scale).to_f32();
    for value in block {
        *value = stored * IQ4_NL[nearest(inverse * *value)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: usize) -> Vec<f32> {
        (0..n)
            .map(|idx| ((idx * 37 + 11) % 101) as f32 / 50.0 - 1.0)
            .collect()
    }

    fn apart(format: BlockFormat) -> f32 {
        let values = row(512);
        let mut rounded = values.clone();
        format.round_row(&mut rounded);
        let pairs = values.iter().zip(&rounded);
        let sum: f32 = pairs.map(|(a, b)| (a - b) * (a - b)).sum();
        (sum / 512.0).sqrt()
    }

    #[test]
    fn formats_with_more_bits_are_nearer_to_the_values() {
        let of = |formats: &[BlockFormat]| formats.iter().map(|f| apart(*f)).collect::<Vec<f32>>();
        use BlockFormat::*;
        for order in [
            of(&[Q8_0, Q5_0, Q4_0]),
            of(&[Q8_0, Q5_1, Q4_1]),
            of(&[Q6K, Q5K, Q4K, Q3K, Q2K]),
        ] {
            assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "{order:?}");
        }
        // Four bits of values between −1 and 1: a step is about an eighth.
        assert!((0.01..0.06).contains(&apart(Iq4Nl)), "{}", apart(Iq4Nl));
        for format in BlockFormat::ALL {
            assert_eq!(BlockFormat::named(format.name()), Some(format));
        }
    }

    #[test]
    fn levels_of_a_block_are_kept_and_narrow_rows_get_a_shorter_format() {
        let mut levels: Vec<f32> = IQ4_NL.iter().chain(&IQ4_NL).map(|l| 0.5 * l).collect();
        let before = levels.clone();
        BlockFormat::Iq4Nl.round_row(&mut levels);
        assert_eq!(levels, before);
        assert_eq!(BlockFormat::Q4K.of_width(288), Some(BlockFormat::Q5_0));
        assert_eq!(BlockFormat::Q4K.of_width(512), Some(BlockFormat::Q4K));
        assert_eq!(BlockFormat::Q4_0.of_width(40), None);
        let mut odd = vec![f32::NAN; 32];
        BlockFormat::Q4_0.round_row(&mut odd);
        assert!(odd.iter().all(|value| value.is_nan()));
    }
}
