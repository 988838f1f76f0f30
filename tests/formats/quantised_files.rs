//! Quantised checkpoints against what transformers computes from the weights they mean, and what every code means.

use std::path::PathBuf;

use attnscope_checkpoint::{Checkpoint, Dtype};
use attnscope_compute::ops::Cpu;
use attnscope_prompt::Request;
use safetensors::SafeTensors;
use tempfile::TempDir;
use testing::checkpoint_copy::{Stored, Weights, attnscope, file_of, text};
use testing::hooks::hooks_of;

/// Largest difference of a probability.
const PATTERN_TOLERANCE: f64 = 2e-4;
/// Largest relative difference of residuals and logits, by Frobenius norms.
const RELATIVE_TOLERANCE: f64 = 2e-3;

const CASES: [&str; 3] = ["gpt_oss_mxfp4", "deepseek_v3_fp8", "qwen3_fp8"];

fn case(name: &str) -> PathBuf {
    testing::root()
        .join("fixtures/formats/quantised")
        .join(name)
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    let chunks = bytes.chunks(4);
    chunks
        .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
        .collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn every_quantised_checkpoint_agrees_with_its_reference() {
    for name in CASES {
        let bytes = std::fs::read(case(name).join("reference.safetensors")).expect("a reference");
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let checkpoint = Checkpoint::open(&case(name).join("model")).expect("opens");
        let model = attnscope_families::read(checkpoint).unwrap_or_else(|e| panic!("{name}: {e}"));
        let tokens = reference.tensor("tokens").expect("tokens");
        let ids = tokens.data().chunks(8).map(|b| u32::from(b[0])).collect();
        let ours = hooks_of(&Cpu, &model, &Request::ids(ids));

        let mut n_compared = 0;
        for hook in reference.names() {
            let is_pattern = hook.ends_with(".pattern");
            if !is_pattern && !hook.ends_with(".resid_post") && hook != "logits" {
                continue;
            }
            let expected = f32s(reference.tensor(hook).expect("a tensor").data());
            let found = ours
                .get(hook)
                .unwrap_or_else(|| panic!("{name}: no {hook}"));
            assert_eq!(found.len(), expected.len(), "{name}: {hook}");
            let pairs = found.iter().zip(&expected);
            let pairs = pairs.map(|(a, b)| (f64::from(*a), f64::from(*b)));
            let difference = if is_pattern {
                pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
            } else {
                let (squared, norm) = pairs.fold((0.0, 0.0), |(squared, norm), (a, b)| {
                    (squared + (a - b).powi(2), norm + b * b)
                });
                f64::sqrt(squared / norm)
            };
            let tolerance = if is_pattern {
                PATTERN_TOLERANCE
            } else {
                RELATIVE_TOLERANCE
            };
            // A difference that is NaN is not a small one.
            assert!(
                difference <= tolerance,
                "{name}: {hook} differs by {difference:e}"
            );
            n_compared += 1;
        }
        let n_blocks = model.spec.stacks[0].blocks().len();
        assert_eq!(n_compared, 2 * n_blocks + 1, "{name}");
    }
}

#[test]
fn weights_mean_to_the_bit_what_they_mean_to_transformers() {
    for name in CASES {
        let bytes = std::fs::read(case(name).join("reference.safetensors")).expect("a reference");
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let checkpoint = Checkpoint::open(&case(name).join("model")).expect("opens");
        let names = reference.names();
        let meant: Vec<&str> = names
            .into_iter()
            .filter(|n| n.starts_with("dequantised."))
            .collect();
        assert!(!meant.is_empty(), "{name}");
        for meant in meant {
            let expected = reference.tensor(meant).expect("a tensor");
            let tensor = meant.trim_start_matches("dequantised.");
            let view = checkpoint.tensors.expect(tensor, expected.shape());
            let view = view.unwrap_or_else(|e| panic!("{e}"));
            let expected_values = f32s(expected.data());
            assert_eq!(
                bits(&view.widen().expect("reads")),
                bits(&expected_values),
                "{tensor}"
            );
            // Rows, or slabs, alone are those of the whole.
            let n_rows = expected.shape()[0];
            let width = expected_values.len() / n_rows;
            for row in 0..n_rows {
                let found = view.widen_rows(row..row + 1).expect("reads");
                let expected = &expected_values[row * width..(row + 1) * width];
                assert_eq!(bits(&found), bits(expected), "{tensor} row {row}");
            }
            let found = view.widen_rows(1..n_rows).expect("reads");
            assert_eq!(bits(&found), bits(&expected_values[width..]), "{tensor}");
        }
    }
}

#[test]
fn numbers_and_scales_are_listed_once_as_the_tensor_they_mean() {
    for name in CASES {
        let model =
            attnscope_families::read(Checkpoint::open(&case(name).join("model")).expect("opens"));
        let model = model.unwrap_or_else(|e| panic!("{e}"));
        let tensors = &model.checkpoint.tensors;
        assert!(model.spec.unused_tensors(tensors).is_empty(), "{name}");
        for end in ["_blocks", "_scales", "_scale_inv"] {
            assert!(tensors.iter().all(|(name, _)| !name.ends_with(end)));
        }
        let unread = &model.spec.unread_keys;
        assert!(!unread.iter().any(|key| key == "quantization_config"));
        let knobs = &model.spec.knobs;
        assert!(knobs.iter().any(|knob| knob.name == "quantisation"));
    }
    let model = case("gpt_oss_mxfp4").join("model");
    let tensors = Checkpoint::open(&model).expect("opens").tensors;
    let info = tensors.info("model.layers.0.mlp.experts.gate_up_proj");
    let info = info.expect("the combined tensor");
    assert_eq!(info.dtype, Dtype::Mxfp4);
    assert_eq!(info.shape, [3, 64, 64]);
    assert_eq!(info.n_bytes(), 3 * 64 * 2 * (16 + 1));
    let listed = attnscope(&["tensors", "--stats", model.to_str().expect("a path")]);
    let listed = text(&listed.stdout);
    assert_eq!(listed.matches("layers.0.mlp.experts.down_proj ").count(), 1);
    assert!(!listed.contains("_scales"), "{listed}");
}

/// A directory with a configuration and some tensors.
fn directory(config: &str, weights: &[(&str, Stored)]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("config.json"), config).expect("writes");
    let weights: Weights = weights
        .iter()
        .map(|(name, stored)| ((*name).to_owned(), stored.clone()))
        .collect();
    let file = directory.path().join("model.safetensors");
    std::fs::write(file, file_of(&weights)).expect("writes");
    directory
}

fn stored(dtype: &str, shape: &[usize], bytes: Vec<u8>) -> Stored {
    Stored {
        dtype: dtype.to_owned(),
        shape: shape.to_vec(),
        bytes,
    }
}

/// The number of a code by the formula: (−1)^sign · 2^(exponent − bias) · (1 + mantissa), or subnormal.
fn by_formula(code: u32, n_exponent: u32, n_mantissa: u32, bias: i32) -> f64 {
    let mantissa = f64::from(code % (1 << n_mantissa)) / f64::from(1 << n_mantissa);
    let exponent = (code >> n_mantissa) % (1 << n_exponent);
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(1 - bias),
        _ => (1.0 + mantissa) * 2f64.powi(exponent as i32 - bias),
    };
    match code >> (n_exponent + n_mantissa) {
        0 => magnitude,
        _ => -magnitude,
    }
}

fn assert_same(found: f32, expected: f64, what: &str) {
    let expected = expected as f32;
    let is_same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
    assert!(is_same, "{what}: expected {expected:e}, found {found:e}");
}

#[test]
fn every_code_of_eight_bits_means_what_its_formula_says() {
    let all: Vec<u8> = (0..=255).collect();
    let directory = directory(
        "{}",
        &[
            ("e4m3", stored("F8_E4M3", &[256], all.clone())),
            ("e5m2", stored("F8_E5M2", &[16, 16], all)),
        ],
    );
    let tensors = Checkpoint::open(directory.path()).expect("opens").tensors;
    let e4m3 = tensors
        .expect("e4m3", &[256])
        .expect("a float")
        .widen()
        .expect("reads");
    let e5m2 = tensors
        .expect("e5m2", &[16, 16])
        .expect("a float")
        .widen()
        .expect("reads");
    for code in 0..256u32 {
        let expected = match code & 0x7f {
            0x7f => f64::NAN,
            _ => by_formula(code, 4, 3, 7),
        };
        let at = code as usize;
        assert_same(e4m3[at], expected, &format!("e4m3 {code:#x}"));
        let expected = match (code >> 2 & 31, code & 3) {
            (31, 0) => f64::INFINITY.copysign(by_formula(code, 5, 2, 15)),
            (31, _) => f64::NAN,
            _ => by_formula(code, 5, 2, 15),
        };
        assert_same(e5m2[at], expected, &format!("e5m2 {code:#x}"));
    }
    // A few of them as people know them.
    assert_eq!([e4m3[0x7e], e4m3[0x38], e4m3[1]], [448.0, 1.0, 0.001953125]);
    assert_eq!([e5m2[0x7b], e5m2[0x3c]], [57344.0, 1.0]);
    assert_eq!(bits(&[e4m3[0x80]]), bits(&[-0.0]));
}

#[test]
fn every_code_of_four_bits_means_what_its_formula_says_under_every_scale() {
    // Byte b holds b & 15, then b >> 4: 256 bytes are 16 groups of one output; one slab for each scale.
    let every: Vec<u8> = (0..=255).cycle().take(256 * 256).collect();
    let scales: Vec<u8> = (0..=255u8).flat_map(|scale| [scale; 16]).collect();
    let directory = directory(
        "{}",
        &[
            ("w_blocks", stored("U8", &[256, 1, 16, 16], every)),
            ("w_scales", stored("U8", &[256, 1, 16], scales)),
        ],
    );
    let tensors = Checkpoint::open(directory.path()).expect("opens").tensors;
    let view = tensors.expect("w", &[256, 512, 1]).expect("a float");
    for scale in 0..256usize {
        let values = view.widen_rows(scale..scale + 1).expect("reads");
        assert_eq!(values.len(), 512);
        for (idx, value) in values.iter().enumerate() {
            let byte = idx as u32 / 2;
            let code = if idx % 2 == 0 { byte & 15 } else { byte >> 4 };
            let expected = by_formula(code, 2, 1, 1) * 2f64.powi(scale as i32 - 127);
            assert_same(*value, expected, &format!("code {code} scale {scale}"));
        }
    }
    let known: Vec<f32> = (0..8)
        .map(|code| by_formula(code, 2, 1, 1) as f32)
        .collect();
    assert_eq!(known, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
}

#[test]
fn blocks_begin_anew_in_every_matrix_and_are_cut_off_at_its_edges() {
    // Two matrices of 3 × 5 in blocks of 2 × 4; all numbers are 1.
    let scales: Vec<f32> = (1..=8).map(|v| v as f32).collect();
    let config = r#"{"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 4]}}"#;
    let directory = directory(
        config,
        &[
            ("w", stored("F8_E4M3", &[2, 3, 5], vec![0x38; 30])),
            ("w_scale_inv", Stored::f32(&[2, 2, 2], &scales)),
        ],
    );
    let tensors = Checkpoint::open(directory.path()).expect("opens").tensors;
    let view = tensors.expect("w", &[2, 3, 5]).expect("a float");
    let matrix = |[a, b, c, d]: [f32; 4]| {
        let rows = [[a, a, a, a, b], [a, a, a, a, b], [c, c, c, c, d]];
        rows.concat()
    };
    let (first, second) = (matrix([1., 2., 3., 4.]), matrix([5., 6., 7., 8.]));
    assert_eq!(view.widen_rows(1..2).expect("reads").as_ref(), second);
    assert_eq!(
        view.widen().expect("reads").as_ref(),
        [first, second].concat()
    );
}
