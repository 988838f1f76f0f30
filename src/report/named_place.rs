//! The place of a finding in the names of hooks: `decoder.blocks.3.cross_attn head 7`.

use attnscope_spec::{Place, Stack};

/// Returns the layer or its attention as named in traces, and the head; `model` for the whole model.
pub(super) fn module(place: &Place) -> String {
    let Some(layer_idx) = place.layer_idx else {
        return "model".to_owned();
    };
    let block = format!("{}blocks.{layer_idx}", place.grid().prefix());
    // Only heads and cross-attention name the attention module: other findings of a layer are about its residual.
    match (place.grid(), place.head_idx) {
        (Stack::Cross, None) => format!("{block}.cross_attn"),
        (Stack::Cross, Some(head_idx)) => format!("{block}.cross_attn head {head_idx}"),
        (_, Some(head_idx)) => format!("{block}.attn head {head_idx}"),
        (_, None) => block,
    }
}

/// Returns the layer or its attention, the head, the query and the key.
pub(super) fn whole(place: &Place) -> String {
    let pair = [
        place.query_idx.map(|idx| format!("query {idx}")),
        place.key_idx.map(|idx| format!("key {idx}")),
    ];
    let pair = pair.into_iter().flatten();
    std::iter::once(module(place))
        .chain(pair)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_like_hooks() {
        let place = Place::layer(Stack::Only, 3);
        assert_eq!(module(&place), "blocks.3");
        assert_eq!(module(&place.head(7)), "blocks.3.attn head 7");
        let cross = Place::layer(Stack::Cross, 0).head(1).query(5).key(9);
        assert_eq!(
            whole(&cross),
            "decoder.blocks.0.cross_attn head 1 query 5 key 9"
        );
        assert_eq!(whole(&Place::MODEL), "model");
    }
}
