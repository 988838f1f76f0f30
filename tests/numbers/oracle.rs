//! Every family against what Hugging Face transformers computes for it: patterns, residuals and logits.

use std::path::Path;

use testing::on_each_device;

use attnscope_engine::checkpoint::Checkpoint;
use attnscope_engine::family;
use attnscope_engine::family::unread::{NameKind, kind_of};
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
    let told: Vec<String> = cases()
        .iter()
        .filter_map(|case| {
            let told = compare(ops, case, &mut furthest).err()?;
            Some(format!("{}: {told}", case.display()))
        })
        .collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    testing::devices::tell(&format!("pattern and relative {furthest:?}"));
}

/// Runs one case; says what differs first.
fn compare(ops: &impl Ops, case: &Path, furthest: &mut [f64; 2]) -> Result<(), String> {
    let bytes = reference_bytes(case);
    let reference = SafeTensors::deserialize(&bytes).expect("a reference");
    let checkpoint = Checkpoint::open(&case.join("model")).map_err(|e| e.to_string())?;
    let model = family::read(checkpoint).map_err(|e| e.to_string())?;
    // Global tokens of Longformer have maps of their own, which no text has by itself.
    let is_forgotten =
        |name: &&String| kind_of(name) == NameKind::Weight && !name.contains("_global");
    if let Some(name) = model.checkpoint.unread.iter().find(is_forgotten) {
        return Err(format!("{name} was never read"));
    }
    let request = request_of(&reference);
    let real = request.attention_mask.clone();
    let has_decoder = matches!(request.target, Target::Ids(_));
    let ours = hooks_of(ops, &model, &request);

    let mut names = reference.names();
    names.sort_by_key(|name| (layer_of(name), name.contains("post"), (*name).clone()));
    let mut n_compared = 0;
    for name in names {
        let expected = f32s(reference.tensor(name).expect("a tensor").data());
        let kind = name.rsplit('.').next().unwrap_or(name);
        if !["pattern", "resid_pre", "resid_post", "logits"].contains(&kind) {
            continue;
        }
        let found = ours.get(name).ok_or_else(|| format!("{name} is missing"))?;
        if found.len() != expected.len() {
            let lengths = (found.len(), expected.len());
            return Err(format!("{name} has another length: {lengths:?}"));
        }
        // What a padded query computes means nothing, to transformers as to us.
        let is_padded = |row_idx: usize| {
            let of_decoder = name.starts_with("decoder.") || has_decoder && kind == "logits";
            let real = real.as_ref().filter(|_| !of_decoder);
            real.is_some_and(|real| !real[row_idx % real.len()])
        };
        let shape = reference.tensor(name).expect("a tensor").shape().to_vec();
        let width = *shape.last().expect("an axis");
        let rows = found.chunks(width).zip(expected.chunks(width)).enumerate();
        let rows = rows.filter(|(row_idx, _)| !is_padded(*row_idx));
        let pairs: Vec<(f64, f64)> = rows
            .flat_map(|(_, (found, expected))| found.iter().zip(expected))
            .map(|(found, expected)| (f64::from(*found), f64::from(*expected)))
            .collect();
        if !pairs.iter().all(|(found, _)| found.is_finite()) {
            return Err(format!("{name} is not finite"));
        }
        let (nth, apart, tolerance) = if kind == "pattern" {
            let worst = pairs.iter().map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            (0, worst, PATTERN_TOLERANCE)
        } else {
            let squared: f64 = pairs.iter().map(|(a, b)| (a - b).powi(2)).sum();
            let norm: f64 = pairs.iter().map(|(_, b)| b * b).sum();
            (1, (squared / norm).sqrt(), RELATIVE_TOLERANCE)
        };
        furthest[nth] = furthest[nth].max(apart);
        if apart > tolerance {
            return Err(format!("{name} differs by {apart:e}"));
        }
        n_compared += 1;
    }
    let stacks = model.spec.stacks.iter();
    let n_layers: usize = stacks.map(|stack| stack.blocks().len()).sum();
    if n_compared <= n_layers + 1 {
        return Err(format!("only {n_compared} were compared"));
    }
    Ok(())
}

/// The number of the layer that a value belongs to; what has none comes last.
fn layer_of(name: &str) -> usize {
    let numbers = name.split('.').find_map(|part| part.parse().ok());
    numbers.unwrap_or(usize::MAX)
}
