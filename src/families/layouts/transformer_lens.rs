//! TransformerLens: one matrix per head under short names such as `blocks.0.attn.W_Q`.

use attnscope_compute::error::Result;
use serde_json::{Map, Value, json};

use super::{Facts, Layout};

pub const LAYOUT: Layout = Layout {
    known_by: "TransformerLens (blocks.0.attn.W_Q)",
    describe,
};

const PROBE: &str = "blocks.0.attn.W_Q";

const PARTS: &[&str] = &[
    "attn.W_Q",
    "attn.W_K",
    "attn.W_V",
    "attn.W_O",
    "attn.b_Q",
    "attn.b_K",
    "attn.b_V",
    "attn.b_O",
    "attn._W_K",
    "attn._W_V",
    "attn._b_K",
    "attn._b_V",
    "attn.mask",
    "attn.IGNORE",
    "attn.rotary_sin",
    "attn.rotary_cos",
    "attn.q_norm.w",
    "attn.k_norm.w",
    "ln1.w",
    "ln1.b",
    "ln2.w",
    "ln2.b",
    "ln1_post.w",
    "ln2_post.w",
    "mlp.W_in",
    "mlp.b_in",
    "mlp.W_gate",
    "mlp.W_out",
    "mlp.b_out",
];

/// Transposes matrices saved by EasyTransformer, the predecessor of TransformerLens: it stored outputs before inputs, and the
/// vocabulary as columns.
fn turn(facts: &mut Facts<'_>, tokens: &str) {
    let (Some(&[_, d_head, d_model]), Some(&[n_rows, n_columns])) =
        (facts.shape(PROBE), facts.shape(tokens))
    else {
        return;
    };
    // In TransformerLens, the table has as many columns as the probe's second axis.
    if n_rows != d_model || n_columns == d_head {
        return;
    }
    let is_map = |name: &str| {
        let last = name.rsplit('.').next().unwrap_or_default();
        last.trim_start_matches('_').starts_with("W_")
    };
    let maps = facts.tensors.iter().filter(|(name, _)| is_map(name));
    let maps: Vec<(String, Vec<usize>)> = maps
        .map(|(name, info)| (name.to_owned(), info.shape.clone()))
        .collect();
    for (name, mut shape) in maps {
        let n_axes = shape.len();
        if n_axes < 2 {
            continue;
        }
        let mut order: Vec<usize> = (0..n_axes).collect();
        order.swap(n_axes - 2, n_axes - 1);
        shape.swap(n_axes - 2, n_axes - 1);
        facts.tensors.arrange(&name, &name, &order, &shape);
    }
}

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    // Earlier code of the same names joins the heads in W_O.
    if facts
        .shape("blocks.0.attn.W_O")
        .is_some_and(|shape| shape.len() == 2)
    {
        return Ok(false);
    }
    let tokens = "embed.W_E";
    turn(facts, tokens);
    let Some(&[n_heads, d_model, d_head]) = facts.shape(PROBE) else {
        return Ok(false);
    };
    let [d_vocab, width] = facts.matrix(tokens)?;
    if width != d_model {
        let problem = format!("expected {d_model} columns, found {width}");
        return Err(facts.at(tokens, problem));
    }
    facts.layers("n_layers", "blocks.", "attn.W_Q", PARTS)?;
    facts.by_names("model_type", "described");
    facts.by_shape("n_heads", n_heads, PROBE, &["n_heads"])?;
    facts.by_shape("d_head", d_head, PROBE, &["d_head"])?;
    // With grouped-query attention, keys and values are stored once, under their own names.
    let is_grouped = facts.has("blocks.0.attn._W_K");
    let key = if is_grouped {
        "blocks.0.attn._W_K"
    } else {
        "blocks.0.attn.W_K"
    };
    let n_kv_heads = facts
        .shape(key)
        .and_then(|shape| shape.first().copied())
        .unwrap_or(n_heads);
    facts.by_shape("n_kv_heads", n_kv_heads, key, &[])?;

    // A gated block adds this bias to the gated product; in every converted model it is zero.
    let has_gate = facts.has("blocks.0.mlp.W_gate");
    let gate_bias = facts.tensors.get("blocks.0.mlp.b_in").filter(|_| has_gate);
    if let Some(values) = gate_bias.map(|view| view.widen()).transpose()?
        && values.iter().any(|value| *value != 0.0)
    {
        let problem = "expected zeros: a bias on the product of gate and up is not read".to_owned();
        return Err(facts.at("blocks.0.mlp.b_in", problem));
    }
    let mut tensors = Map::new();
    let mut put = |key: &str, value: Value| {
        tensors.insert(key.to_owned(), value);
    };
    let has = |part: &str| facts.has(&format!("blocks.0.{part}"));
    let name = |part: &str| format!("blocks.{{layer}}.{part}");
    let map = |weight: &str, bias: &str, axes: &str| {
        let mut value = json!({ "weight": name(weight), "axes": axes });
        if has(bias) {
            value["bias"] = name(bias).into();
        }
        value
    };
    let (k, v) = if is_grouped {
        (["attn._W_K", "attn._b_K"], ["attn._W_V", "attn._b_V"])
    } else {
        (["attn.W_K", "attn.b_K"], ["attn.W_V", "attn.b_V"])
    };
    put("tokens", tokens.into());
    put("q", map("attn.W_Q", "attn.b_Q", "head in out"));
    put("k", map(k[0], k[1], "head in out"));
    put("v", map(v[0], v[1], "head in out"));
    put("o", map("attn.W_O", "attn.b_O", "head in out"));
    if has("mlp.W_gate") {
        put("gate", map("mlp.W_gate", "", "in out"));
    }
    let up_bias = if has_gate { "" } else { "mlp.b_in" };
    put("up", map("mlp.W_in", up_bias, "in out"));
    put("down", map("mlp.W_out", "mlp.b_out", "in out"));
    let norm = |weight: String, bias: String| {
        if facts.has(&bias.replace("{layer}", "0")) {
            json!({ "weight": weight, "bias": bias })
        } else if facts.has(&weight.replace("{layer}", "0")) {
            json!({ "weight": weight })
        } else {
            // The gains are folded into the maps that follow.
            json!({})
        }
    };
    for (place, part) in [("attn_pre", "ln1"), ("mlp_pre", "ln2")] {
        put(
            place,
            norm(name(&format!("{part}.w")), name(&format!("{part}.b"))),
        );
    }
    for (place, part) in [("attn_out", "ln1_post"), ("mlp_out", "ln2_post")] {
        if has(&format!("{part}.w")) {
            put(place, json!({ "weight": name(&format!("{part}.w")) }));
        }
    }
    for (place, part) in [("q_norm", "attn.q_norm"), ("k_norm", "attn.k_norm")] {
        if has(&format!("{part}.w")) {
            put(place, json!({ "weight": name(&format!("{part}.w")) }));
        }
    }
    put(
        "final_norm",
        norm("ln_final.w".to_owned(), "ln_final.b".to_owned()),
    );
    let mut unembed = json!({ "weight": "unembed.W_U", "axes": "in out" });
    if facts.has("unembed.b_U") {
        unembed["bias"] = "unembed.b_U".into();
    }
    put("unembed", unembed);
    let has_positions = facts.has("pos_embed.W_pos");
    if has_positions {
        put("positions", "pos_embed.W_pos".into());
    }
    let (has_gain, has_bias) = (has("ln1.w"), has("ln1.b"));
    facts.by_shape("d_vocab", d_vocab, tokens, &["d_vocab"])?;
    facts.by_names("tensors", tensors);
    if has_gain && !has_bias {
        facts.by_names("norm", "rms");
    } else if !has_gain {
        facts.by_statement("norm", &["norm"]);
    }
    facts.needed("activation", "activation", &["act_fn"]);
    facts.by_statement("norm_eps", &["eps"]);
    if !has_positions {
        facts.needed("positions", "positions", &[]);
        if facts.overrides.word("positions") == Some("rotary") {
            facts.needed("rope_theta", "rope_theta", &[]);
        }
    }
    Ok(true)
}
