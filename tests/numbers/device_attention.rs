//! Attention on a device of candle against the same heads on the CPU: every figure of every row, for every knob.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use attnscope_compute::attention::{AttentionSpec, Bias, SoftmaxAxis};
use attnscope_compute::error::Error;
use attnscope_compute::ops::{Candle, Ops};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use testing::device_case::{Apart, Case, Collect, by_definition, compare, noise, on_device};
use testing::effort::tries;
use testing::on_each_device;
use testing::random_specs::{N_BUCKETS, specs};

fn cases() -> impl Strategy<Value = Case> {
    let sizes = (1usize..=200, 1usize..=200, any::<u32>());
    let size = prop_oneof![Just(0.2f32), Just(1.0), Just(3.0)];
    let chosen = (0usize..9, 1usize..9);
    let block_values = prop_oneof![Just(1usize), Just(3000), Just(1 << 20)];
    let flags = (any::<[bool; 4]>(), prop::bool::weighted(0.7));
    let spec = (specs(), prop::bool::weighted(0.3))
        .prop_map(|(spec, is_cross)| AttentionSpec { is_cross, ..spec });
    let all = (spec, sizes, size, chosen, block_values, flags);
    all.prop_map(|(spec, sizes, size, chosen, block_values, flags)| {
        let (n_queries, n_keys, seed) = sizes;
        let n_queries = if block_values == 1 {
            n_queries.min(20)
        } else {
            n_queries
        };
        let ([is_padded, has_sinks, has_tokens, has_positions], runs_all) = flags;
        let n_keys = if spec.is_cross { n_keys } else { n_queries };
        let (n_heads, axis) = (spec.n_heads, spec.softmax_axis);
        let mut case = Case::crossing(spec, n_queries, n_keys, u64::from(seed), size);
        case.block_values = block_values;
        let seed = u64::from(seed) + 77;
        let real = |seed: u64, n: usize| -> Option<Vec<bool>> {
            is_padded.then(|| noise(seed, n).iter().map(|v| *v < 0.4).collect())
        };
        case.real_keys = real(seed, n_keys);
        case.real_queries = if case.spec.is_cross {
            real(seed + 1, n_queries)
        } else {
            case.real_keys.clone()
        };
        // A learned sink belongs to a softmax over keys.
        if has_sinks && axis == SoftmaxAxis::Keys {
            case.sinks = Some(noise(seed + 2, n_heads).iter().map(|v| v * 5.0).collect());
        }
        if case.spec.bias != Bias::None {
            case.bucket_values = noise(seed + 3, N_BUCKETS * n_heads);
        }
        if has_tokens && !case.spec.is_cross {
            let tokens = noise(seed + 4, n_queries).into_iter();
            case.tokens = Some(tokens.map(|v| (v.abs() * 20.0) as u32).collect());
        }
        if has_positions {
            // As a mask counts them: padded tokens take no position.
            let mut position = 0;
            let real = |idx: usize| case.real_keys.as_ref().is_none_or(|real| real[idx]);
            for idx in 0..n_queries.max(n_keys) {
                case.positions.push(position);
                position += usize::from(idx >= n_keys || real(idx));
            }
        }
        if !runs_all {
            let first = chosen.0 % n_heads;
            case.heads = first..(first + chosen.1).min(n_heads);
        }
        case
    })
}

fn every_knob(candle: &Candle) {
    let config = ProptestConfig {
        cases: tries(40, 3),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let worst = Cell::new(Apart::default());
    let ran = TestRunner::new(config).run(&cases(), |case| {
        let apart = compare(&case, &on_device(candle, &case));
        let before = worst.get();
        worst.set(Apart {
            pattern: before.pattern.max(apart.pattern),
            entropy: before.entropy.max(apart.entropy),
        });
        Ok(())
    });
    ran.unwrap_or_else(|e| panic!("{e}"));
    testing::devices::tell(&format!("{:?}", worst.get()));
}

fn long_rows(candle: &Candle) {
    for (n, axis) in [
        (1, SoftmaxAxis::Keys),
        (700, SoftmaxAxis::Keys),
        (500, SoftmaxAxis::Queries),
        (500, SoftmaxAxis::Heads),
    ] {
        let spec = AttentionSpec {
            softmax_axis: axis,
            ..AttentionSpec::plain(4, 2, 32, true)
        };
        let mut case = Case::filled(spec, n, n as u64, 1.5);
        case.block_values = 100_000;
        case.tokens = Some((0..n as u32).map(|i| i % 50).collect());
        compare(&case, &on_device(candle, &case));
    }
}

/// Under a softmax over queries, all that a row has may be too small for f32: it has no shares then, on either side.
fn next_to_nothing(candle: &Candle) {
    let (mut n_without, mut n_small) = (0, 0);
    for seed in 0..60 {
        let spec = AttentionSpec {
            softmax_axis: SoftmaxAxis::Queries,
            ..AttentionSpec::plain(2, 1, 16, true)
        };
        let case = Case::filled(spec, 12, seed, 9.0);
        let found = on_device(candle, &case);
        compare(&case, &found);
        for row in found.summaries.iter().flat_map(|head| &head.rows) {
            n_without += usize::from(row.contribution < 1e-32);
            n_small += usize::from((1e-28..1e-15).contains(&row.contribution));
            assert!((0.0..3.0).contains(&row.contribution_entropy), "{row:?}");
        }
    }
    assert!(
        n_without > 5 && n_small > 5,
        "{n_without} without shares, {n_small} small"
    );
}

fn large_scores(candle: &Candle) {
    for size in [17.0, 40.0] {
        let case = Case::filled(AttentionSpec::plain(1, 1, 16, false), 80, 5, size);
        let found = on_device(candle, &case);
        for row in &found.summaries[0].rows {
            assert!(
                (row.mass - 1.0).abs() < 1e-5 && row.entropy >= -1e-6,
                "{row:?}"
            );
        }
    }
}

/// Rows that see a NaN have it, the others do not notice; so for an infinity.
fn not_a_number(candle: &Candle) {
    for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for axis in [SoftmaxAxis::Keys, SoftmaxAxis::Queries] {
            let spec = AttentionSpec {
                softmax_axis: axis,
                ..AttentionSpec::plain(2, 1, 16, true)
            };
            let mut case = Case::filled(spec, 100, 11, 1.0);
            case.k[40 * 16 + 3] = broken;
            for block_values in [200, 4000, 1 << 20] {
                case.block_values = block_values;
                let found = on_device(candle, &case);
                compare(&case, &found);
                let rows = &found.summaries[0].rows;
                assert!(rows[40..].iter().all(|row| row.is_nonfinite));
                assert!(rows[..40].iter().all(|row| !row.is_nonfinite));
            }
        }
    }
}

fn an_infinite_value(candle: &Candle) {
    let mut case = Case::filled(AttentionSpec::plain(1, 1, 8, true), 50, 3, 1.0);
    case.v[20 * 8] = f32::INFINITY;
    let (found, expected) = (on_device(candle, &case), by_definition(&case));
    for (found, expected) in found.z.iter().zip(&expected.z) {
        assert_eq!(found.is_finite(), expected.is_finite());
    }
}

fn stopping(candle: &Candle) {
    let case = Case::filled(AttentionSpec::plain(2, 1, 8, true), 60, 1, 1.0);
    let candle = candle.clone().with_block_values(1200);
    let mut buffers: [_; 3] = Default::default();
    let inputs = [(&case.q, 16), (&case.k, 8), (&case.v, 8)];
    for (buffer, (values, width)) in buffers.iter_mut().zip(inputs) {
        candle.put(values, width, buffer).expect("put");
    }
    let n_asked = AtomicUsize::new(0);
    let stop = || n_asked.fetch_add(1, Ordering::Relaxed) == 2;
    let (collect, mut z) = (Collect::default(), Default::default());
    let [q, k, v] = &buffers;
    let ran = case.with_run(&collect, &stop, |run| candle.attend(run, q, k, v, &mut z));
    assert!(matches!(ran, Err(Error::Cancelled)));
    assert_eq!(n_asked.into_inner(), 3, "asked before each block");
}

on_each_device! {
    every_knob_gives_what_the_cpu_gives: every_knob;
    long_rows_in_many_blocks_agree: long_rows;
    rows_that_carry_next_to_nothing_have_no_shares: next_to_nothing;
    scores_beyond_the_range_of_exp_still_give_a_pattern: large_scores;
    what_is_not_a_number_reaches_the_rows_that_see_it_and_no_other: not_a_number;
    an_infinite_value_reaches_the_output: an_infinite_value;
    work_stops_between_row_blocks: stopping;
}
