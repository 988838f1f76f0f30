//! timm's Vision Transformer, whose names DINO, DINOv2, DeiT and MAE share: `blocks.0.attn.qkv.weight` beside `patch_embed.proj.weight`.

use attnscope_compute::error::Result;
use serde_json::{Map, Value, json};

use super::{Facts, Layout};

pub const LAYOUT: Layout = Layout {
    known_by: "timm's Vision Transformer (patch_embed.proj.weight, blocks.0.attn.qkv.weight)",
    describe,
};

const PROBE: &str = "blocks.0.attn.qkv.weight";
const KERNEL: &str = "patch_embed.proj.weight";
const PLACES: &str = "pos_embed";

const PARTS: &[&str] = &[
    "norm1.weight",
    "norm1.bias",
    "attn.qkv.weight",
    "attn.qkv.bias",
    "attn.q_norm.weight",
    "attn.q_norm.bias",
    "attn.k_norm.weight",
    "attn.k_norm.bias",
    "attn.proj.weight",
    "attn.proj.bias",
    "ls1.gamma",
    "norm2.weight",
    "norm2.bias",
    "mlp.fc1.weight",
    "mlp.fc1.bias",
    "mlp.fc2.weight",
    "mlp.fc2.bias",
    "ls2.gamma",
];

/// Beginnings of the names of architectures that are read, as timm 1.0 has them.
const READ: [&str; 5] = ["vit_", "deit_", "deit3_", "flexivit_", "beit3_"];

/// Words in the names of architectures that store the same tensors and compute something else: norms after the branches, rotary
/// positions, relative ones, pooling over learned tokens too.
const OTHERS: [&str; 6] = ["_rpn_", "rope", "_pe_", "dinov3", "relpos", "test_vit3"];

/// Architectures whose heads are not 64 wide, by words in their names, and how many they have.
const HEADS: [(&str, usize); 7] = [
    ("vit_base_patch16_gap_224", 16),
    ("huge", 16),
    ("giant", 16),
    ("gigantic", 16),
    ("so400m", 16),
    ("test_vit2", 2),
    ("test_vit", 2),
];

/// Words in the names of architectures whose activation is the approximate GELU.
const TANH: [&str; 4] = [
    "base_patch32_siglip",
    "giantopt_patch16_siglip",
    "large_patch16_siglip_512",
    "large_patch16_siglip_gap_512",
];

fn describe(facts: &mut Facts<'_>) -> Result<bool> {
    let is_kernel = facts.shape(KERNEL).is_some_and(|shape| shape.len() == 4);
    if !facts.has(PROBE) || !is_kernel || !facts.has(PLACES) {
        return Ok(false);
    }
    let name = architecture(facts);
    if let Some(name) = &name {
        let is_read = READ.iter().any(|start| name.starts_with(start))
            || ["test_vit", "test_vit2"].contains(&name.as_str());
        if !is_read || OTHERS.iter().any(|word| name.contains(word)) {
            let problem = format!(
                "timm's {name} stores such tensors too; expected one of its plain Vision Transformers ({}…)",
                READ.join("…, ")
            );
            return Err(facts.at(PROBE, problem));
        }
    }
    facts.layers("num_hidden_layers", "blocks.", "attn.qkv.weight", PARTS)?;
    if facts.has("blocks.0.norm1.weight") && !facts.has("blocks.0.norm1.bias") {
        let problem = "norms without biases are not read in this layout".to_owned();
        return Err(facts.at("blocks.0.norm1.weight", problem));
    }
    facts.by_names("model_type", "timm_vit");
    let [_, d_model] = facts.matrix(PROBE)?;
    facts.by_shape("hidden_size", d_model, PROBE, &["num_features"])?;
    let [d_mlp, _] = facts.matrix("blocks.0.mlp.fc1.weight")?;
    let [_, d_hidden] = facts.matrix("blocks.0.mlp.fc2.weight")?;
    if d_mlp != d_hidden {
        let problem = format!(
            "{d_mlp} rows feed {d_hidden} columns: feed-forward layers with gates are not read in this layout"
        );
        return Err(facts.at("blocks.0.mlp.fc1.weight", problem));
    }
    facts.by_shape("intermediate_size", d_mlp, "blocks.0.mlp.fc1.weight", &[])?;
    let Some(&[_, n_channels, rows, columns]) = facts.shape(KERNEL) else {
        let problem = "expected the kernel of a convolution, of 4 axes".to_owned();
        return Err(facts.at(KERNEL, problem));
    };
    facts.by_shape("num_channels", n_channels, KERNEL, &[])?;
    facts.by_names("patch_size", json!([rows, columns]));
    let n_first = first_tokens(facts);
    let grid = grid(facts, n_first, [rows, columns])?;
    facts.by_names("image_size", json!([grid[0] * rows, grid[1] * columns]));
    let name = name.unwrap_or_default();
    heads(facts, &name, d_model);
    // CLIP's towers norm the rows before the first block, and their epsilon is PyTorch's own.
    let is_clip = facts.has("norm_pre.weight") || name.starts_with("beit3_");
    facts.by_names("layer_norm_eps", if is_clip { 1e-5 } else { 1e-6 });
    let is_tanh =
        TANH.iter().any(|word| name.contains(word)) || name.contains("so400m_patch16_siglip");
    let activation = match name.contains("quickgelu") {
        true => "quick_gelu",
        false if is_tanh => "gelu_new",
        false => "gelu",
    };
    facts.by_names("hidden_act", activation);
    if let Some((_, word)) = facts.stated(&["global_pool"]) {
        facts.by_names("global_pool", word);
    }
    if let Some(steps) = preprocessor(facts) {
        facts.by_names("preprocessor", steps);
    }
    Ok(true)
}

/// The name of the architecture, if a configuration of timm states it.
fn architecture(facts: &Facts<'_>) -> Option<String> {
    let (_, name) = facts.stated(&["architecture"])?;
    name.as_str().map(str::to_owned)
}

/// A value of `pretrained_cfg`, or of the arguments of the model.
fn within(facts: &Facts<'_>, place: &str, key: &str) -> Option<Value> {
    let (_, values) = facts.stated(&[place])?;
    values.get(key).filter(|value| !value.is_null()).cloned()
}

/// The number of learned tokens: those that have positions as patches have them, and all.
fn first_tokens(facts: &Facts<'_>) -> [usize; 2] {
    let n = |name: &str| {
        let shape = facts.shape(name);
        shape.map_or(0, |shape| shape.get(1).copied().unwrap_or(1))
    };
    let classes = n("cls_token") + n("dist_token");
    [classes, classes + n("reg_token") + n("register_tokens")]
}

/// Rows and columns of patches; positions may be those of patches alone, of class tokens too, or of all tokens.
fn grid(facts: &mut Facts<'_>, n_first: [usize; 2], patch: [usize; 2]) -> Result<[usize; 2]> {
    let Some(&[1, n_places, _]) = facts.shape(PLACES) else {
        let problem = "expected positions of shape [1, n, d_model]".to_owned();
        return Err(facts.at(PLACES, problem));
    };
    let stated = within(facts, "model_args", "img_size")
        .or_else(|| within(facts, "pretrained_cfg", "input_size"));
    let sides: Option<Vec<usize>> = stated.and_then(|value| match value {
        Value::Number(side) => Some(vec![side.as_u64()? as usize; 2]),
        Value::Array(sides) => sides.iter().map(|n| Some(n.as_u64()? as usize)).collect(),
        _ => None,
    });
    let stated = sides.and_then(|sides| {
        let [.., height, width] = sides[..] else {
            return None;
        };
        Some([height / patch[0].max(1), width / patch[1].max(1)])
    });
    for (word, n) in [("none", 0), ("class", n_first[0]), ("all", n_first[1])] {
        let Some(n_patches) = n_places.checked_sub(n).filter(|n| *n > 0) else {
            continue;
        };
        let side = n_patches.isqrt();
        let found = match stated {
            Some([rows, columns]) if rows * columns == n_patches => Some([rows, columns]),
            _ if side * side == n_patches => Some([side, side]),
            _ => None,
        };
        if let Some(grid) = found {
            facts.by_names("positions_of", word);
            return Ok(grid);
        }
    }
    let problem = format!("{n_places} positions are those of no square of patches");
    Err(facts.at(PLACES, problem))
}

fn heads(facts: &mut Facts<'_>, name: &str, d_model: usize) {
    const KEY: &str = "num_attention_heads";
    if facts.overrides.has("n_heads") {
        return;
    }
    if let Some(n) = within(facts, "model_args", "num_heads") {
        facts.by_names(KEY, n);
        return;
    }
    let known = HEADS.iter().find(|(word, _)| name.contains(word));
    match known {
        Some((_, n)) => facts.by_names(KEY, *n),
        None if d_model.is_multiple_of(64) => {
            facts.by_names(KEY, d_model / 64);
            if name.is_empty() {
                facts.remarks.push(format!(
                    "read as a plain Vision Transformer of timm's: nothing beside the weights says so; taken as usual: n_heads={}, heads of \
                     width 64, a plain GELU, no rotary positions, and the usual colours; --set n_heads=… changes the first",
                    d_model / 64
                ));
            }
        }
        None => facts.needed("n_heads", KEY, &[]),
    }
}

/// How pictures are preprocessed, in the words of `preprocessor_config.json`: the shorter side is resized, and the middle is cut out.
fn preprocessor(facts: &Facts<'_>) -> Option<Value> {
    let of = |key: &str| within(facts, "pretrained_cfg", key);
    let sides = of("input_size")?;
    let side = |at: usize| sides.get(at).and_then(Value::as_u64);
    let (height, width) = (side(1)?, side(2)?);
    let share = of("crop_pct").and_then(|value| value.as_f64());
    let share = share.filter(|share| *share > 0.0).unwrap_or(0.875);
    let resized = |side: u64| (side as f64 / share).floor() as u64;
    let squashes = of("crop_mode").is_some_and(|mode| mode == "squash");
    if height != width && !squashes {
        return None; // timm keeps the proportions of such pictures by a rule of its own
    }
    let filter = match of("interpolation").as_ref().and_then(Value::as_str) {
        Some("bilinear") => 2,
        _ => 3,
    };
    let mut steps = Map::new();
    let mut put = |key: &str, value: Value| {
        steps.insert(key.to_owned(), value);
    };
    put(
        "size",
        if squashes {
            json!({ "height": resized(height), "width": resized(width) })
        } else {
            json!({ "shortest_edge": resized(height) })
        },
    );
    put("do_center_crop", true.into());
    put("cuts_evenly", true.into());
    put("crop_size", json!({ "height": height, "width": width }));
    put("resample", filter.into());
    for (key, stated) in [("image_mean", "mean"), ("image_std", "std")] {
        if let Some(values) = of(stated) {
            put(key, values);
        }
    }
    Some(steps.into())
}
