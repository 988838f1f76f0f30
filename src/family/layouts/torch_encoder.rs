//! Layers of `torch.nn.TransformerEncoderLayer` inside a model whose other parts have names of their own.

use super::{Facts, Layout};
use crate::error::Result;

pub const LAYOUT: Layout = Layout {
    known_by: "torch.nn.TransformerEncoder (…layers.0.self_attn.in_proj_weight)",
    describe,
};

const PROBE: &str = "self_attn.in_proj_weight";

const PARTS: &[&str] = &[
    PROBE,
    "self_attn.in_proj_bias",
    "self_attn.out_proj.weight",
    "self_attn.out_proj.bias",
    "linear1.weight",
    "linear1.bias",
    "linear2.weight",
    "linear2.bias",
    "norm1.weight",
    "norm1.bias",
    "norm2.weight",
    "norm2.bias",
];

/// What a part outside the layers may be called by its names.
const TOKENS: [&str; 3] = ["emb", "wte", "tok"];
const POSITIONS: [&str; 2] = ["pos", "wpe"];
/// What tutorials call a table of positions that is not trained.
const BUFFER: &str = "pe";

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    let first = format!("0.{PROBE}");
    let mut befores = facts.tensors.iter().filter_map(|(name, _)| {
        let before = name.strip_suffix(&first)?;
        (before.is_empty() || before.ends_with('.')).then(|| before.to_owned())
    });
    let Some(before) = befores.next() else {
        return Ok(false);
    };
    if let Some(other) = befores.next() {
        let problem = format!("stands beside {before}{first}; expected the layers of one stack");
        return Err(facts.at(&format!("{other}{first}"), problem));
    }
    drop(befores);
    let probe = format!("{before}{first}");
    let up = format!("{before}0.linear1.weight");
    let [_, d_model] = facts.matrix(&probe)?;
    let [d_mlp, _] = facts.matrix(&up)?;
    facts.layers("num_layers", &before, PROBE, PARTS)?;
    facts.by_names("model_type", "torch_encoder");
    facts.by_names("layers", before.clone());
    facts.by_shape("d_model", d_model, &probe, &["d_model"])?;
    facts.by_shape("dim_feedforward", d_mlp, &up, &[])?;

    let outside: Vec<String> = facts
        .tensors
        .iter()
        .map(|(name, _)| name.to_owned())
        .filter(|name| !is_in_layer(name, &before))
        .collect();
    for name in &outside {
        if is_position(name) {
            facts.tensors.squeeze(name);
        }
    }
    let is_table = |facts: &Facts<'_>, name: &str| matches!(facts.shape(name), Some(&[n_rows, width]) if n_rows > 0 && width == d_model);
    let tables: Vec<&String> = outside
        .iter()
        .filter(|name| is_table(facts, name))
        .collect();
    let positions: Vec<&String> = tables
        .iter()
        .copied()
        .filter(|name| is_position(name))
        .collect();
    let tokens: Vec<&String> = tables
        .iter()
        .copied()
        .filter(|name| is_called(name, &TOKENS) && !positions.contains(name))
        .collect();
    let tokens = match only(facts, &tokens, "table of tokens", "embedding.weight")? {
        Some(tokens) => tokens,
        None => {
            let found: Vec<&str> = outside.iter().map(String::as_str).take(4).collect();
            let problem = format!(
                "no table of tokens [d_vocab, {d_model}] is known by its name; [rename] \"NAME\" = \"embedding.weight\" \
                 in attnscope.toml names it; found {}",
                found.join(", ")
            );
            return Err(facts.at(&probe, problem));
        }
    };
    let [d_vocab, _] = facts.matrix(&tokens)?;
    facts.by_names("tokens", tokens.clone());
    facts.by_shape("vocab_size", d_vocab, &tokens, &["vocab_size"])?;
    if let Some(positions) = only(facts, &positions, "table of positions", "positions.weight")? {
        let [n_ctx, _] = facts.matrix(&positions)?;
        facts.by_names("positions", positions.clone());
        facts.by_shape("max_len", n_ctx, &positions, &[])?;
    } else {
        facts.by_names("positions", "none");
    }
    let heads: Vec<&String> = tables
        .iter()
        .copied()
        .filter(|name| {
            facts.shape(name).is_some_and(|shape| shape[0] == d_vocab)
                && !is_called(name, &TOKENS)
                && !is_position(name)
                && name.ends_with(".weight")
        })
        .collect();
    let head = only(facts, &heads, "head", "head.weight")?;
    facts.by_names("head", stem(head.as_deref()));
    let norms: Vec<&String> = outside
        .iter()
        .filter(|name| {
            name.ends_with(".weight") && facts.shape(name).is_some_and(|shape| shape == [d_model])
        })
        .collect();
    let norm = only(facts, &norms, "final norm", "norm.weight")?;
    if let Some(name) = norm.as_ref().filter(|name| is_called(name, &TOKENS)) {
        let problem = "a norm of embeddings is not known in this layout".to_owned();
        return Err(facts.at(name, problem));
    }
    facts.by_names("final_norm", stem(norm.as_deref()));
    for (field, key) in [
        ("n_heads", "nhead"),
        ("mask", "is_causal"),
        ("activation", "activation"),
        ("norm_first", "norm_first"),
    ] {
        facts.needed(field, key, &[key]);
    }
    Ok(true)
}

fn is_in_layer(name: &str, before: &str) -> bool {
    name.strip_prefix(before)
        .and_then(|rest| rest.split_once('.'))
        .is_some_and(|(layer, _)| layer.bytes().all(|b| b.is_ascii_digit()))
}

fn is_called(name: &str, parts: &[&str]) -> bool {
    let name = name.to_lowercase();
    parts.iter().any(|part| name.contains(part))
}

fn is_position(name: &str) -> bool {
    is_called(name, &POSITIONS) || name.rsplit('.').next() == Some(BUFFER)
}

/// The name without `.weight`, or that there is none.
fn stem(name: Option<&str>) -> String {
    let name = name.map(|name| name.strip_suffix(".weight").unwrap_or(name));
    name.unwrap_or("none").to_owned()
}

/// The only candidate for a part; the one under our own name, where there are several.
///
/// # Errors
/// When there are several, none of which is called so.
fn only(facts: &Facts<'_>, found: &[&String], part: &str, ours: &str) -> Result<Option<String>> {
    match found {
        [] => Ok(None),
        [one] => Ok(Some((*one).clone())),
        several => {
            if several.iter().any(|name| *name == ours) {
                return Ok(Some(ours.to_owned()));
            }
            let problem = format!(
                "{} could be the {part} as well; [rename] \"NAME\" = \"{ours}\" in attnscope.toml says which is",
                several[1]
            );
            Err(facts.at(several[0], problem))
        }
    }
}
