//! The tower of pictures of dots3 note: Qwen2-VL's with RMSNorm, gates and norms of heads, and experts in its later layers, more of them in
//! each. What merges patches behind the last norm is not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{
    ChoiceBias, ExpertsSpec, FeedForward, LinearSource, ModelSpec, RouterRule, RouterScores,
};
use serde_json::Value;

use super::reading::experts::{GatedNames, gated};
use super::reading::vit_like::{
    self, Keys, Names, OF_MOST, OF_QWEN, Pictures, Reads, Sizes, VitLike,
};
use super::reading::{check_used, prefix};
use super::{Family, qwen2_vl_vision, vit};

pub const FAMILY: Family = Family::own("dots3_note_vision_encoder", "Dots3NoteVision", read)
    .leaving_unread(&["adapter.*", "merger.*"]);

const NAMES: GatedNames = GatedNames {
    gate: "fc1",
    up: "fc3",
    down: "fc2",
};

const LIKE: VitLike = VitLike {
    sizes: Sizes {
        d_model: 1536,
        d_mlp: 4224,
        n_layers: 42,
        n_heads: 24,
    },
    keys: Keys {
        eps: Some("rms_norm_eps"),
        aside: &[
            "attention_bias",
            "use_bias",
            "mlp_bias",
            "adapter_in_dim",
            "adapter_out_dim",
            "adapter_merge_size",
        ],
        ..OF_MOST
    },
    eps: 1e-5,
    activation: "silu",
    norm: NormKind::RmsNorm,
    names: Names {
        norms: ["norm_1", "norm_2"],
        up: "mlp.fc3",
        gate: Some("mlp.fc1"),
        down: "mlp.fc2",
        head_norms: Some(["attn.q_norm", "attn.k_norm"]),
        ..OF_QWEN
    },
    reads: Reads::Pictures(Pictures {
        form: vit::PICTURES.form,
        norm: Some("patch_embed.norm"),
        ..qwen2_vl_vision::PICTURES
    }),
    last_norm: Some("post_trunk_norm"),
    ..vit::like(&["", "vision_encoder.", "model.vision_encoder."])
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const WIDTH: &str = "moe_intermediate_size";
    const USED: &str = "num_experts_per_tok";
    const SCALE: &str = "router_scaling_factor";
    const TYPES: &str = "mlp_layer_types";
    let tensors = &checkpoint.tensors;
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let default = |key: &str| Origin::Default(key.to_owned());
    let d_expert = reader.size_or("d_expert", WIDTH, 2112, default(WIDTH))?;
    let n_used = reader.size_or("n_experts_used", USED, 2, default(USED))?;
    let scale = reader.number_or("expert_scale", SCALE, 1.0)? as f32;
    const COUNT: &str = "num_local_experts";
    const OF_LAYERS: &str = "per_layer_config";
    let of_most = reader.value(COUNT).and_then(Value::as_u64);
    let of_layers = reader.value(OF_LAYERS).cloned();
    // The first configurations state the number of each layer's experts, which is stored as well.
    reader.value("pyramid_num_routed");
    let blocks = spec.stacks[0].blocks_mut();
    let words = reader.words_by_layer(TYPES, blocks.len())?;
    let base = prefix(tensors, LIKE.bases, "patch_embed.proj.weight");
    for (layer_idx, block) in blocks.iter_mut().enumerate() {
        let at = format!("{base}blocks.{layer_idx}.mlp");
        let router = format!("{at}.gate_weight");
        let stored = tensors
            .info(&router)
            .and_then(|info| info.shape.first().copied());
        let word = if stored.is_some() { "sparse" } else { "dense" };
        if let Some(found) = words
            .as_ref()
            .map(|words| &words[layer_idx])
            .filter(|found| *found != word)
        {
            let problem =
                format!("layer {layer_idx}: expected {word:?}, as it is stored, found {found:?}");
            return Err(Error::config(reader.path(), TYPES, problem));
        }
        let (Some(n), FeedForward::Dense(dense)) = (stored, &block.feed_forward) else {
            continue;
        };
        let (d_model, activation) = (dense.up.n_in, dense.activation);
        let own = of_layers.as_ref();
        let own = own.and_then(|all| all.get(layer_idx.to_string())?.as_object());
        let mut keys = own.into_iter().flat_map(|own| own.keys());
        if let Some(other) = keys.find(|key| ![COUNT, USED].contains(&key.as_str())) {
            let problem = format!("layer {layer_idx}: {other:?} of one layer is not read");
            return Err(Error::config(reader.path(), OF_LAYERS, problem));
        }
        let of_layer = |key: &str| own.and_then(|own| own.get(key)?.as_u64());
        if let Some(found) = of_layer(COUNT)
            .or(of_most)
            .filter(|found| *found != n as u64)
        {
            let problem =
                format!("layer {layer_idx}: expected {n}, as they are stored, found {found}");
            return Err(Error::config(reader.path(), COUNT, problem));
        }
        let n_used = of_layer(USED).map_or(n_used, |n| n as usize);
        check_used(reader, n_used, n)?;
        block.feed_forward = FeedForward::Experts(Box::new(ExpertsSpec {
            router: LinearSource::whole(router, None, d_model, n),
            rule: RouterRule {
                choice_bias: Some(ChoiceBias {
                    tensor: format!("{at}.router_bias"),
                    shape: vec![n],
                }),
                normalises: true,
                least_sum: 1e-20,
                scale,
                ..RouterRule::plain(n_used, RouterScores::Sigmoid)
            },
            experts: (0..n)
                .map(|idx| {
                    let at = format!("{at}.experts.{idx}");
                    gated(&at, NAMES, d_model, d_expert, activation, false)
                })
                .collect(),
            shared: None,
            latent: None,
            norms: None,
            apart: None,
        }));
    }
    Ok(spec)
}
