//! Weights without a configuration: the layout is known by tensor names, and what these leave open stands in a file of settings.

use std::path::Path;

use attnscope_checkpoint::Checkpoint;
use attnscope_compute::error::Result;
use serde_json::json;
use testing::checkpoint_copy::{Stored, Weights, file_of};

use super::Target;
use super::checkpoints::{NAMES, f32s, gpt2, list, of};
use crate::seeds::{Kind, Seed, fixture};

/// What `attnscope tensors --stats` and every command that runs a model read.
fn read(path: &Path) -> Result<()> {
    let checkpoint = Checkpoint::open(path)?;
    list(&checkpoint)?;
    attnscope_families::read(checkpoint)?;
    Ok(())
}

pub const HOMEGROWN: Target = Target {
    name: "homegrown",
    n_quick: 3_000,
    seeds: || {
        let llama = of(&[
            ("model.embed_tokens.weight", f32s(&[6, 8])),
            ("model.norm.weight", f32s(&[8])),
            ("model.layers.0.input_layernorm.weight", f32s(&[8])),
            ("model.layers.0.post_attention_layernorm.weight", f32s(&[8])),
            ("model.layers.0.self_attn.q_proj.weight", f32s(&[8, 8])),
            ("model.layers.0.self_attn.k_proj.weight", f32s(&[4, 8])),
            ("model.layers.0.self_attn.v_proj.weight", f32s(&[4, 8])),
            ("model.layers.0.self_attn.o_proj.weight", f32s(&[8, 8])),
            ("model.layers.0.mlp.gate_proj.weight", f32s(&[12, 8])),
            ("model.layers.0.mlp.up_proj.weight", f32s(&[12, 8])),
            ("model.layers.0.mlp.down_proj.weight", f32s(&[8, 12])),
            ("lm_head.weight", f32s(&[6, 8])),
        ]);
        let layer = |side: &str, kind: &str, n: usize| -> Vec<(String, Stored)> {
            let at = format!("{side}.layers.0.{kind}");
            vec![
                (format!("{at}.in_proj_weight"), f32s(&[3 * n, n])),
                (format!("{at}.in_proj_bias"), f32s(&[3 * n])),
                (format!("{at}.out_proj.weight"), f32s(&[n, n])),
                (format!("{at}.out_proj.bias"), f32s(&[n])),
            ]
        };
        let rest = |side: &str, n_norms: usize, n: usize| -> Vec<(String, Stored)> {
            let mut rest = vec![
                (format!("{side}.layers.0.linear1.weight"), f32s(&[2 * n, n])),
                (format!("{side}.layers.0.linear1.bias"), f32s(&[2 * n])),
                (format!("{side}.layers.0.linear2.weight"), f32s(&[n, 2 * n])),
                (format!("{side}.layers.0.linear2.bias"), f32s(&[n])),
            ];
            for norm in 1..=n_norms {
                rest.push((format!("{side}.layers.0.norm{norm}.weight"), f32s(&[n])));
                rest.push((format!("{side}.layers.0.norm{norm}.bias"), f32s(&[n])));
            }
            rest
        };
        let ends = |names: &[(&str, &[usize])]| -> Vec<(String, Stored)> {
            let ends = names.iter();
            ends.map(|(name, shape)| ((*name).to_owned(), f32s(shape)))
                .collect()
        };
        let encoder: Weights = [
            layer("encoder", "self_attn", 8),
            rest("encoder", 2, 8),
            ends(&[
                ("embedding.weight", &[6, 8]),
                ("pos_embedding.weight", &[5, 8]),
                ("head.weight", &[6, 8]),
                ("head.bias", &[6]),
            ]),
        ]
        .concat()
        .into_iter()
        .collect();
        let translator: Weights = [
            layer("transformer.encoder", "self_attn", 8),
            rest("transformer.encoder", 2, 8),
            layer("transformer.decoder", "self_attn", 8),
            layer("transformer.decoder", "multihead_attn", 8),
            rest("transformer.decoder", 3, 8),
            ends(&[
                ("src_embed.weight", &[6, 8]),
                ("tgt_embed.weight", &[7, 8]),
                ("pos", &[5, 8]),
                ("generator.weight", &[7, 8]),
                ("generator.bias", &[7]),
            ]),
        ]
        .concat()
        .into_iter()
        .collect();
        let seed = |kind: Kind, ending: &'static str, bytes: Vec<u8>, set: &str| {
            Seed::ending(kind, ending, bytes).with("attnscope.toml", format!("[set]\n{set}"))
        };
        let plain = |bytes: Vec<u8>, set: &str| seed(Kind::Safetensors, "safetensors", bytes, set);
        let params = json!({ "dim": 8, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "vocab_size": 6, "norm_eps": 1e-5, "multiple_of": 4 });
        let layers = "n_heads = 2\nactivation = \"relu\"\nnorm_first = false\nembed_scale = 1.0\n";
        let masked = format!("{layers}mask = \"causal\"\n");
        let written = format!("{layers}start_token = 2\n");
        vec![
            plain(gpt2(), "n_heads = 2\n"),
            plain(
                file_of(&llama),
                "n_heads = 2\nrope_theta = 1e4\nnorm_eps = 1e-5\n",
            ),
            plain(file_of(&llama), "rope_theta = 1e4\n").with("params.json", params.to_string()),
            plain(file_of(&encoder), &masked),
            plain(file_of(&translator), &written),
            plain(
                fixture("formats/homegrown/encoder/weights.safetensors"),
                &masked,
            ),
            plain(
                fixture("formats/homegrown/translator/weights.safetensors"),
                &written,
            ),
            seed(
                Kind::Zip,
                "pt",
                fixture("formats/homegrown/nanogpt_bias/mine.pth"),
                "n_heads = 2\n",
            ),
        ]
    },
    tokens: NAMES,
    read: |path| read(path).map_err(|e| e.to_string()),
};
