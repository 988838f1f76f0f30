//! Tests of which keys each query sees.

use super::mask::*;
use super::spec::Mask;
use super::window::Window;

fn visible(mask: Mask, n: usize, query_idx: usize) -> Vec<usize> {
    let visibility = Visibility::of_self(mask, n, None);
    (0..n)
        .filter(|key_idx| visibility.sees(query_idx, *key_idx))
        .collect()
}

#[test]
fn a_window_includes_the_query_itself() {
    let mask = Mask {
        causal: true,
        window: Some(Window::Back(3)),
        streaming: None,
        pools: None,
    };
    assert_eq!(visible(mask, 8, 5), [3, 4, 5]);
    assert_eq!(visible(mask, 8, 1), [0, 1]);
}

#[test]
fn pools_behind_the_tokens_are_seen_once_they_are_whole() {
    let mask = Mask {
        pools: Some(3),
        ..Mask::with_width(true, Some(2))
    };
    // Seven tokens, of which the last is in no pool.
    let real = [true, true, true, true, true, true, true, false, true];
    for keys in [(9, None), (9, Some(&real[..]))] {
        let visibility = Visibility::of_cross(mask, (7, None), keys);
        let seen = |query_idx: usize| -> Vec<usize> {
            (0..9)
                .filter(|key| visibility.sees(query_idx, *key))
                .collect()
        };
        let is_padded = keys.1.is_some();
        let first = |own: &[usize]| -> Vec<usize> {
            let own = own.iter().copied();
            own.filter(|key| !is_padded || real[*key]).collect()
        };
        assert_eq!([seen(0), seen(1)], [vec![0], vec![0, 1]]);
        assert_eq!(seen(2), first(&[1, 2, 7]));
        assert_eq!(seen(4), first(&[3, 4, 7]));
        assert_eq!(seen(6), first(&[5, 6, 7, 8]));
        for query_idx in 0..7 {
            assert_eq!(visibility.n_visible(query_idx), seen(query_idx).len());
            for (key_idx, is_real) in real.into_iter().enumerate() {
                let by_mask = mask.queries_seeing(key_idx, 7).contains(&query_idx);
                let sees = seen(query_idx).contains(&key_idx);
                assert_eq!(sees, by_mask && (!is_padded || is_real));
            }
        }
    }
}

#[test]
fn chunks_follow_each_other_and_padding_shifts_them() {
    let mask = Mask {
        causal: true,
        window: Some(Window::Chunk(3)),
        streaming: None,
        pools: None,
    };
    assert_eq!(visible(mask, 8, 2), [0, 1, 2]);
    assert_eq!(visible(mask, 8, 3), [3]);
    assert_eq!(visible(mask, 8, 7), [6, 7]);
    let real = [false, false, true, true, true, true, true, true];
    let padded = Visibility::of_self(mask, 8, Some(&real));
    let seen = |query_idx: usize| -> Vec<usize> {
        (0..8)
            .filter(|key_idx| padded.sees(query_idx, *key_idx))
            .collect()
    };
    assert_eq!((seen(4), seen(5)), (vec![2, 3, 4], vec![5]));
    assert_eq!((padded.range(0), padded.range(1)), (0..1, 0..2));
}

#[test]
fn global_tokens_see_all_tokens_and_are_seen_by_all() {
    let mask = Mask {
        causal: false,
        window: Some(Window::Around(1)),
        streaming: None,
        pools: None,
    };
    let n = 7;
    let real = [true, true, true, true, true, true, false];
    let global = vec![true, false, false, false, true, false, false];
    let visibility = Visibility::of_self(mask, n, Some(&real)).with_global(global.clone());
    for query_idx in 0..n {
        let seen = |key_idx: usize| {
            let is_near = query_idx.abs_diff(key_idx) <= 1;
            real[key_idx] && (is_near || global[query_idx] || global[key_idx])
        };
        let counted = (0..n).filter(|key_idx| seen(*key_idx)).count();
        assert_eq!(visibility.n_visible(query_idx), counted, "{query_idx}");
        for key_idx in 0..n {
            assert_eq!(visibility.sees(query_idx, key_idx), seen(key_idx));
        }
    }
    assert_eq!(visibility.blocks(0..n, 2), [0..1, 1..3, 3..4, 4..5, 5..7]);
    let causal = Mask {
        causal: true,
        window: Some(Window::Back(2)),
        streaming: None,
        pools: None,
    };
    let causal = Visibility::of_self(causal, n, None).with_global(global);
    assert_eq!(
        (causal.range(6), causal.range(4), causal.range(2)),
        (0..7, 0..5, 0..3)
    );
    assert!(causal.sees(6, 4) && !causal.sees(6, 3) && !causal.sees(2, 4));
}

#[test]
fn a_streaming_cache_keeps_the_first_and_the_latest_real_keys() {
    use super::window::Streaming;
    let n = 9;
    let real: Vec<bool> = (0..n).map(|idx| idx != 0 && idx != 7).collect();
    for (window, real) in [
        (None, None),
        (Some(Window::Back(5)), None),
        (Some(Window::Chunk(4)), None),
        (None, Some(real.as_slice())),
    ] {
        for (recent, sinks) in [(2, 2), (3, 0), (1, 1), (20, 4), (2, 20)] {
            let streaming = Some(Streaming { recent, sinks });
            let mask = Mask {
                causal: true,
                window,
                streaming,
                pools: None,
            };
            let plain = Visibility::of_self(
                Mask {
                    streaming: None,
                    pools: None,
                    ..mask
                },
                n,
                real,
            );
            let kept = Visibility::of_self(mask, n, real);
            let first = plain.first_real_key().unwrap_or(0);
            for query_idx in 0..n {
                let expected: Vec<usize> = (0..n)
                    .filter(|key_idx| plain.sees(query_idx, *key_idx))
                    .filter(|key_idx| *key_idx < first + sinks || query_idx - key_idx < recent)
                    .collect();
                let seen = (0..n).filter(|key_idx| kept.sees(query_idx, *key_idx));
                assert_eq!(seen.collect::<Vec<_>>(), expected, "{mask}: {query_idx}");
                assert_eq!(kept.n_visible(query_idx), expected.len(), "{mask}");
                let range = kept.range(query_idx);
                let has_holes = range
                    .clone()
                    .any(|key_idx| !plain.is_real_key(key_idx) || kept.sees(query_idx, key_idx));
                assert!(range.is_empty() || has_holes, "{mask}: {query_idx}");
            }
        }
    }
}

#[test]
fn a_reach_includes_keys_on_either_side() {
    let mask = Mask {
        causal: false,
        window: Some(Window::Around(2)),
        streaming: None,
        pools: None,
    };
    assert_eq!(visible(mask, 8, 5), [3, 4, 5, 6, 7]);
    assert_eq!(visible(mask, 8, 0), [0, 1, 2]);
}

#[test]
fn a_window_may_reach_further_on_one_side() {
    let window = Window::Back(4).centred();
    let mask = Mask {
        causal: false,
        window: Some(window),
        streaming: None,
        pools: None,
    };
    assert_eq!(visible(mask, 8, 4), [3, 4, 5, 6]);
    let seeing = |key: &usize| window.keys(*key, 0).contains(&4);
    let seeing: Vec<usize> = (0..8).filter(seeing).collect();
    assert_eq!(window.queries(4).collect::<Vec<_>>(), seeing);
}

#[test]
fn a_window_may_have_the_largest_possible_width() {
    for (causal, window, seen) in [
        (false, Window::Around(usize::MAX), vec![0, 1, 2, 3]),
        (true, Window::Back(usize::MAX), vec![0, 1, 2]),
        (false, Window::Back(usize::MAX), vec![0, 1, 2]),
    ] {
        let mask = Mask {
            causal,
            window: Some(window),
            streaming: None,
            pools: None,
        };
        assert_eq!(visible(mask, 4, 2), seen, "{window:?}");
    }
}

const OPEN: Mask = Mask {
    causal: false,
    window: None,
    streaming: None,
    pools: None,
};

#[test]
fn first_and_previous_keys_skip_padding() {
    let plain = Visibility::of_self(OPEN, 4, None);
    assert_eq!(plain.first_real_key(), Some(0));
    let previous = |visibility: &Visibility| -> Vec<Option<usize>> {
        (0..4)
            .map(|idx| visibility.previous_real_key(idx))
            .collect()
    };
    assert_eq!(previous(&plain), [None, Some(0), Some(1), Some(2)]);
    let left = Visibility::of_self(OPEN, 4, Some(&[false, true, true, true]));
    assert_eq!(left.first_real_key(), Some(1));
    assert_eq!(previous(&left), [None, None, Some(1), Some(2)]);
    let between = Visibility::of_self(OPEN, 4, Some(&[true, false, false, true]));
    assert_eq!(previous(&between), [None, None, None, Some(0)]);
}

#[test]
fn no_query_sees_a_padded_key() {
    let mask = Mask {
        causal: true,
        window: None,
        streaming: None,
        pools: None,
    };
    let visibility = Visibility::of_self(mask, 4, Some(&[false, true, true, true]));
    assert_eq!(visibility.n_visible(0), 0);
    assert_eq!(visibility.n_visible(3), 3);
    assert!(!visibility.sees(2, 0) && !visibility.is_real_query(0));
}
