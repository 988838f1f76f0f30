//! Every family against what Hugging Face transformers computes for it: patterns, residuals and logits.

use testing::on_each_device;

use attnscope_engine::checkpoint::Checkpoint;
use attnscope_engine::family;
use attnscope_engine::ops::{Cpu, Ops};
use attnscope_engine::prompt::Target;
use safetensors::SafeTensors;
use testing::hooks::hooks_of;
use testing::oracle_case::{cases, reference_bytes, request_of};

/// Largest difference of a probability.
const PATTERN_TOLERANCE: f64 = 2e-4;
/// Largest relative difference of residuals and logits, by Frobenius norms.
const RELATIVE_TOLERANCE: f64 = 2e-3;

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks(4)
        .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
        .collect()
}

#[test]
fn every_family_agrees_with_its_reference() {
    every_family(&Cpu);
}

on_each_device! {
    every_family_agrees_with_its_reference_on_a_device: every_family;
}

fn every_family(ops: &impl Ops) {
    // Furthest apart: a probability, a residual or logits.
    let mut furthest = [0.0f64; 2];
    for case in cases() {
        let bytes = reference_bytes(&case);
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let model = family::read(Checkpoint::open(&case.join("model")).expect("opens"))
            .unwrap_or_else(|e| panic!("{}: {e}", case.display()));
        let request = request_of(&reference);
        let real = request.attention_mask.clone();
        let has_decoder = matches!(request.target, Target::Ids(_));
        let ours = hooks_of(ops, &model, &request);

        let mut n_compared = 0;
        for name in reference.names() {
            let expected = f32s(reference.tensor(name).expect("a tensor").data());
            let kind = name.rsplit('.').next().unwrap_or(name);
            if !["pattern", "resid_pre", "resid_post", "logits"].contains(&kind) {
                continue;
            }
            let found = ours
                .get(name)
                .unwrap_or_else(|| panic!("{}: {name} is missing", case.display()));
            assert_eq!(found.len(), expected.len(), "{}: {name}", case.display());
            // What a padded query computes means nothing, to transformers as to us.
            let is_padded = |row_idx: usize| {
                let of_decoder = name.starts_with("decoder.") || has_decoder && kind == "logits";
                let real = real.as_ref().filter(|_| !of_decoder);
                real.is_some_and(|real| !real[row_idx % real.len()])
            };
            let width = *reference
                .tensor(name)
                .expect("a tensor")
                .shape()
                .last()
                .expect("an axis");
            let rows = found.chunks(width).zip(expected.chunks(width)).enumerate();
            let rows = rows.filter(|(row_idx, _)| !is_padded(*row_idx));
            let pairs: Vec<(f64, f64)> = rows
                .flat_map(|(_, (found, expected))| found.iter().zip(expected))
                .map(|(found, expected)| (f64::from(*found), f64::from(*expected)))
                .collect();
            assert!(
                pairs.iter().all(|(found, _)| found.is_finite()),
                "{}: {name} is not finite",
                case.display()
            );
            if kind == "pattern" {
                let worst = pairs.iter().map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                furthest[0] = furthest[0].max(worst);
                assert!(
                    worst <= PATTERN_TOLERANCE,
                    "{}: {name} differs by {worst:e}",
                    case.display()
                );
            } else {
                let squared: f64 = pairs.iter().map(|(a, b)| (a - b).powi(2)).sum();
                let norm: f64 = pairs.iter().map(|(_, b)| b * b).sum();
                let relative = (squared / norm).sqrt();
                furthest[1] = furthest[1].max(relative);
                assert!(
                    relative <= RELATIVE_TOLERANCE,
                    "{}: {name} differs by {relative:e}",
                    case.display()
                );
            }
            n_compared += 1;
        }
        let n_layers: usize = model
            .spec
            .stacks
            .iter()
            .map(|stack| stack.blocks().len())
            .sum();
        assert!(
            n_compared > 2 * n_layers,
            "{}: compared {n_compared}",
            case.display()
        );
    }
    testing::devices::tell(&format!("pattern and relative {furthest:?}"));
}
