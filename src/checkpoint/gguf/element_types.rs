//! Element types of GGUF by their numbers in the file.

use candle_core::quantized::GgmlDType;

use crate::blocks::BlockType;
use crate::dtype::Dtype;
use crate::iq_blocks::OwnBlock;

/// Number in the file, and its type. Sizes as ggml defines them (`ggml-common.h`).
const TYPES: &[(u32, Dtype)] = &[
    (0, Dtype::F32),
    (1, Dtype::F16),
    (2, known("q4_0", 32, 18, GgmlDType::Q4_0)),
    (3, known("q4_1", 32, 20, GgmlDType::Q4_1)),
    (6, known("q5_0", 32, 22, GgmlDType::Q5_0)),
    (7, known("q5_1", 32, 24, GgmlDType::Q5_1)),
    (8, known("q8_0", 32, 34, GgmlDType::Q8_0)),
    // Two half-precision numbers and 32 codes. The Python package says 40 bytes: both numbers were once single precision.
    (9, opaque("q8_1", 32, 36)),
    (10, known("q2_k", 256, 84, GgmlDType::Q2K)),
    (11, known("q3_k", 256, 110, GgmlDType::Q3K)),
    (12, known("q4_k", 256, 144, GgmlDType::Q4K)),
    (13, known("q5_k", 256, 176, GgmlDType::Q5K)),
    (14, known("q6_k", 256, 210, GgmlDType::Q6K)),
    (15, opaque("q8_k", 256, 292)),
    (16, own("iq2_xxs", 256, 66, OwnBlock::Iq2Xxs)),
    (17, own("iq2_xs", 256, 74, OwnBlock::Iq2Xs)),
    (18, own("iq3_xxs", 256, 98, OwnBlock::Iq3Xxs)),
    (19, opaque("iq1_s", 256, 50)),
    (20, own("iq4_nl", 32, 18, OwnBlock::Iq4Nl)),
    (21, own("iq3_s", 256, 110, OwnBlock::Iq3S)),
    (22, own("iq2_s", 256, 82, OwnBlock::Iq2S)),
    (23, own("iq4_xs", 256, 136, OwnBlock::Iq4Xs)),
    (24, Dtype::Other("i8", 1)),
    (25, Dtype::Other("i16", 2)),
    (26, Dtype::Other("i32", 4)),
    (27, Dtype::Other("i64", 8)),
    (28, Dtype::F64),
    (29, opaque("iq1_m", 256, 56)),
    (30, Dtype::Bf16),
    (34, own("tq1_0", 256, 54, OwnBlock::Tq1)),
    (35, own("tq2_0", 256, 66, OwnBlock::Tq2)),
    (39, own("mxfp4", 32, 17, OwnBlock::Mxfp4)),
    (40, opaque("nvfp4", 64, 36)),
    (41, opaque("q1_0", 128, 18)),
];

const fn known(name: &'static str, n_values: usize, n_bytes: usize, decoder: GgmlDType) -> Dtype {
    Dtype::Block(BlockType::known(name, n_values, n_bytes, decoder))
}

const fn own(name: &'static str, n_values: usize, n_bytes: usize, decoder: OwnBlock) -> Dtype {
    Dtype::Block(BlockType::own(name, n_values, n_bytes, decoder))
}

const fn opaque(name: &'static str, n_values: usize, n_bytes: usize) -> Dtype {
    Dtype::Block(BlockType::opaque(name, n_values, n_bytes))
}

/// Returns the type with a number in the file.
pub(super) fn dtype(number: u32) -> Option<Dtype> {
    TYPES
        .iter()
        .find(|(known, _)| *known == number)
        .map(|(_, dtype)| *dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_decoded_blocks_agree_with_the_decoder() {
        let mut n_known = 0;
        for (_, dtype) in TYPES {
            let Dtype::Block(block) = dtype else { continue };
            if !block.is_known() {
                continue;
            }
            n_known += 1;
            let values = block.decode(&vec![0; 3 * block.n_bytes]).expect(block.name);
            assert_eq!(values.len(), 3 * block.n_values, "{}", block.name);
            // An all-zero block has a scale of 0; if the scale is an exponent, it is tiny, and values are only nearly 0.
            assert!(values.iter().all(|v| v.abs() < 1e-30), "{}", block.name);
        }
        assert_eq!(n_known, 20);
    }

    #[test]
    fn blocks_of_every_type_decode_to_the_reference_values() {
        let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
            .join("formats/gguf/blocks.safetensors");
        let reference = crate::safetensors::open_file(&path).expect("a fixture");
        let mut n_compared = 0;
        for (_, dtype) in TYPES {
            let Some(expected) = reference.get(&format!("{dtype}.values")) else {
                continue;
            };
            let stored = reference.get(&format!("{dtype}.bytes")).expect("bytes");
            let stored = stored.stored_bytes(0..usize::MAX).expect("reads");
            let expected = expected.widen().expect("reads");
            let found = dtype.widen(&stored).expect("a known type");
            assert_eq!(found.len(), expected.len(), "{dtype}");
            for (found, expected) in found.iter().zip(expected.iter()) {
                // Multiplications in another order may change the last bit.
                let most = 1e-6 * expected.abs().max(1.0);
                assert!(
                    (found - expected).abs() <= most,
                    "{dtype}: {found} {expected}"
                );
            }
            // The alignment of the blocks in memory must make no difference.
            let moved = [&[0], &stored[..]].concat();
            assert_eq!(
                dtype.widen(&moved[1..]).expect("a known type"),
                found,
                "{dtype}"
            );
            n_compared += 1;
        }
        assert_eq!(n_compared, 20);
    }

    #[test]
    fn many_blocks_decode_as_they_do_one_by_one() {
        let dtype = dtype(8).expect("q8_0");
        let bytes: Vec<u8> = (0..3000 * 34).map(|i| (i % 120) as u8).collect();
        let one_by_one: Vec<f32> = bytes
            .chunks(34)
            .flat_map(|block| dtype.widen(block).expect("a block").into_owned())
            .collect();
        assert_eq!(dtype.widen(&bytes).expect("blocks").as_ref(), one_by_one);
    }

    #[test]
    fn an_unknown_type_number_is_none() {
        assert_eq!(dtype(4), None);
        assert_eq!(dtype(u32::MAX), None);
        assert_eq!(dtype(12).map(|d| d.to_string()), Some("q4_k".to_owned()));
    }
}
