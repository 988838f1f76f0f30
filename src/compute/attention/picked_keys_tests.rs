//! Tests of the keys that an indexer picks.

use super::mask::Visibility;
use super::picked_keys::*;
use super::spec::Mask;
use super::top_keys::{GridWindow, KeyBlocks, KeyRank, TopKeys};

fn picked(
    top: TopKeys,
    input: IndexInput<'_>,
    (n, n_heads): (usize, usize),
) -> Vec<Vec<Vec<usize>>> {
    let visibility = Visibility::of_self(Mask::with_width(true, None), n, None);
    let picks = PickedKeys::of(top, input, (&visibility, n_heads), &|| false).expect("an indexer");
    let row = |head_idx: usize, query_idx: usize| -> Vec<usize> {
        let seen = (0..n).filter(|key_idx| visibility.sees(query_idx, *key_idx));
        seen.filter(|key_idx| picks.has(head_idx, query_idx, *key_idx))
            .collect()
    };
    let head = |head_idx: usize| (0..n).map(|query_idx| row(head_idx, query_idx)).collect();
    (0..n_heads).map(head).collect()
}

#[test]
fn windows_of_a_picture_are_cut_from_its_first_patch_and_smaller_at_its_ends() {
    let visibility = Visibility::of_self(Mask::with_width(false, None), 12, None);
    let window = GridWindow::plain([2, 2]);
    // 4 rows of 3 columns.
    let picks = PickedKeys::of_windows(window, 3, (&visibility, 2));
    let row = |query_idx: usize| -> Vec<usize> {
        (0..12)
            .filter(|key| picks.has(1, query_idx, *key))
            .collect()
    };
    assert_eq!([row(4), row(2)], [vec![0, 1, 3, 4], vec![2, 5]]);
    assert_eq!(row(11), [8, 11]);
    // Shifted by one: rows 0, 1–2 and 3; columns 0 and 1–2.
    let shifted = GridWindow {
        shift: [1, 1],
        ..window
    };
    let picks = PickedKeys::of_windows(shifted, 3, (&visibility, 2));
    let row = |query_idx: usize| -> Vec<usize> {
        (0..12)
            .filter(|key| picks.has(1, query_idx, *key))
            .collect()
    };
    assert_eq!(
        [row(0), row(4), row(9)],
        [vec![0], vec![4, 5, 7, 8], vec![9]]
    );
    // A token before the patches for each of the two windows of one row of four columns.
    let visibility = Visibility::of_self(Mask::with_width(false, None), 6, None);
    let window = GridWindow {
        n_first: 2,
        ..window
    };
    let picks = PickedKeys::of_windows(window, 4, (&visibility, 1));
    let seen =
        |query: usize| -> Vec<usize> { (0..6).filter(|key| picks.has(0, query, *key)).collect() };
    assert_eq!([seen(1), seen(2)], [vec![1, 4, 5], vec![0, 2, 3]]);
}

#[test]
fn patches_of_a_spread_window_lie_apart_and_tokens_before_them_see_themselves() {
    let visibility = Visibility::of_self(Mask::with_width(false, None), 14, None);
    let window = GridWindow {
        n_first: 2,
        is_spread: true,
        ..GridWindow::plain([2, 3])
    };
    // Two tokens, and 4 rows of 3 columns: two moments of 2 × 3 patches.
    let picks = PickedKeys::of_windows(window, 3, (&visibility, 1));
    let seen =
        |query: usize| -> Vec<usize> { (0..14).filter(|key| picks.has(0, query, *key)).collect() };
    assert_eq!([seen(0), seen(1)], [[0], [1]]);
    assert_eq!([seen(2), seen(9)], [[2, 8], [3, 9]]);
    // Every second row and column.
    let window = GridWindow {
        n_first: 0,
        ..GridWindow {
            columns: 2,
            ..window
        }
    };
    let picks = PickedKeys::of_windows(window, 3, (&visibility, 1));
    let seen: Vec<usize> = (0..12).filter(|key| picks.has(0, 2, *key)).collect();
    assert_eq!(seen, [0, 2, 6, 8]);
}

#[test]
fn a_query_of_several_keys_sees_the_window_of_its_first() {
    let visibility = Visibility::of_cross(Mask::with_width(false, None), (4, None), (16, None));
    let window = GridWindow {
        per_query: 2,
        ..GridWindow::plain([2, 2])
    };
    // 2 × 2 queries of 4 × 4 keys.
    let picks = PickedKeys::of_windows(window, 4, (&visibility, 1));
    let seen =
        |query: usize| -> Vec<usize> { (0..16).filter(|key| picks.has(0, query, *key)).collect() };
    assert_eq!([seen(1), seen(2)], [vec![2, 3, 6, 7], vec![8, 9, 12, 13]]);
}

#[test]
fn an_indexer_picks_of_the_pools_that_a_query_sees_and_leaves_tokens() {
    // Five tokens, a window of two, and two pools.
    let mask = Mask {
        pools: Some(2),
        ..Mask::with_width(true, Some(2))
    };
    let visibility = Visibility::of_cross(mask, (5, None), (7, None));
    let input = IndexInput {
        q: &[1.0; 5],
        k: &[1.0, 2.0],
        weights: Some(&[1.0, 1.0, 1.0, 1.0, -1.0]),
        n_heads: 1,
        d_head: 1,
    };
    let picks = PickedKeys::of_pools(1, input, (&visibility, 2), &|| false).expect("not stopped");
    let of = |query: usize| -> Vec<usize> {
        let seen = (0..7).filter(|key| visibility.sees(query, *key));
        seen.filter(|key| picks.has(1, query, *key)).collect()
    };
    assert_eq!(
        [of(0), of(1), of(2)],
        [vec![0], vec![0, 1, 5], vec![1, 2, 5]]
    );
    // The weight of the last query turns the order.
    assert_eq!([of(3), of(4)], [vec![2, 3, 6], vec![3, 4, 5]]);
}

#[test]
fn pools_rank_by_a_mean_of_their_keys_and_what_is_behind_the_last_is_kept() {
    let input = IndexInput {
        q: &[1.0; 7],
        // Keys of pools: of 8 and 0, all of the second; of 1 and 3, the mean; of 6 and 0, almost all of the first.
        k: &[
            8.0, -90.0, 0.0, 0.0, 1.0, 0.0, 3.0, 0.0, 6.0, 50.0, 0.0, 0.0, 9.0, 0.0,
        ],
        weights: Some(&[1.0; 7]),
        n_heads: 1,
        d_head: 1,
    };
    let top = TopKeys {
        n: 2,
        by: KeyRank::Indexer(KeyBlocks {
            size: 2,
            n_local: 0,
            are_pooled: true,
        }),
    };
    let rows = &picked(top, input, (7, 1))[0];
    assert_eq!(rows[..3], [vec![0], vec![0, 1], vec![0, 1, 2]]);
    assert_eq!(rows[3..5], [vec![2, 3], vec![2, 3, 4]]);
    assert_eq!(rows[5..], [vec![4, 5], vec![4, 5, 6]]);
}

#[test]
fn weights_join_index_heads_and_negative_products_count_as_zero() {
    let input = IndexInput {
        q: &[1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 1.0, -1.0],
        k: &[3.0, -9.0, 1.0, 2.0],
        weights: Some(&[1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 1.0, 0.5]),
        n_heads: 2,
        d_head: 1,
    };
    let top = TopKeys {
        n: 2,
        by: KeyRank::Indexer(KeyBlocks::SINGLE),
    };
    // Row 2: 3, 9/2, 1; row 3: 3, 9/2, 1, 2.
    let rows = vec![vec![0], vec![0, 1], vec![0, 1], vec![0, 1]];
    assert_eq!(picked(top, input, (4, 3)), vec![rows; 3]);
}

#[test]
fn blocks_rank_by_their_best_key_and_the_query_s_own_block_is_always_kept() {
    let input = IndexInput {
        q: &[
            1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0,
        ],
        k: &[5.0, 0.0, 9.0, -9.0, 0.0, 0.0],
        weights: None,
        n_heads: 2,
        d_head: 1,
    };
    let top = |n_local| TopKeys {
        n: 2,
        by: KeyRank::Indexer(KeyBlocks {
            size: 2,
            n_local,
            are_pooled: false,
        }),
    };
    let of = |rows: &[Vec<Vec<usize>>], query_idx: usize| {
        [0, 2].map(|head_idx: usize| rows[head_idx][query_idx].clone())
    };
    let free = picked(top(0), input, (6, 4));
    assert_eq!(of(&free, 5), [vec![2, 3], vec![2, 3]]);
    assert_eq!(of(&free, 2), [vec![2], vec![0, 1]]);
    let local = picked(top(1), input, (6, 4));
    assert_eq!(of(&local, 5), [vec![4, 5], vec![4, 5]]);
}
