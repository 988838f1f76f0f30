//! x-transformers: alternating attention and feed-forward layers, `attn_layers.layers.0.1.to_q.weight` and so on.

use std::collections::BTreeSet;

use attnscope_compute::error::Result;
use serde_json::json;

use super::parts::Parts;
use super::{Facts, Layout};

pub const LAYOUT: Layout = Layout {
    known_by: "x-transformers (attn_layers.layers.0.1.to_q.weight)",
    describe,
};

const LAYERS: &str = "attn_layers.layers.";
const PROBE: &str = "attn_layers.layers.0.1.to_q.weight";
const ROTATION: &str = "attn_layers.rotary_pos_emb.inv_freq";
const POSITIONS: &str = "pos_emb.emb.weight";
const EMBED_NORM: &str = "post_emb_norm.gamma";

/// The norms of a layer: before the branch, on its output, and after the sum.
const NORMS: [&str; 3] = ["0.0", "0.1", "0.2"];
/// The gain of a norm: LayerNorm, RMSNorm, and `nn.LayerNorm` of older versions.
const GAINS: [&str; 3] = ["gamma", "g", "weight"];

const MAPS: [&str; 4] = [
    "1.to_q.weight",
    "1.to_k.weight",
    "1.to_v.weight",
    "1.to_out.weight",
];

/// Parts of a feed-forward block, after the block's name.
const FEEDS: [&str; 8] = [
    "0.0.weight",
    "0.0.bias",
    "0.proj.weight",
    "0.proj.bias",
    "2.weight",
    "2.bias",
    "3.weight",
    "3.bias",
];
/// Names of the feed-forward block: now, and in older versions.
const FEED_NAMES: [&str; 2] = ["1.ff", "1.net"];

const AROUND: [&str; 9] = [
    "token_emb.emb.weight",
    POSITIONS,
    ROTATION,
    EMBED_NORM,
    "attn_layers.final_norm.gamma",
    "attn_layers.final_norm.g",
    "to_logits.weight",
    "norm.weight",
    "norm.bias",
];

/// `F.normalize` divides by the length, but at least by 1e-12.
const RMS_EPS: f64 = 1e-30;
const LAYER_EPS: f64 = 1e-5;

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    const TOKENS: &str = "token_emb.emb.weight";
    if !facts.has(PROBE) || !facts.has(TOKENS) {
        return Ok(false);
    }
    let n_layers = count(facts)?;
    let [d_vocab, d_model] = facts.matrix(TOKENS)?;
    facts.by_names("model_type", "described");
    facts.by_names("n_layers", n_layers);
    facts.by_shape("d_vocab", d_vocab, TOKENS, &[])?;
    heads(facts)?;

    let mut parts = Parts::of_layers(LAYERS).numbered("{2*layer}", "0");
    parts.put("tokens", TOKENS);
    for (key, map) in ["q", "k", "v", "o"].into_iter().zip(MAPS) {
        parts.map(facts, key, map.strip_suffix(".weight").unwrap_or(map));
    }
    let mut gains = norms(facts, &mut parts, ["attn_pre", "attn_out", "attn_post"])?;
    let mut parts = parts.numbered("{2*layer+1}", "1");
    gains.extend(norms(
        facts,
        &mut parts,
        ["mlp_pre", "mlp_out", "mlp_post"],
    )?);
    let name = FEED_NAMES.into_iter().find(|name| {
        ["2.weight", "3.weight"]
            .iter()
            .any(|down| parts.has(facts, &format!("{name}.{down}")))
    });
    let name = name.unwrap_or(FEED_NAMES[0]);
    if parts.has(facts, &format!("{name}.0.proj.weight")) {
        let order = [("order", "up gate")];
        parts.fused(facts, "gate_up", &format!("{name}.0.proj"), &order);
    } else {
        parts.map(facts, "up", &format!("{name}.0.0"));
    }
    let down = if parts.has(facts, &format!("{name}.3.weight")) {
        "3"
    } else {
        "2"
    };
    parts.map(facts, "down", &format!("{name}.{down}"));

    for gain in ["gamma", "g"] {
        let weight = format!("attn_layers.final_norm.{gain}");
        if parts.around(facts, "final_norm", &weight, "") {
            gains.insert(gain);
        }
    }
    parts.around(facts, "final_norm", "norm.weight", "norm.bias");
    let has_final = facts.has("norm.weight") || !gains.is_empty();
    let is_rms = gains.contains("g") || !has_final;
    if !has_final {
        // SimpleRMSNorm has no gain.
        for place in ["attn_pre", "mlp_pre", "final_norm"] {
            parts.put(place, json!({}));
        }
    }
    let has_offset = gains.contains("gamma") || gains.contains("g");
    if has_offset {
        facts.needed("norm_adds_one", "norm_adds_one", &[]);
    }
    if facts.has(EMBED_NORM) {
        if is_rms {
            let problem = "a LayerNorm of embeddings beside RMSNorm is not read in this layout";
            return Err(facts.at(EMBED_NORM, problem.to_owned()));
        }
        parts.put("embed_norm", json!({ "weight": EMBED_NORM }));
        // The gain of this norm is stored as is, even if the other gains are stored minus one.
        if facts.overrides.flag("norm_adds_one") == Some(true) {
            facts.tensors.add(EMBED_NORM, -1.0);
        }
    }
    if !parts.around(facts, "unembed", "to_logits.weight", "to_logits.bias") {
        // Tied logits are divided by √d_model or by another number; older versions do not scale them.
        facts.needed("logit_scale", "logit_scale", &[]);
    }
    positions(facts, &mut parts, d_model)?;
    facts.by_names("tensors", parts.into_tensors());
    facts.by_names("norm", if is_rms { "rms" } else { "layer" });
    facts.by_names("norm_eps", if is_rms { RMS_EPS } else { LAYER_EPS });
    facts.needed("mask", "mask", &[]);
    facts.needed("activation", "activation", &[]);
    facts.remarks.push(
        "x-transformers: options that leave no tensor behind are taken as off (attn_qk_norm, attn_softclamp_logits, \
         attn_max_attend_past, attn_sigmoid, l2norm_embed, residual_attn, shift_tokens and others)"
            .to_owned(),
    );
    Ok(true)
}

/// Counts alternating layers: attention at even indices, feed-forward at odd ones, and nothing else.
fn count(facts: &Facts<'_>) -> Result<usize> {
    let mut found: BTreeSet<usize> = BTreeSet::new();
    for (name, _) in facts.tensors.iter() {
        let refused = |what: &str| facts.at(name, format!("x-transformers' {what} is not read"));
        let Some(rest) = name.strip_prefix(LAYERS) else {
            if AROUND.contains(&name) || name == "to_logits.bias" {
                continue;
            }
            return Err(refused("part of this name"));
        };
        let Some((number, part)) = rest.split_once('.') else {
            return Err(refused("part of this name"));
        };
        let Ok(number) = number.parse::<usize>() else {
            return Err(refused("part of this name"));
        };
        let is_norm = NORMS.iter().any(|norm| {
            let tail = part.strip_prefix(norm).and_then(|p| p.strip_prefix('.'));
            tail.is_some_and(|tail| GAINS.contains(&tail) || tail == "bias")
        });
        let is_map = MAPS.contains(&part);
        let is_feed = FEED_NAMES.iter().any(|name| {
            let tail = part.strip_prefix(name).and_then(|p| p.strip_prefix('.'));
            tail.is_some_and(|tail| FEEDS.contains(&tail))
        });
        let is_attention = number.is_multiple_of(2);
        if !is_norm && !is_map && !is_feed {
            return Err(refused("part of this name"));
        }
        if !is_norm && is_map != is_attention {
            return Err(refused(
                "order of layers other than attention and feed-forward in turn",
            ));
        }
        found.insert(number);
    }
    let n = found.len();
    if !n.is_multiple_of(2) || found.last().is_some_and(|last| last + 1 != n) {
        let problem = format!(
            "{n} layers of attention and feed-forward; expected as many of each, without a gap"
        );
        return Err(facts.at(PROBE, problem));
    }
    Ok(n / 2)
}

fn heads(facts: &mut Facts<'_>) -> Result<()> {
    let keys = format!("{LAYERS}0.{}", MAPS[1]);
    let [d_q, _] = facts.matrix(PROBE)?;
    let [d_k, _] = facts.matrix(&keys)?;
    facts.needed("n_heads", "n_heads", &[]);
    let Some(n_heads) = facts.size("n_heads", "n_heads") else {
        return Ok(());
    };
    let d_head = d_q / n_heads;
    if d_head == 0 || !d_q.is_multiple_of(n_heads) || !d_k.is_multiple_of(d_head) {
        let problem =
            format!("{n_heads} heads do not fit the {d_q} rows of queries and {d_k} of keys");
        return Err(facts.at(PROBE, problem));
    }
    facts.by_shape("d_head", d_head, PROBE, &[])?;
    facts.by_shape("n_kv_heads", d_k / d_head, &keys, &[])
}

/// Adds the norms of the layer that `parts` numbers; returns the names of their gains.
fn norms(
    facts: &Facts<'_>,
    parts: &mut Parts,
    places: [&str; 3],
) -> Result<BTreeSet<&'static str>> {
    let mut found = BTreeSet::new();
    for (norm, place) in NORMS.into_iter().zip(places) {
        for gain in GAINS {
            let bias = format!("{norm}.bias");
            if parts.norm(facts, place, &format!("{norm}.{gain}"), &bias) {
                found.insert(gain);
            }
        }
    }
    let first = format!("{LAYERS}0.{}.g", NORMS[0]);
    if facts.shape(&first) == Some(&[1]) {
        let problem = "x-transformers' ScaleNorm is not read".to_owned();
        return Err(facts.at(&first, problem));
    }
    Ok(found)
}

fn positions(facts: &mut Facts<'_>, parts: &mut Parts, d_model: usize) -> Result<()> {
    let is_rotary = facts.has(ROTATION);
    if facts.has(POSITIONS) {
        facts
            .tensors
            .multiply(POSITIONS, (d_model as f64).powf(-0.5) as f32);
        parts.put("positions", POSITIONS);
    } else if !is_rotary {
        facts.needed("positions", "positions", &[]);
    }
    if !is_rotary {
        return Ok(());
    }
    let frequencies = facts.tensors.get(ROTATION).map(|view| view.widen());
    let frequencies = frequencies.transpose()?.unwrap_or_default().into_owned();
    facts.by_names("positions", "rotary");
    facts.by_shape("d_rotary", 2 * frequencies.len(), ROTATION, &[])?;
    match base_of(&frequencies) {
        Some(theta) => facts.by_names("rope_theta", theta),
        None if frequencies.len() < 2 => facts.needed("rope_theta", "rope_theta", &[]),
        None => {
            let problem = "x-transformers' scaled rotary positions are not read".to_owned();
            return Err(facts.at(ROTATION, problem));
        }
    }
    // Interleaved pairs rotate since version 1.31; before, halves did.
    facts.needed("rope_interleaved", "rope_interleaved", &[]);
    Ok(())
}

/// The base of frequencies that form a geometric series from 1.
fn base_of(frequencies: &[f32]) -> Option<f64> {
    let n = frequencies.len();
    let last = f64::from(*frequencies.last()?);
    if n < 2 || last <= 0.0 {
        return None;
    }
    let theta = last.powf(-(n as f64) / (n as f64 - 1.0));
    // f32 keeps six digits of it.
    let digits = 10f64.powi(5 - theta.log10().floor() as i32);
    let theta = (theta * digits).round() / digits;
    let is_even = frequencies.iter().enumerate().all(|(idx, frequency)| {
        let expected = theta.powf(-(idx as f64) / n as f64);
        (f64::from(*frequency) / expected - 1.0).abs() < 1e-4
    });
    is_even.then_some(theta)
}

#[cfg(test)]
mod tests {
    use super::base_of;

    #[test]
    fn the_base_comes_from_evenly_spaced_frequencies_and_scaled_ones_have_none() {
        for theta in [10_000f64, 500_000.0, 1234.5] {
            let of = |n: usize| -> Vec<f32> {
                let one = |idx: usize| theta.powf(-(idx as f64) / n as f64) as f32;
                (0..n).map(one).collect()
            };
            for n in [2, 4, 32] {
                let found = base_of(&of(n)).expect("a base");
                assert!((found / theta - 1.0).abs() < 1e-5, "{theta} {n}: {found}");
            }
            let halved: Vec<f32> = of(8).iter().map(|frequency| frequency / 2.0).collect();
            assert_eq!(base_of(&halved), None);
        }
        assert_eq!(base_of(&[1.0]), None);
    }
}
