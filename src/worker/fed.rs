//! Which heads feed the induction heads of a run, for the sentence that the first panel opens with.

use std::sync::Arc;

use attnscope_checks::stats::{HeadType, LayerReport};
use attnscope_compute::pace::Pace;
use attnscope_spec::{Model, Place};
use attnscope_studies::effect::key_feeds;

/// Widest residual whose weights are read again for this: it takes the f32 maps of one layer at a time.
const WIDEST: usize = 2048;

/// Pairs of a head and the induction head whose keys read most from it, among the heads that look at the previous token; none if
/// weights cannot tell.
pub(super) fn fed(
    model: &Model,
    layers: &[Arc<LayerReport>],
    pace: &dyn Pace,
) -> Vec<(Place, Place)> {
    let of = |kind: HeadType| -> Vec<Place> {
        let heads = layers.iter().flat_map(|layer| {
            let heads = layer.heads.iter().enumerate();
            let heads = heads.filter(move |(_, head)| head.kind == Some(kind));
            heads.map(|(head_idx, _)| layer.place().head(head_idx))
        });
        heads.collect()
    };
    let (previous, induction) = (of(HeadType::Previous), of(HeadType::Induction));
    if previous.is_empty() || induction.is_empty() || model.spec.d_model > WIDEST {
        return Vec::new();
    }
    match key_feeds(model, &previous, &induction, pace) {
        Ok(found) => found.iter().map(|one| (one.from, one.to)).collect(),
        Err(e) => {
            log::info!("what feeds induction heads is not known: {e}");
            Vec::new()
        }
    }
}
