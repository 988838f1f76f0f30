//! Which earlier heads the keys of later heads read from, by their weights alone (K-composition).

use attnscope_compute::error::{Error, Result};
use attnscope_compute::pace::Pace;
use attnscope_spec::{Model, Place};

use super::capture::{of_blocks, of_one_stream};
use super::circuits::{Composition, Into, composition};
use super::maps::{HeadMaps, maps_of};

/// For each of the `later` heads, the one of the `earlier` heads with the largest K-composition. A later head is left out if all its
/// scores are at most those of unrelated matrices.
///
/// # Errors
/// When the weights of a head are no products of matrices, a tensor contradicts the spec, or the pace stops it.
pub fn key_feeds(
    model: &Model,
    earlier: &[Place],
    later: &[Place],
    pace: &dyn Pace,
) -> Result<Vec<Composition>> {
    of_blocks(model)?;
    of_one_stream(model)?;
    let stack = model.spec.main_stack().stack;
    let wanted = || earlier.iter().chain(later);
    let mut layers: Vec<usize> = wanted().filter_map(|place| place.layer_idx).collect();
    layers.sort_unstable();
    layers.dedup();
    let (mut found, mut before): (_, Vec<HeadMaps>) = (Vec::new(), Vec::new());
    for layer_idx in layers {
        if pace.stops() {
            return Err(Error::Cancelled);
        }
        for maps in maps_of(model, stack, layer_idx)? {
            if later.contains(&maps.place) {
                // Shared keys of an earlier layer do not see the layers in between.
                let is_before = |from: &&HeadMaps| from.place.layer_idx < Some(maps.kv_layer_idx);
                let scores = before.iter().filter(is_before);
                let scores = scores.map(|from| composition(from, &maps, Into::Keys));
                let best = scores.max_by(|a, b| a.score.total_cmp(&b.score));
                found.extend(best.filter(|best| best.score > 0.0));
            }
            if earlier.contains(&maps.place) {
                before.push(maps);
            }
        }
    }
    Ok(found)
}
