//! Checkpoints stored as bf16: weights left as they are compute what widened ones do.

use std::collections::BTreeMap;

use attnscope_checkpoint::Checkpoint;
use attnscope_compute::kernels::amx;
use attnscope_compute::kernels::amx::Bf16Product;
use attnscope_compute::ops::Cpu;
use attnscope_prompt::Request;
use attnscope_spec::Model;
use testing::alone::is_alone;
use testing::hooks::hooks_of;

/// Largest relative difference of anything a hook shows, by Frobenius norms. Measured: at most 6e-7, but 1.3e-6 in the third block of
/// the mixture of experts, where the rounding of two blocks has grown.
const TOLERANCE: f64 = 2e-6;

/// Output-major and fused, experts in slabs, norms that add one, and a model with an output per head.
const CASES: [&str; 5] = [
    "llama_yarn",
    "gemma3_nested",
    "qwen3_moe_b",
    "gemma_b",
    "gpt_oss_b",
];

fn run(model: &Model, n_tokens: u32) -> BTreeMap<String, Vec<f32>> {
    let request = Request::ids((0..n_tokens).map(|id| 3 + id % 20).collect());
    hooks_of(&Cpu, model, &request)
}

// The arithmetic is chosen for the whole process.
#[test]
fn weights_left_as_bf16_compute_what_widened_ones_do() {
    if !is_alone("bf16_weights::weights_left_as_bf16_compute_what_widened_ones_do") {
        return;
    }
    let cases = testing::root().join("fixtures/oracle");
    for case in CASES {
        let model = attnscope_families::read(
            Checkpoint::open(&cases.join(case).join("model")).expect("opens"),
        )
        .unwrap_or_else(|e| panic!("{case}: {e}"));
        let by = |product| {
            amx::choose(product);
            let hooks = run(&model, 19);
            amx::choose(Bf16Product::Best);
            hooks
        };
        let widened = by(Bf16Product::Widened);
        let as_stored = by(Bf16Product::Portable);
        if amx::is_usable() {
            assert!(by(Bf16Product::Best) == as_stored, "{case}: tiles differ");
        }
        assert_eq!(widened.len(), as_stored.len());
        let mut is_other_arithmetic = false;
        for (name, widened) in &widened {
            let as_stored = &as_stored[name];
            is_other_arithmetic |= widened != as_stored;
            let (mut difference, mut size) = (0.0, 0.0);
            // Where a key is not visible, both have a score of −inf.
            let visible = widened
                .iter()
                .zip(as_stored)
                .filter(|(a, b)| a != b || a.is_finite());
            for (a, b) in visible {
                let (a, b) = (f64::from(*a), f64::from(*b));
                difference += (a - b) * (a - b);
                size += a * a;
            }
            let relative = (difference / size.max(f64::MIN_POSITIVE)).sqrt();
            assert!(relative <= TOLERANCE, "{case} {name}: {relative:e}");
        }
        assert!(is_other_arithmetic, "{case}: its weights were widened");
    }
}
