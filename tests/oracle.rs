//! Every family against what Hugging Face transformers computes for it: patterns, residuals and logits.

mod oracle_tap;

use std::path::{Path, PathBuf};

use attnscope::analysis::{self, Options, Silent};
use attnscope::checkpoint::Checkpoint;
use attnscope::family;
use attnscope::model::Sequence;
use attnscope::ops::Cpu;
use oracle_tap::Collected;
use safetensors::SafeTensors;

/// Largest difference of a probability.
const PATTERN_TOLERANCE: f64 = 2e-4;
/// Largest relative difference of residuals and logits, by Frobenius norms.
const RELATIVE_TOLERANCE: f64 = 2e-3;

fn cases() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/oracle");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(directory)
        .expect("the fixtures")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    cases.sort();
    assert!(!cases.is_empty());
    cases
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks(4)
        .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
        .collect()
}

fn i64s(bytes: &[u8]) -> Vec<i64> {
    bytes
        .chunks(8)
        .map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes")))
        .collect()
}

#[test]
fn every_family_agrees_with_its_reference() {
    for case in cases() {
        let bytes = std::fs::read(case.join("reference.safetensors")).expect("a reference");
        let reference = SafeTensors::deserialize(&bytes).expect("a reference");
        let ints = |name: &str| reference.tensor(name).ok().map(|t| i64s(t.data()));
        let tokens: Vec<u32> = ints("tokens")
            .expect("tokens")
            .into_iter()
            .map(|id| id as u32)
            .collect();
        let real = ints("attention_mask").map(|mask| mask.into_iter().map(|m| m != 0).collect());
        let sequence = Sequence {
            positions: (0..tokens.len()).collect(),
            tokens,
            real,
        };
        let model = family::read(Checkpoint::open(&case.join("model")).expect("opens"))
            .expect("is understood");
        let mut collected = Collected::default();
        let options = Options {
            keep_bytes: None,
            predicts: true,
        };
        let tap: Option<&mut dyn analysis::Tap> = Some(&mut collected);
        analysis::run(&Cpu, &model, &sequence, options, &mut Silent, tap, &|| {
            false
        })
        .expect("runs");
        let ours = collected.finish();

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
            assert!(
                found.iter().all(|v| v.is_finite()),
                "{}: {name} is not finite",
                case.display()
            );
            let difference = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).abs();
            let pairs = || found.iter().zip(&expected);
            if kind == "pattern" {
                let worst = pairs().map(difference).fold(0.0, f64::max);
                assert!(
                    worst <= PATTERN_TOLERANCE,
                    "{}: {name} differs by {worst:e}",
                    case.display()
                );
            } else {
                let squared: f64 = pairs().map(difference).map(|d| d * d).sum();
                let norm: f64 = expected.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
                let relative = (squared / norm).sqrt();
                assert!(
                    relative <= RELATIVE_TOLERANCE,
                    "{}: {name} differs by {relative:e}",
                    case.display()
                );
            }
            n_compared += 1;
        }
        assert!(
            n_compared >= 2 * model.spec.n_layers() + 2,
            "{}: compared {n_compared}",
            case.display()
        );
    }
}
