//! One captured head at full resolution, for the Head panel.

use attnscope_checkpoint::captured::Captured;
use attnscope_compute::attention::Pooled;
use attnscope_compute::error::Result;

use super::ArrayNames;
use super::arrays::heads_of;
use super::heads::Heads;
use crate::head::{FULL_CELLS, HeadDetail, HeadQuery, without_first};
use crate::{Histogram, Pyramid};

/// Reads a head's scores and pattern as captured; a map that was not captured is empty.
///
/// # Errors
/// When the arrays cannot be read, or the layer has no such head.
pub fn captured_head(
    captured: &Captured,
    names: &ArrayNames,
    query: HeadQuery,
) -> Result<HeadDetail> {
    let read = |name: &Option<String>| {
        name.as_ref()
            .map(|name| heads_of(captured, name, names.axes))
            .transpose()
    };
    let (pattern, scores) = (read(&names.pattern)?, read(&names.scores)?);
    let missing = || {
        captured.at(
            "pattern",
            "neither the pattern nor the scores of this layer were captured",
        )
    };
    let dims = pattern.as_ref().or(scores.as_ref()).map(|heads| heads.dims);
    let [_, n_queries, n_keys] = dims
        .filter(|[n_heads, ..]| query.head_idx < *n_heads)
        .ok_or_else(missing)?;
    let span = query.head_idx * n_queries * n_keys..(query.head_idx + 1) * n_queries * n_keys;
    let of_head = |array: &Option<Heads>| Some(array.as_ref()?.values.get(span.clone())?.to_vec());
    let (scores, pattern) = (of_head(&scores), of_head(&pattern));
    let maps = [scores.as_deref(), pattern.as_deref()];
    Ok(whole_head(maps, [n_queries, n_keys], query.hides_first_key))
}

/// Builds a head's maps from whole matrices; a missing matrix leaves its map empty. // [query, key]
pub(crate) fn whole_head(
    [scores, pattern]: [Option<&[f32]>; 2],
    [n_queries, n_keys]: [usize; 2],
    hides_first_key: bool,
) -> HeadDetail {
    let empty = Pooled::with_cells(n_queries, n_keys, FULL_CELLS);
    let mut pooled = [empty.clone(), empty];
    pooled[0].cells.fill(f32::NEG_INFINITY);
    for (query_idx, row) in scores.iter().flat_map(|all| all.chunks(n_keys)).enumerate() {
        pooled[0].add_row(query_idx, row);
    }
    for (query_idx, row) in pattern
        .iter()
        .flat_map(|all| all.chunks(n_keys))
        .enumerate()
    {
        if hides_first_key {
            pooled[1].add_row(query_idx, &without_first(row))
        } else {
            pooled[1].add_row(query_idx, row)
        }
    }
    let [scores, pattern] = pooled;
    let histogram = Histogram::of(&scores.cells);
    HeadDetail {
        n_queries,
        n_keys,
        scores: Pyramid::new(scores),
        pattern: Pyramid::new(pattern),
        contribution: None,
        histogram,
        rows: None,
    }
}
