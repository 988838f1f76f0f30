//! The patterns of the heads that differ most, as maps of both sides.

use attnscope_compute::attention::Pooled;

use super::lockstep::HeadSums;

/// Most heads of a prompt whose maps are kept.
const MOST_KEPT: usize = 16;

/// The pattern of a head on one side.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadMap {
    pub pooled: Pooled,
    /// Whether keys after a query are masked.
    pub is_causal: bool,
}

impl HeadMap {
    /// Makes the map of a recorded pattern, whose mask is not known. // [query, key]
    pub(super) fn of_recorded(pattern: &[f32], n_queries: usize, n_keys: usize) -> Self {
        let mut pooled = Pooled::new(n_queries, n_keys);
        for (query_idx, row) in pattern.chunks(n_keys.max(1)).enumerate() {
            pooled.add_row(query_idx, row);
        }
        Self {
            pooled,
            is_causal: false,
        }
    }
}

/// Drops the maps of all heads but those whose patterns differ most.
pub(super) fn keep_worst(heads: &mut [HeadSums]) {
    let differ = |head: &HeadSums| head.divergence.is_nan() || head.divergence > 0.0;
    let mut order: Vec<usize> = (0..heads.len())
        .filter(|idx| differ(&heads[*idx]))
        .collect();
    order.sort_by(|a, b| heads[*b].divergence.total_cmp(&heads[*a].divergence));
    order.truncate(MOST_KEPT);
    for (idx, head) in heads.iter_mut().enumerate() {
        if !order.contains(&idx) {
            head.maps = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_spec::Stack;

    #[test]
    fn maps_are_kept_of_the_heads_that_differ_most() {
        let head = |head_idx: usize, divergence: f64| HeadSums {
            stack: Stack::Only,
            layer_idx: 0,
            head_idx,
            divergence,
            stats: None,
            maps: Some(Box::new(
                [(); 2].map(|()| HeadMap::of_recorded(&[1.0], 1, 1)),
            )),
        };
        let mut heads: Vec<HeadSums> = (0..20).map(|idx| head(idx, idx as f64)).collect();
        heads.push(head(20, f64::NAN));
        keep_worst(&mut heads);
        let kept = heads.iter().filter(|head| head.maps.is_some());
        let kept: Vec<usize> = kept.map(|head| head.head_idx).collect();
        assert_eq!(kept, (5..=20).collect::<Vec<_>>());
        let mut same = [head(0, 0.0)];
        keep_worst(&mut same);
        assert!(same[0].maps.is_none());
    }
}
