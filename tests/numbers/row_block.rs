//! One head in row blocks against the same head in f64: scores, pattern, output and every figure of every row.

use attnscope_compute::attention::{
    Alibi, AttentionSpec, Bias, GridSteps, GridWindow, HeadBias, HeadRows, KeyRank, NoVisible,
    Profiles, Relative, RelativeTables, Scale, SoftmaxAxis, StepTables, Streaming, TopKeys,
    ValueBias, Visibility, Window,
};
use proptest::prelude::*;
use testing::effort::tries;
use testing::head_reference::Case;
use testing::head_reference::compare::{Path, compare, paths, run};
use testing::head_reference::made::{filled, noise, with_globals};
use testing::random_specs::{N_BUCKETS, specs};

/// A whole random case and the head to look at.
fn cases() -> impl Strategy<Value = (Case, usize)> {
    let padding = prop_oneof![
        2 => Just(None),
        1 => any::<u64>().prop_map(Some),
    ];
    let sinks = prop::option::of(prop::collection::vec(-4.0f32..6.0, 9));
    let size = prop_oneof![Just(0.2f32), Just(1.0), Just(3.0)];
    let length = prop_oneof![9 => 1usize..=150, 1 => 151usize..=400];
    let rest = (length, any::<u32>(), size, padding, sinks);
    (specs(), rest, 0usize..9).prop_map(|(spec, (n, seed, size, padding, sinks), head)| {
        let head_idx = head % spec.n_heads;
        let axis = spec.softmax_axis;
        let mut case = filled(spec, n, u64::from(seed), size);
        // A third of the tokens is padding; now and then all of a row's keys are.
        case.real = padding.map(|seed| noise(seed, n).iter().map(|v| *v < 0.33).collect());
        // A learned sink belongs to a softmax over keys.
        case.sinks = sinks.filter(|_| axis == SoftmaxAxis::Keys);
        case.bucket_values = Some(noise(u64::from(seed) + 7, N_BUCKETS * 9));
        // Positions of some do not begin at 0, and pass over some numbers.
        if seed % 3 == 0 {
            case.positions = (0..n).map(|idx| 5 + idx + idx / 7).collect();
        }
        if seed % 5 == 1 {
            case = with_globals(case, u64::from(seed), 0.1);
        }
        (case, head_idx)
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: tries(40, 3),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_head_in_row_blocks_is_the_head_of_the_definition((case, head_idx) in cases()) {
        compare(&case, head_idx);
    }
}

/// Scores with learned vectors of distances, of queries, of keys and of both, with rows that long distances share.
#[test]
fn heads_with_vectors_of_distances_agree() {
    for (n, span, log_until, sides) in [
        (1, 3, None, [true, true]),
        (70, 6, None, [true, false]),
        (131, 8, Some(64), [false, true]),
        (97, 200, None, [true, true]),
    ] {
        let relative = Relative { span, log_until };
        let spec = AttentionSpec {
            bias: Bias::Relative(relative),
            scale: Scale::Factor(0.11),
            ..AttentionSpec::plain(4, 2, 12, false)
        };
        let table = |seed, is_there: bool| is_there.then(|| noise(seed, 2 * span * 4 * 12));
        let mut case = filled(spec, n, n as u64, 1.5);
        case.relative = Some(RelativeTables {
            keys: table(5, sides[0]),
            queries: table(6, sides[1]),
            of_rows: sides[0].then(|| noise(7, 2 * span * 4)),
            ..RelativeTables::default()
        });
        case.real = (n == 131).then(|| noise(9, n).iter().map(|v| *v < 0.6).collect());
        compare(&case, 3);
    }
}

/// Scores with profiles of distances that each query mixes, which end before the farthest key or beyond it.
#[test]
fn heads_with_profiles_of_distances_agree() {
    for (n, n_distances, causal) in [
        (1, 3, true),
        (70, 6, true),
        (131, 200, true),
        (97, 20, false),
    ] {
        let profiles = Profiles { n: 5, n_distances };
        let spec = AttentionSpec {
            bias: Bias::Profiles(profiles),
            scale: Scale::InvD,
            ..AttentionSpec::plain(4, 2, 12, causal)
        };
        let mut case = filled(spec, n, n as u64, 1.5);
        case.bucket_values = Some(noise(5, 5 * n_distances));
        case.bias_factors = Some(noise(6, n * 4 * 5));
        case.real = (n == 131).then(|| noise(9, n).iter().map(|v| *v < 0.6).collect());
        compare(&case, 3);
    }
}

/// Scores with learned vectors of distances in rows and in columns, or with a value of each head; windows that reach beyond the picture
/// have empty places, which take probability.
#[test]
fn heads_with_steps_in_rows_and_columns_agree() {
    for (grid, window, has_vectors, has_key, shift) in [
        ([1, 1], None, true, false, [0, 0]),
        ([9, 7], None, true, true, [0, 0]),
        ([9, 7], Some([4, 4]), true, true, [0, 0]),
        ([10, 13], Some([3, 5]), false, true, [0, 0]),
        ([8, 9], Some([4, 3]), true, true, [0, 0]),
        ([5, 5], Some([7, 7]), true, false, [0, 0]),
        ([9, 7], Some([4, 4]), true, true, [2, 2]),
        ([10, 13], Some([3, 5]), false, true, [1, 2]),
    ] {
        let steps = GridSteps {
            grid,
            window: window.map(|[rows, columns]| GridWindow {
                rows,
                columns,
                n_first: 0,
                shift,
                per_query: 1,
                is_spread: false,
            }),
        };
        let spec = AttentionSpec {
            bias: Bias::Steps(steps),
            scale: Scale::Factor(0.3),
            ..AttentionSpec::plain(4, 2, 12, false)
        };
        let n = grid[0] * grid[1];
        let mut case = filled(spec, n, n as u64, 1.5);
        let [rows, columns] = steps
            .n_steps()
            .map(|n| if has_vectors { 12 * n } else { 0 });
        let n_pairs: usize = steps.n_steps().iter().product();
        let has_pairs = shift != [0, 0];
        case.relative = Some(RelativeTables {
            steps: StepTables {
                rows: noise(5, rows),
                columns: noise(6, columns),
                pairs: noise(8, if has_pairs { 4 * n_pairs } else { 0 }),
                empty_key: noise(7, if has_key { 2 * 12 } else { 0 }),
                empty_value: Vec::new(),
            },
            ..RelativeTables::default()
        });
        compare(&case, 3);
    }
}

/// A bias of keys that their values make: causal rows, grouped heads, with a stored bias and without.
#[test]
fn heads_with_a_bias_made_of_values_agree() {
    for (n, has_bias) in [(1, true), (70, false), (131, true)] {
        let spec = AttentionSpec {
            bias: Bias::OfValues,
            ..AttentionSpec::plain(4, 2, 12, true)
        };
        let mut case = filled(spec, n, n as u64, 1.5);
        case.relative = Some(RelativeTables {
            of_values: Some(ValueBias {
                weights: noise(5, 2 * 2 * 12),
                biases: has_bias.then(|| noise(6, 2)),
                strengths: noise(7, 2),
            }),
            ..RelativeTables::default()
        });
        compare(&case, 3);
    }
}

#[test]
fn lengths_around_the_block_and_far_beyond_it_agree() {
    for n in [1, 2, 63, 64, 65, 128, 129, 700] {
        let spec = AttentionSpec::plain(2, 1, 64, true);
        compare(&filled(spec, n, n as u64, 1.5), 1);
    }
}

#[test]
fn a_long_bidirectional_head_with_padding_agrees() {
    let mut case = filled(AttentionSpec::plain(1, 1, 32, false), 517, 5, 1.5);
    case.real = Some((0..517).map(|i| (40..490).contains(&i)).collect());
    compare(&case, 0);
}

#[test]
fn global_tokens_see_all_by_keys_and_values_of_their_own() {
    for (n, reach, share, axis) in [
        (1, 3, 1.0, SoftmaxAxis::Keys),
        (131, 4, 0.02, SoftmaxAxis::Keys),
        (300, 40, 0.3, SoftmaxAxis::Keys),
        (517, 16, 0.01, SoftmaxAxis::Keys),
        (140, 5, 0.1, SoftmaxAxis::Queries),
        (140, 5, 0.1, SoftmaxAxis::Heads),
    ] {
        let mut spec = AttentionSpec::plain(4, 2, 24, false);
        spec.mask.window = Some(Window::Around(reach));
        spec.softmax_axis = axis;
        let mut case = with_globals(filled(spec, n, n as u64, 1.5), n as u64, share);
        compare(&case, 3);
        case.real = (n > 1).then(|| (0..n).map(|i| i < n - n / 4).collect());
        compare(&case, 0);
    }
}

/// Scores are small integers, so that every path finds the same ones and many are equal.
#[test]
fn rows_of_the_largest_scores_agree_and_ties_go_to_the_lower_index() {
    for (n, k, causal, axis) in [
        (1, 1, true, SoftmaxAxis::Keys),
        (70, 1, true, SoftmaxAxis::Keys),
        (131, 5, true, SoftmaxAxis::Keys),
        (131, 64, false, SoftmaxAxis::Keys),
        (90, 200, true, SoftmaxAxis::Keys),
        (77, 6, true, SoftmaxAxis::Queries),
        (77, 6, true, SoftmaxAxis::Heads),
    ] {
        let spec = AttentionSpec {
            top_keys: Some(TopKeys {
                n: k,
                by: KeyRank::Scores,
            }),
            softmax_axis: axis,
            scale: Scale::Factor(0.25),
            d_value: 5,
            ..AttentionSpec::plain(4, 2, 12, causal)
        };
        let mut case = filled(spec, n, n as u64, 2.0);
        for values in [&mut case.q, &mut case.k] {
            values.iter_mut().for_each(|value| *value = value.round());
        }
        compare(&case, 3);
        case.sinks = (axis == SoftmaxAxis::Keys).then(|| vec![0.5, -1.0, 2.0, 1.0]);
        case.real = (n > 1).then(|| noise(9, n).iter().map(|v| *v < 0.6).collect());
        case.spec.mask.streaming = Some(Streaming {
            recent: 40,
            sinks: 3,
        });
        compare(&case, 0);
    }
}

#[test]
fn a_value_that_is_no_number_reaches_global_tokens_alone() {
    let mut spec = AttentionSpec::plain(2, 2, 16, false);
    spec.mask.window = Some(Window::Around(3));
    let mut case = with_globals(filled(spec, 90, 3, 1.0), 3, 0.05);
    let (flags, keys) = case.global.as_mut().expect("global tokens");
    keys.v[40 * 32 + 3] = f32::NAN;
    let flags = flags.clone();
    for path in paths() {
        let z = run(&case, 0, path).run.z;
        for (idx, row) in z.chunks(16).enumerate() {
            assert_eq!(row[3].is_nan(), flags[idx], "{path:?}: {idx}");
        }
    }
}

#[test]
fn a_long_softmax_over_queries_agrees_and_its_columns_sum_to_one() {
    let spec = AttentionSpec {
        softmax_axis: SoftmaxAxis::Queries,
        ..AttentionSpec::plain(1, 1, 32, true)
    };
    let case = filled(spec, 300, 6, 1.5);
    compare(&case, 0);
    for path in paths() {
        for sum in run(&case, 0, path).run.summary.column_sums {
            assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        }
    }
}

/// Queries and keys whose scores reach about ±`size`.
fn extreme(spec: AttentionSpec, n: usize, size: f32) -> Case {
    // Of uniform components in ±a, q·k/√d deviates by a²/3; the largest of thousands by about 3.5 times that.
    filled(spec, n, 77, (size / 3.5 * 3.0).sqrt())
}

#[test]
fn scores_of_a_hundred_lose_no_digits() {
    for axis in [SoftmaxAxis::Keys, SoftmaxAxis::Queries, SoftmaxAxis::Heads] {
        let spec = AttentionSpec {
            softmax_axis: axis,
            ..AttentionSpec::plain(1, 1, 16, true)
        };
        let case = extreme(spec, 150, 100.0);
        let largest = case.head(0).largest;
        assert!((80.0..250.0).contains(&largest), "{largest}");
        compare(&case, 0);
    }
}

#[test]
fn scores_beyond_the_range_of_exp_still_give_a_pattern() {
    let case = extreme(AttentionSpec::plain(1, 1, 16, false), 80, 2000.0);
    assert!(case.head(0).largest > 1000.0);
    compare(&case, 0);
    let rows = paths()
        .into_iter()
        .flat_map(|path| run(&case, 0, path).run.summary.rows);
    for row in rows {
        assert!(
            (row.mass - 1.0).abs() < 1e-5 && row.entropy >= 0.0,
            "{row:?}"
        );
    }
}

#[test]
fn a_row_with_one_visible_key_gives_it_everything() {
    let mut spec = AttentionSpec::plain(1, 1, 16, true);
    spec.mask.window = Some(Window::Back(1));
    let case = extreme(spec, 70, 100.0);
    compare(&case, 0);
    for path in paths() {
        for (query_idx, row) in run(&case, 0, path).run.summary.rows.iter().enumerate() {
            assert_eq!((row.n_visible, row.top1, row.top2), (1, 1.0, 0.0));
            assert_eq!((row.mass, row.entropy, row.score_var), (1.0, 0.0, 0.0));
            assert_eq!(row.argmax as usize, query_idx);
        }
    }
}

#[test]
fn a_learned_sink_takes_its_share_and_no_more() {
    for sink in [-60.0, 0.0, 3.0, 60.0] {
        let mut case = filled(AttentionSpec::plain(2, 2, 16, true), 90, 9, 1.5);
        case.sinks = Some(vec![0.5, sink]);
        compare(&case, 1);
        let log_sums = case.head(1).log_sum_exp;
        let rows = paths().into_iter().flat_map(|path| {
            let rows = run(&case, 1, path).run.summary.rows;
            rows.into_iter().zip(log_sums.clone())
        });
        for (row, log_sum_exp) in rows {
            let taken = (f64::from(sink) - log_sum_exp).exp();
            assert!(
                (f64::from(row.mass) - (1.0 - taken)).abs() < 1e-5,
                "{sink}: {row:?}"
            );
        }
    }
}

#[test]
fn a_nan_in_a_key_reaches_every_row_that_sees_it_and_no_other() {
    paths().into_iter().for_each(nan_in_a_key);
}

fn nan_in_a_key(path: Path) {
    let healthy = filled(AttentionSpec::plain(1, 1, 16, true), 100, 11, 1.0);
    let mut broken = healthy.clone();
    broken.k[40 * 16 + 3] = f32::NAN;
    let (healthy, found) = (run(&healthy, 0, path), run(&broken, 0, path));
    assert!(found.run.summary.k_norms[40].is_nan());
    for (query_idx, row) in found.run.summary.rows.iter().enumerate() {
        let pattern = &found.pattern[query_idx * 100..(query_idx + 1) * 100];
        if query_idx < 40 {
            // Their words, since NaN (no previous key) equals nothing.
            let untouched = &healthy.run.summary.rows[query_idx];
            assert_eq!(format!("{row:?}"), format!("{untouched:?}"));
            assert!(pattern.iter().all(|p| p.is_finite()));
            continue;
        }
        assert!(row.is_nonfinite, "query {query_idx} is not flagged");
        assert!(
            pattern[..=query_idx].iter().all(|p| p.is_nan()),
            "query {query_idx} is repaired"
        );
        assert!(pattern[query_idx + 1..].iter().all(|p| *p == 0.0));
        let sums = [
            row.score_mean,
            row.score_var,
            row.score_norm,
            row.raw_mean,
            row.raw_var,
            row.log_sum_exp,
            row.entropy,
            row.mass,
            row.top1,
            row.top2,
            row.sum_p2,
            row.sum_p3,
            row.first_mass,
            row.diagonal_mass,
            row.previous_mass,
            row.distance,
            row.contribution,
            row.contribution_entropy,
            row.k_norm_sq_sum,
            row.cosine,
        ];
        assert!(
            sums.iter().all(|sum| sum.is_nan()),
            "query {query_idx}: {row:?}"
        );
        let z = &found.run.z[query_idx * 16..(query_idx + 1) * 16];
        assert!(z.iter().all(|z| z.is_nan()));
    }
    let sums = &found.run.summary.column_sums;
    assert!(
        sums.iter().all(|sum| sum.is_nan()),
        "every key is seen by a broken row"
    );
    let pooled = &found.run.summary.pooled;
    assert!(pooled.at(pooled.n_rows - 1, 0).is_nan() && !pooled.at(0, 0).is_nan());
}

#[test]
fn an_infinite_score_is_flagged_whatever_its_sign() {
    paths().into_iter().for_each(infinite_score);
}

fn infinite_score(path: Path) {
    // Key 5 has an infinite component; its sign against each query's decides where the score goes.
    let mut case = filled(AttentionSpec::plain(1, 1, 8, false), 30, 13, 1.0);
    case.k[5 * 8] = f32::INFINITY;
    let found = run(&case, 0, path);
    let mut n_of_each = [0, 0];
    for (query_idx, row) in found.run.summary.rows.iter().enumerate() {
        assert!(row.is_nonfinite);
        let pattern = &found.pattern[query_idx * 30..(query_idx + 1) * 30];
        if case.q[query_idx * 8] > 0.0 {
            // e^∞ / e^∞ is no number, and nothing makes one of it.
            assert!(row.mass.is_nan() && pattern[5].is_nan());
            assert_eq!(row.score_max, f32::INFINITY);
            n_of_each[0] += 1;
        } else {
            assert_eq!((pattern[5], row.score_min), (0.0, f32::NEG_INFINITY));
            assert!((row.mass - 1.0).abs() < 1e-5 && row.entropy.is_finite());
            n_of_each[1] += 1;
        }
    }
    assert!(n_of_each.iter().all(|n| *n > 5), "{n_of_each:?}");
}

#[test]
fn a_part_of_a_map_computed_alone_is_that_part_of_the_whole() {
    let spec = AttentionSpec {
        softcap: Some(20.0),
        bias: Bias::Alibi(Alibi::new(4, 8.0)),
        ..AttentionSpec::plain(4, 2, 24, true)
    };
    let mut case = filled(spec, 130, 3, 2.0);
    case.sinks = Some(vec![0.1, 0.2, 0.3, 0.4]);
    part_of_whole(&case, 3);
    let mut spec = AttentionSpec::plain(4, 2, 24, false);
    spec.mask.window = Some(Window::Around(6));
    part_of_whole(&with_globals(filled(spec, 130, 4, 2.0), 4, 0.2), 3);
}

fn part_of_whole(case: &Case, head_idx: usize) {
    let n = case.n;
    let whole = run(case, head_idx, Path::Definition);
    let columns = |values: &[f32], stride: usize, at: usize| -> Vec<f32> {
        let rows = values.chunks(stride);
        rows.flat_map(|row| row[at..at + 24].to_vec()).collect()
    };
    let mut visibility = Visibility::of_self(case.spec.mask, n, None);
    if let Some((flags, _)) = &case.global {
        visibility = visibility.with_global(flags.clone());
    }
    let global = case.global.as_ref();
    let rows = HeadRows {
        visibility,
        q: columns(&case.q, 4 * 24, 3 * 24),
        k: columns(&case.k, 2 * 24, 24),
        global_k: global.map(|(_, keys)| columns(&keys.k, 2 * 24, 24)),
        sink: case.sinks.as_ref().map(|sinks| sinks[head_idx]),
        learned: HeadBias::None,
        positions: Vec::new(),
        value_norms: None,
        global_value_norms: None,
        spec: case.spec.clone(),
        head_idx,
    };
    let part = rows.part(50..61, 40..57, |_| {});
    for (nth, query_idx) in (50..61).enumerate() {
        for (at, key_idx) in (40..57).enumerate() {
            let (p, expected) = (
                part.pattern[nth * 17 + at],
                whole.pattern[query_idx * n + key_idx],
            );
            assert!(
                (p - expected).abs() < 1e-6,
                "{query_idx} {key_idx}: {p} {expected}"
            );
            let is_masked = !case.sees(query_idx, key_idx);
            assert_eq!(part.scores[nth * 17 + at] == f32::NEG_INFINITY, is_masked);
        }
    }
}

#[test]
fn rows_that_see_nothing_become_what_the_spec_says() {
    for no_visible in [NoVisible::Zero, NoVisible::Uniform, NoVisible::Nan] {
        let spec = AttentionSpec {
            no_visible,
            ..AttentionSpec::plain(1, 1, 8, true)
        };
        let mut case = filled(spec, 20, 17, 1.0);
        case.real = Some((0..20).map(|i| i >= 4).collect());
        compare(&case, 0);
        for path in paths() {
            assert_eq!(run(&case, 0, path).run.summary.rows[2].n_visible, 0);
        }
    }
}
