//! Affine maps as models have them: activations of a prompt times the weights of a layer.

use std::borrow::Cow;

use attnscope_compute::ops::{Cpu, HostLinear, HostWeight, Ops, Values};
use divan::Bencher;
use divan::counter::ItemsCount;

fn main() {
    divan::main();
}

/// Rows, inputs, outputs.
const SHAPES: [[usize; 3]; 6] = [
    [512, 768, 768],
    [512, 768, 3072],
    [1024, 3072, 768],
    [1024, 768, 4096],
    [2048, 2048, 2048],
    [1024, 4096, 4096],
];

/// Items are floating-point operations, so that a rate reads as flop/s.
fn measure(bencher: Bencher<'_, '_>, [n_rows, n_in, n_out]: [usize; 3], is_input_major: bool) {
    let mut random = fastrand::Rng::with_seed(0);
    let mut filled = |n: usize| -> Vec<f32> { (0..n).map(|_| random.f32() - 0.5).collect() };
    let from = Values {
        width: n_in,
        data: filled(n_rows * n_in),
    };
    let host = HostLinear {
        n_out,
        n_in,
        weight: HostWeight::F32(Cow::Owned(filled(n_out * n_in))),
        is_input_major,
        bias: Some(Cow::Owned(filled(n_out))),
        grams: Default::default(),
    };
    let weights = Cpu.linear_weights(host).expect("the CPU takes any");
    let mut to = Values::default();
    bencher
        .counter(ItemsCount::new(2 * n_rows * n_in * n_out))
        .bench_local(|| {
            Cpu.linear(&from, &weights, &mut to, &|| false)
                .expect("it fits")
        });
}

/// Stored as [n_out, n_in], as most models do.
#[divan::bench(args = SHAPES, sample_count = 15, sample_size = 1)]
fn output_major(bencher: Bencher<'_, '_>, shape: [usize; 3]) {
    measure(bencher, shape, false);
}

/// Stored as [n_in, n_out], as GPT-2 does.
#[divan::bench(args = SHAPES, sample_count = 15, sample_size = 1)]
fn input_major(bencher: Bencher<'_, '_>, shape: [usize; 3]) {
    measure(bencher, shape, true);
}
