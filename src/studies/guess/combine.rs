//! Combines tensors around the layers with those inside into one described model.

use attnscope_compute::attention::{RopePrecision, Scale};
use attnscope_families::description::names::norm_score;
use attnscope_families::description::{
    Described, EmbedScale, Layers, NORM_PLACES, NormPart, Positions,
};

use super::assign::{Around, Assignment};
use super::groups::NormGroup;
use super::inventory::{Inventory, Told};
use super::maps::LayerMaps;

/// Returns the assignment that takes both ways, with its norms where their names and shapes place them.
pub(super) fn put_together(
    inventory: &Inventory,
    around: &Around,
    maps: &LayerMaps,
    norms: &[NormGroup],
    d_model: usize,
) -> Assignment {
    let (mut q_norm, mut k_norm) = (None, None);
    let mut placed = Vec::new();
    let mut left = around.left.clone();
    left.extend(maps.left.iter().cloned());
    let mut d_head = maps.d_head;
    for group in norms {
        let has = |list: &[&str]| group.words.iter().any(|word| list.contains(&word.as_str()));
        let of_q = has(&["q", "qn", "query", "queries", "qnorm", "lnq", "normq"]);
        let of_k = has(&["k", "kn", "key", "keys", "knorm", "lnk", "normk"]);
        let is_narrow = group.width != d_model;
        let fits = |rows: usize| group.width <= rows && rows.is_multiple_of(group.width.max(1));
        if (of_q || (is_narrow && !of_k && q_norm.is_none()))
            && fits(maps.d_q)
            && group.n_vectors() > 0
            && (of_q || is_narrow)
        {
            q_norm = Some(group.part.clone());
            if group.width < maps.d_kv || (is_narrow && group.width < maps.d_q) {
                d_head = d_head.or(Some(group.width));
            }
        } else if (of_k || is_narrow) && fits(maps.d_kv) && k_norm.is_none() {
            k_norm = Some(group.part.clone());
            if group.width < maps.d_kv {
                d_head = d_head.or(Some(group.width));
            }
        } else if !is_narrow {
            placed.push(group.clone());
        } else {
            left.extend(group.part.gain.clone());
        }
    }
    // One norm shared by queries and keys.
    if let (Some(one), None) = (&q_norm, &k_norm) {
        k_norm = Some(one.clone());
    }
    let has_bias = |norm: &NormPart| norm.bias.is_some();
    let is_layer_norm = placed
        .iter()
        .chain(&around.norms)
        .any(|group| has_bias(&group.part));
    let around_norms = around.norms.clone();
    let (mut final_norm, mut embed_norm, mut head_norm) = (None, None, None);
    let mut order: Vec<&NormGroup> = around_norms.iter().collect();
    order.sort_by_key(|group| std::cmp::Reverse(norm_score("final_norm", &group.words)));
    for group in order {
        let words = &group.words;
        let scores =
            ["final_norm", "embed_norm", "head_norm"].map(|place| norm_score(place, words));
        let free = [
            final_norm.is_none(),
            embed_norm.is_none(),
            head_norm.is_none() && around.head_dense.is_some(),
        ];
        let best = (0..3)
            .filter(|idx| free[*idx])
            .max_by_key(|idx| (scores[*idx], 3 - idx));
        match best {
            Some(0) => final_norm = Some(group.part.clone()),
            Some(1) => embed_norm = Some(group.part.clone()),
            Some(2) => head_norm = Some(group.part.clone()),
            _ => left.extend(group.part.gain.clone()),
        }
    }
    let mut described = Described {
        n_layers: inventory.n_layers,
        n_heads: 1,
        n_kv_heads: 1,
        d_head: maps.d_q,
        tokens: around.tokens.clone(),
        positions: around.positions.clone(),
        patches: None,
        token_types: around.token_types.clone(),
        embed_norm,
        qkv: maps.qkv.clone(),
        out_gate: None,
        o: Some(maps.o.clone()),
        mlp: Some(maps.mlp.clone()),
        down: Some(maps.down.clone()),
        experts: None,
        norms: Default::default(),
        q_norm,
        k_norm,
        sinks: None,
        first_values: None,
        residuals: [None, None],
        places: [None, None],
        bias: None,
        relative: None,
        latent: None,
        final_norm,
        pooled_norm: None,
        head_dense: around.head_dense.clone(),
        head_norm,
        unembed: around.unembed.clone(),
        logit_bias: around.logit_bias.clone(),
        computed: Positions::None,
        causal: true,
        norm_is_rms: !is_layer_norm,
        // Gains stored as an offset from 1 are around 0.
        norm_adds_one: !is_layer_norm && are_around_zero(&placed, &around.norms),
        norms_after_rope: false,
        rope_precision: RopePrecision::Float32,
        norm_eps: if is_layer_norm { 1e-5 } else { 1e-6 },
        activation: if maps.is_gated() { "silu" } else { "gelu" }.to_owned(),
        is_parallel: false,
        embed_scale: EmbedScale::Factor(1.0),
        scale: Scale::InvSqrtD,
        window: None,
        window_layers: None,
        softcap: None,
        logit_scale: 1.0,
        logit_softcap: None,
        pooled: None,
        rope_divisors: Vec::new(),
        has_no_residual: false,
        has_no_head: false,
        angles: None,
        attention_layers: Layers::All,
        feed_forward_layers: Layers::All,
        top_keys: None,
        d_value: None,
        z_norm: None,
        hidden_norm: None,
        out_activation: None,
        head_activation: None,
        turned: Vec::new(),
        values: None,
        cross: None,
        encoder: None,
    };
    let told = inventory.told.iter().map(|(_, fact)| *fact).next();
    if let Some(Told::Rotary { theta, d_rotary }) = told {
        d_head = d_head.or(Some(d_rotary).filter(|d| maps.d_kv.is_multiple_of(*d)));
        described.computed = Positions::Rotary {
            theta,
            interleaved: false,
            d_rotary,
        };
    }
    if placed.len() <= NORM_PLACES.len() {
        default_places(&mut described, &placed);
    } else {
        left.extend(
            placed
                .iter()
                .skip(6)
                .filter_map(|group| group.part.gain.clone()),
        );
    }
    let score =
        around.score + maps.score - 2 * left.len() as i32 + 3 * i32::from(around.d_vocab > d_model);
    Assignment {
        described,
        norms: placed,
        around_norms,
        score,
        left,
        d_model,
        d_q: maps.d_q,
        d_kv: maps.d_kv,
        d_head,
    }
}

fn are_around_zero(placed: &[NormGroup], around: &[NormGroup]) -> bool {
    let means = placed.iter().chain(around).map(|group| group.mean);
    let n = (placed.len() + around.len()) as f32;
    n > 0.0 && means.sum::<f32>() / n < 0.4
}

/// Places the norms where their names suggest.
fn default_places(described: &mut Described, placed: &[NormGroup]) {
    if let Some(best) = super::norms::placements(placed).into_iter().next() {
        best.apply(described);
    }
}
