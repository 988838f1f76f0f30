//! Sapiens 2: DINOv3 with RMSNorm, norms of queries and keys, and fewer keys than queries in some layers. What follows its layers is
//! not read.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{FeedForward, Mixer, ModelSpec, OutputFactors, Part};

use super::reading::vit_like::{
    self, Biases, Keys, Names, OF_MOST, Pictures, Reads, Sizes, VitLike,
};
use super::reading::{check_groups, linear};
use super::{Family, dinov3_vit};

pub const FAMILY: Family = Family::own("sapiens2", "Sapiens2", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let is_gated = reader.flag_or("gated_mlp", "use_gated_mlp", true)?;
    let like = VitLike {
        bases: &["", "model.", "backbone."],
        sizes: Sizes {
            d_model: 1024,
            d_mlp: 4096,
            n_layers: 24,
            n_heads: 16,
        },
        keys: Keys {
            eps: Some("rms_norm_eps"),
            aside: ASIDE,
            ..OF_MOST
        },
        eps: 1e-6,
        activation: "silu",
        norm: NormKind::RmsNorm,
        names: Names {
            layers: "model.layer",
            gate: is_gated.then_some("mlp.gate_proj"),
            head_norms: Some(["attention.q_norm", "attention.k_norm"]),
            biases: Biases::Stored,
            ..dinov3_vit::NAMES
        },
        reads: Reads::Pictures(Pictures {
            kernel: "embeddings.patch_embeddings.weight",
            registers: Some(("embeddings.register_tokens", "num_register_tokens", 8)),
            ..dinov3_vit::PICTURES
        }),
        ..dinov3_vit::LIKE
    };
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let rope = dinov3_vit::turn(reader, &spec)?;
    let n_layers = spec.stacks[0].blocks_mut().len();
    let n_kv_heads = keys_of_layers(reader, n_layers)?;
    for (layer_idx, block) in spec.stacks[0].blocks_mut().iter_mut().enumerate() {
        let Mixer::Attention(own) = &mut block.mixer else {
            continue;
        };
        own.attention.rope = Some(rope.clone());
        let maps = &mut own.projections;
        let at = maps.q.weight.replace("attention.q_proj.weight", "");
        maps.o.factors = Some(OutputFactors::stored(format!("{at}layer_scale1.lambda1")));
        let fused = format!("{at}mlp.gate_up_proj");
        if let FeedForward::Dense(mlp) = &mut block.feed_forward
            && is_gated
            && checkpoint.tensors.contains(&format!("{fused}.weight"))
        {
            let has_bias = checkpoint.tensors.contains(&format!("{fused}.bias"));
            let n = mlp.up.n_out();
            let both = linear(&fused, mlp.up.n_in, 2 * n, has_bias);
            let half = |nth: usize| {
                both.clone().part(Part {
                    group: 2 * n,
                    offset: nth * n,
                    len: n,
                })
            };
            (mlp.gate, mlp.up) = (Some(half(0)), half(1));
        }
        let Some(n) = n_kv_heads.as_ref().and_then(|all| all.get(layer_idx)) else {
            continue;
        };
        let n = *n as usize;
        check_groups(reader, own.attention.n_heads, n, PER_LAYER)?;
        own.attention.n_kv_heads = n;
        for map in [&mut maps.k, &mut maps.v] {
            let name = map.weight.trim_end_matches(".weight").to_owned();
            let n_out = n * own.attention.d_head;
            *map = linear(&name, map.n_in, n_out, map.bias.is_some());
        }
    }
    Ok(spec)
}

const PER_LAYER: &str = "num_key_value_heads_per_layer";

/// The number of heads of keys in each layer; `None` if the configuration does not state it, and all layers have as many as queries.
fn keys_of_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Option<Vec<u64>>> {
    let Some(stated) = reader.numbers(PER_LAYER)? else {
        return Ok(None);
    };
    if stated.len() == n_layers {
        return Ok(Some(stated));
    }
    let problem = format!("expected a number for each of {n_layers} layers, found {stated:?}");
    Err(Error::config(reader.path(), PER_LAYER, problem))
}

/// Keys of training, of what follows the layers, and of what stored tensors say as well.
const ASIDE: &[&str] = &[
    "query_bias",
    "key_bias",
    "value_bias",
    "proj_bias",
    "mlp_bias",
    "layerscale_value",
    "drop_path_rate",
    "use_mask_token",
    "use_qk_norm",
    "reshape_hidden_states",
    "normalize_backbone_outputs",
    "num_key_value_attention_heads",
    "num_first_full_attention_layers",
    "num_last_full_attention_layers",
    "semantic_loss_ignore_index",
    "flip_pairs",
    "head_config",
    "out_features",
    "out_indices",
    "stage_names",
];

/// Names in published files, and those that are read.
pub(super) const PUBLISHED: &[(&str, &str)] = &[
    ("^backbone.", ""),
    ("^cls_token", "embeddings.cls_token"),
    ("^storage_tokens", "embeddings.register_tokens"),
    ("^patch_embed.projection.", "embeddings.patch_embeddings."),
    ("^blocks.", "model.layer."),
    (".attn.gamma.weight", ".layer_scale1.lambda1"),
    (".attn.wq.", ".attention.q_proj."),
    (".attn.wk.", ".attention.k_proj."),
    (".attn.wv.", ".attention.v_proj."),
    (".attn.proj.", ".attention.o_proj."),
    (".attn.", ".attention."),
    (".ffn.w12.", ".mlp.gate_up_proj."),
    (".ffn.w3.", ".mlp.down_proj."),
    (".ln1.", ".norm1."),
    (".ln2.", ".norm2."),
    ("^ln1.", "norm."),
];
