//! The keys that an indexer picks, against a sort of all scores in f64.

use attnscope_compute::attention::{
    IndexInput, KeyBlocks, KeyRank, Mask, PickedKeys, TopKeys, Visibility,
};
use testing::head_reference::made::noise;

/// One indexer over a sequence.
struct Case {
    n: usize,
    n_index_heads: usize,
    is_weighted: bool,
    top: TopKeys,
    real: Option<Vec<bool>>,
    window: Option<usize>,
}

const D: usize = 5;
const N_HEADS: usize = 4;

/// The score of a pair for a group of heads, from the definition.
fn score(
    case: &Case,
    [q, k, weights]: [&[f32]; 3],
    (group, query, key): (usize, usize, usize),
) -> f64 {
    let product = |head: usize| -> f64 {
        let q = &q[(query * case.n_index_heads + head) * D..][..D];
        let pairs = q.iter().zip(&k[key * D..][..D]);
        pairs.map(|(q, k)| f64::from(*q) * f64::from(*k)).sum()
    };
    if !case.is_weighted {
        return product(group);
    }
    let heads = 0..case.n_index_heads;
    heads
        .map(|head| f64::from(weights[query * case.n_index_heads + head]) * product(head).max(0.0))
        .sum()
}

/// The keys that a query of a group keeps: whole blocks, the best first.
fn expected(case: &Case, values: [&[f32]; 3], group: usize, query: usize) -> Vec<usize> {
    let sees = |key: usize| {
        let is_near = case.window.is_none_or(|width| query < key + width);
        key <= query && is_near && case.real.as_ref().is_none_or(|real| real[key])
    };
    let KeyRank::Indexer(KeyBlocks { size, n_local, .. }) = case.top.by else {
        panic!("no indexer");
    };
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for block in 0..case.n.div_ceil(size) {
        let keys = (block * size..((block + 1) * size).min(case.n)).filter(|key| sees(*key));
        let best = keys.map(|key| score(case, values, (group, query, key)));
        let own = query / size;
        let is_local = block <= own && own - block < n_local;
        if let Some(best) = best.reduce(f64::max) {
            blocks.push((if is_local { f64::INFINITY } else { best }, block));
        }
    }
    blocks.sort_by(|a, b| {
        let by_score = b.0.partial_cmp(&a.0).expect("numbers");
        by_score.then(a.1.cmp(&b.1))
    });
    blocks.truncate(case.top.n.div_ceil(size));
    let is_kept = |key: &usize| blocks.iter().any(|(_, block)| key / size == *block);
    (0..case.n)
        .filter(|key| sees(*key))
        .filter(is_kept)
        .collect()
}

#[test]
fn an_indexer_picks_the_keys_with_the_largest_scores() {
    let by = |size, n_local| {
        KeyRank::Indexer(KeyBlocks {
            size,
            n_local,
            are_pooled: false,
        })
    };
    for (n, n_index_heads, is_weighted, n_kept, by, window) in [
        (1, 3, true, 4, by(1, 0), None),
        (70, 6, true, 5, by(1, 0), None),
        (131, 1, true, 64, by(1, 0), Some(90)),
        (70, 2, false, 8, by(4, 1), None),
        (67, 4, false, 7, by(3, 0), Some(40)),
        (50, 1, false, 12, by(4, 2), None),
    ] {
        for is_padded in [false, true] {
            let case = Case {
                n,
                n_index_heads,
                is_weighted,
                top: TopKeys { n: n_kept, by },
                real: is_padded.then(|| noise(9, n).iter().map(|v| *v < 0.6).collect()),
                window,
            };
            let q = noise(n as u64, n * n_index_heads * D);
            let (k, weights) = (noise(7, n * D), noise(8, n * n_index_heads));
            let mask = Mask::with_width(true, window);
            let whole = Visibility::of_self(mask, n, case.real.as_deref());
            for first in [0, n / 2] {
                let visibility = whole.clone().with_first_query(first);
                let input = IndexInput {
                    q: &q[first * n_index_heads * D..],
                    k: &k,
                    weights: is_weighted.then(|| &weights[first * n_index_heads..]),
                    n_heads: n_index_heads,
                    d_head: D,
                };
                let at = (&visibility, N_HEADS);
                let picked = PickedKeys::of(case.top, input, at, &|| false).expect("an indexer");
                for (head, query) in
                    (0..N_HEADS).flat_map(|head| (first..n).map(move |q| (head, q)))
                {
                    let group = if is_weighted {
                        0
                    } else {
                        head * n_index_heads / N_HEADS
                    };
                    let seen = (0..n).filter(|key| visibility.sees(query, *key));
                    let found: Vec<usize> =
                        seen.filter(|key| picked.has(head, query, *key)).collect();
                    let expected = expected(&case, [&q, &k, &weights], group, query);
                    assert_eq!(found, expected, "{n} {n_index_heads}: {head} {query}");
                }
            }
        }
    }
}
