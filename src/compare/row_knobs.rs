//! The knobs of a block's sums and end, of what its rows hold beside one residual (streams, shortcuts, a second state), and of what few
//! attentions have.

use attnscope_spec::{
    AddedConvolution, BlockRow, BlockSpec, Join, KeyGrid, LatentSharing, PlaceRows, ProjectionSpec,
};

use super::knob::KnobKind::{Computation, Shape};
use super::spec_knobs::List;

/// Adds the knobs of a block's row.
pub(super) fn row(list: &mut List, row: Option<&BlockRow>) {
    list.word(Shape, "streams", row.map_or(1, |row| row.n_streams()));
    let rule = row.map_or("none".to_owned(), |row| row.stream_rule());
    list.word(Computation, "stream_rule", rule);
    list.word(
        Computation,
        "active_stream",
        row.map_or(0, |row| row.active()),
    );
    let shortcut = row.map_or("none", |row| row.shortcut_word());
    list.word(Shape, "shortcut", shortcut);
    if let Some(join) = row.and_then(|row| row.join) {
        let words = match join {
            Join::Adds => "adds",
            Join::AddsAndSwaps => "adds and swaps",
        };
        list.word(Computation, "second_state", words);
    }
}

/// Adds the knobs of a block's sums and of its end.
pub(super) fn ends(list: &mut List, spec: &BlockSpec) {
    list.word(Shape, "last_mixer", spec.last_mixer.is_some());
    list.word(Shape, "token_branch", spec.by_token.is_some());
    let words = |of: &[AddedConvolution; 2]| of.each_ref().map(AddedConvolution::words).join("; ");
    let convolutions = spec.convolutions.as_deref().map(words);
    list.word(
        Computation,
        "branch_convolutions",
        convolutions.unwrap_or("none".to_owned()),
    );
    let of_keys = spec
        .own()
        .and_then(|own| own.projections.kv_convolutions.as_deref());
    let of_keys = of_keys.map(words);
    list.word(
        Computation,
        "kv_convolutions",
        of_keys.unwrap_or("none".to_owned()),
    );
    list.word(Shape, "residual_scale", spec.resid_scale.is_some());
    let merge = spec.merge.as_ref().map(|merge| merge.words());
    list.word(Shape, "merge", merge.unwrap_or("none".to_owned()));
    let n_joined = spec.joined.as_ref().map_or(0, |table| table.n_rows);
    list.count(Shape, "joined_rows", n_joined);
    list.word(Shape, "moment_rows", spec.moments.is_some());
    for (name, sum) in ["attn_sum", "mlp_sum"].into_iter().zip(&spec.sums) {
        let rule = sum.as_ref().map(|sum| sum.rule.to_string());
        list.word(Computation, name, rule.unwrap_or("plain".to_owned()));
    }
}

/// Adds the knobs of what the projections of few attentions have.
pub(super) fn of_few(list: &mut List, spec: &ProjectionSpec) {
    list.word(Shape, "query_growth_by_head", spec.q_growth.is_some());
    list.word(Shape, "head_scales", spec.head_scales.is_some());
    let key_grid = spec.key_grid.as_deref().map(KeyGrid::words);
    list.word(
        Shape,
        "key_grid",
        key_grid.unwrap_or("as queries".to_owned()),
    );
    list.word(Shape, "value_rows", spec.value_rows.is_some());
    list.word(Shape, "source_norm", spec.source_norm.is_some());
    let adds_values = spec.share_of_values().is_some();
    list.word(Shape, "value_residual", adds_values);
    list.word(Shape, "own_value_taken", spec.own_value_shares.is_some());
    let places = spec.places.as_ref().map(|places| {
        let words =
            |rows: &Option<PlaceRows>| rows.as_ref().map_or("none".to_owned(), PlaceRows::words);
        let [queries, keys] = [&places.of_queries, &places.of_keys].map(words);
        let values = if places.reach_values {
            " and values"
        } else {
            ""
        };
        format!("{queries} for queries, {keys} for keys{values}")
    });
    list.word(
        Computation,
        "added_places",
        places.unwrap_or("none".to_owned()),
    );
    let narrowed = spec.narrowed.as_deref();
    list.word(Shape, "narrowed_queries", narrowed.is_some());
    let reaches_keys = narrowed.is_some_and(|narrowed| narrowed.reaches_keys);
    list.word(Shape, "narrowed_keys", reaches_keys);
    list.word(Computation, "turns_back", spec.turns_back);
    list.word(Shape, "sum_with_kept", spec.sum_with_kept.is_some());
    list.word(Shape, "reads_kept", spec.reads_kept);
    let experts = spec.experts.as_ref().map_or(0, |experts| experts.q.len());
    list.word(Shape, "head_experts", experts);
    list.word(Shape, "second_stream", spec.side.is_some());
    list.word(Computation, "first_rows", spec.firsts);
    list.word(Shape, "second_output_map", spec.o.then.is_some());
}

/// Where the latent of keys and values goes to, or comes from.
pub(super) fn sharing_word(sharing: Option<LatentSharing>) -> String {
    match sharing {
        None => "own".to_owned(),
        Some(LatentSharing::Leaves { .. }) => "left to later layers".to_owned(),
        Some(LatentSharing::Takes { layer_idx, .. }) => format!("of layer {layer_idx}"),
    }
}

/// Describes where a layer has norms: before its branches, on their outputs, or on the residual after each.
pub(super) fn placement(spec: &BlockSpec) -> String {
    let places = [
        ("pre", [&spec.attn_pre, &spec.mlp_pre]),
        ("out", [&spec.attn_out, &spec.mlp_out]),
        ("post", [&spec.attn_post, &spec.mlp_post]),
    ];
    let places = places
        .iter()
        .filter(|(_, norms)| norms.iter().any(|norm| norm.is_some()));
    let places: Vec<&str> = places.map(|(place, _)| *place).collect();
    if places.is_empty() {
        return "none".to_owned();
    }
    places.join(" + ")
}
