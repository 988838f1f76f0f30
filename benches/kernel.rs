//! One layer's attention with all statistics, in every form that takes another path: masks, biases, caps, axes.

mod attention_case;

use attention_case::Case;
use attnscope_compute::attention::{Alibi, AttentionSpec, Bias, SoftmaxAxis, Window};
use divan::Bencher;
use divan::counter::ItemsCount;

fn main() {
    divan::main();
}

/// Items are floating-point operations of the two products, so that a rate reads as flop/s.
fn measure(bencher: Bencher<'_, '_>, spec: AttentionSpec, n: usize) {
    let mut case = Case::new(spec, n);
    let flops = ItemsCount::new(case.flops() as u64);
    bencher.counter(flops).bench_local(|| case.attend());
}

fn gpt2() -> AttentionSpec {
    AttentionSpec::plain(12, 12, 64, true)
}

#[divan::bench(args = [256, 1024, 2048], sample_count = 15, sample_size = 1)]
fn causal(bencher: Bencher<'_, '_>, n: usize) {
    measure(bencher, gpt2(), n);
}

#[divan::bench(sample_count = 15, sample_size = 1)]
fn bidirectional(bencher: Bencher<'_, '_>) {
    measure(bencher, AttentionSpec::plain(12, 12, 64, false), 1024);
}

#[divan::bench(sample_count = 15, sample_size = 1)]
fn grouped_keys_of_width_128(bencher: Bencher<'_, '_>) {
    measure(bencher, AttentionSpec::plain(8, 2, 128, true), 1024);
}

#[divan::bench(sample_count = 15, sample_size = 1)]
fn window_of_256(bencher: Bencher<'_, '_>) {
    let mut spec = gpt2();
    spec.mask.window = Some(Window::Back(256));
    measure(bencher, spec, 1024);
}

#[divan::bench(sample_count = 15, sample_size = 1)]
fn softcap(bencher: Bencher<'_, '_>) {
    let softcap = Some(50.0);
    measure(bencher, AttentionSpec { softcap, ..gpt2() }, 1024);
}

#[divan::bench(sample_count = 15, sample_size = 1)]
fn alibi(bencher: Bencher<'_, '_>) {
    let slopes = (1..=12).map(|i| 2f32.powf(-8.0 * i as f32 / 12.0));
    let bias = Bias::Alibi(Alibi {
        slopes: slopes.collect(),
        is_scaled: false,
        rounds_to_bf16: false,
        is_both_ways: false,
    });
    measure(bencher, AttentionSpec { bias, ..gpt2() }, 1024);
}

#[divan::bench(sample_count = 15, sample_size = 1)]
fn softmax_over_queries(bencher: Bencher<'_, '_>) {
    let softmax_axis = SoftmaxAxis::Queries;
    let spec = AttentionSpec {
        softmax_axis,
        ..gpt2()
    };
    measure(bencher, spec, 1024);
}
