//! Every family against what Hugging Face transformers computes for it: patterns, residuals and logits.

use std::path::PathBuf;

use testing::on_each_device;

use attnscope_engine::ops::{Cpu, Ops};
use testing::effort::one_of_each;
use testing::oracle_case::{cases, compare, model_of};

#[test]
fn every_family_agrees_with_its_reference() {
    agree(&Cpu, &cases());
}

on_each_device! {
    every_family_agrees_with_its_reference_on_a_device: every_family;
}

fn every_family(ops: &impl Ops) {
    agree(ops, &one_of_each(cases()));
}

fn agree(ops: &impl Ops, cases: &[PathBuf]) {
    // Furthest apart: a probability, a residual or logits.
    let mut furthest = [0.0f64; 2];
    let told: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let told = match model_of(case) {
                Ok(model) => compare(ops, &model, case, &mut furthest).err()?,
                Err(refused) => refused.to_string(),
            };
            Some(format!("{}: {told}", case.display()))
        })
        .collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    testing::devices::tell(&format!("pattern and relative {furthest:?}"));
}
