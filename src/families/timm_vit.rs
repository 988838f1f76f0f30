//! Vision Transformers as timm stores them, and DINO, DINOv2, DeiT and MAE: fused queries, keys and values, and a head without a class
//! of its own. The layout of the names gives the configuration.

use attnscope_checkpoint::{Checkpoint, Reader, Tensors};
use attnscope_compute::error::Result;
use attnscope_spec::{HeadSpec, LabelKind, Labels, LinearSource, ModelSpec, Pooled};

use super::reading::layer_norm;
use super::reading::vit_like::{
    self, Biases, Keys, Names, OF_MOST, OF_QWEN, Pictures, Reads, VitLike,
};
use super::{Family, vit};

const NAME: &str = "timm_vit";

pub const FAMILY: Family = Family::own(NAME, "TimmVisionTransformer", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let placed = reader.word_or("positions_of", "positions_of", "all")?;
    reader.forget(&["positions_of"]);
    let pool = reader.word_or("global_pool", "global_pool", "")?;
    reader.forget(&["global_pool"]);
    let spec = vit_like::read(NAME, checkpoint, reader, like(tensors, &placed))?;
    let n_first = spec
        .main_stack()
        .embed
        .patches
        .as_ref()
        .map_or(0, |patches| patches.n_first());
    let head = head(tensors, &spec, (&pool, n_first));
    if head.is_none() && tensors.contains("head.weight") {
        reader.remark("the head of this model reads more than one token, or a token that attention pools: it is left aside".to_owned());
    }
    Ok(ModelSpec { head, ..spec })
}

fn like(tensors: &Tensors, placed: &str) -> VitLike {
    let stored = |name: &'static str| tensors.contains(name).then_some(name);
    let registers = [
        ("reg_token", "num_reg_tokens"),
        ("register_tokens", "num_register_tokens"),
    ];
    let registers = registers.into_iter().find_map(|(name, key)| {
        let info = tensors.info(name)?;
        Some((name, key, info.shape.get(1).copied().unwrap_or(0)))
    });
    VitLike {
        keys: Keys {
            aside: &["preprocessor"],
            ..OF_MOST
        },
        eps: 1e-6,
        names: Names {
            factors: stored("blocks.0.ls1.gamma").map(|_| ["ls1.gamma", "ls2.gamma"]),
            head_norms: stored("blocks.0.attn.q_norm.weight")
                .map(|_| ["attn.q_norm", "attn.k_norm"]),
            biases: Biases::Stored,
            ..OF_QWEN
        },
        reads: Reads::Pictures(Pictures {
            kernel: "patch_embed.proj.weight",
            has_bias: None,
            class: stored("cls_token"),
            distillation: stored("dist_token"),
            registers,
            are_registers_placed: placed == "all",
            is_class_placed: placed != "none",
            positions: Some("pos_embed"),
            norm: stored("norm_pre.weight").map(|_| "norm_pre"),
            ..vit::PICTURES
        }),
        last_norm: stored("norm.weight").map(|_| "norm"),
        ..vit::like(&[""])
    }
}

/// The classifier, which reads one token or the mean of the patches.
fn head(tensors: &Tensors, spec: &ModelSpec, (pool, n_first): (&str, usize)) -> Option<HeadSpec> {
    let n_out = match tensors.info("head.weight")?.shape[..] {
        [n_out, width] if width == spec.d_model => n_out,
        _ => return None,
    };
    if tensors.contains("head_dist.weight") || tensors.contains("attn_pool.q.weight") {
        return None;
    }
    let has_norm = tensors.contains("fc_norm.weight");
    let pooled = match pool {
        "token" => Pooled::First,
        "avg" => Pooled::MeanFrom(n_first),
        "" if has_norm || !tensors.contains("cls_token") => Pooled::MeanFrom(n_first),
        "" => Pooled::First,
        _ => return None,
    };
    let bias = tensors
        .contains("head.bias")
        .then(|| "head.bias".to_owned());
    let labels = Labels {
        names: (0..n_out).map(|idx| idx.to_string()).collect(),
        kind: LabelKind::OneOf,
        pooled,
    };
    Some(HeadSpec {
        pooled_norm: has_norm.then(|| layer_norm(tensors, "fc_norm", spec.d_model, norm_eps(spec))),
        labels: Some(Box::new(labels)),
        ..HeadSpec::plain(LinearSource::whole(
            "head.weight".to_owned(),
            bias,
            spec.d_model,
            n_out,
        ))
    })
}

/// The epsilon of the norms of the blocks, which that of the head shares.
fn norm_eps(spec: &ModelSpec) -> f64 {
    let block = spec.main_stack().blocks().first();
    let norm = block.and_then(|block| block.attn_pre.as_ref());
    norm.map_or(1e-6, |norm| f64::from(norm.eps))
}
