//! EoMT: DINOv2, whose last layers see learned queries of segments before all other tokens. What makes masks and classes of them is not
//! read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{FeedForward, ModelSpec, TableSource};

use super::reading::linear;
use super::reading::vit_like::{
    self, Keys, MlpKey, Names, OF_CLIP, OF_MOST, Pictures, Reads, Sizes, VitLike,
};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("eomt", "Eomt", read).leaving_unread(UNREAD);

/// What makes masks and classes of queries.
pub(super) const UNREAD: &[&str] = &[
    "attn_mask_probs",
    "class_predictor.*",
    "criterion.*",
    "embeddings.mask_token",
    "mask_head.*",
    "query_updater.*",
    "upscale_block.*",
];

/// Keys of training, and of what makes masks.
pub(super) const ASIDE: &[&str] = &[
    "class_weight",
    "dice_weight",
    "drop_path_rate",
    "importance_sample_ratio",
    "layerscale_value",
    "mask_weight",
    "no_object_weight",
    "num_upscale_blocks",
    "oversample_ratio",
    "train_num_points",
];

/// Sizes of the largest encoder.
pub(super) const LARGE: Sizes = Sizes {
    d_model: 1024,
    d_mlp: 4096,
    n_layers: 24,
    n_heads: 16,
};

/// The encoder, and where its queries are.
pub(super) const LIKE: VitLike = VitLike {
    sizes: LARGE,
    keys: Keys {
        aside: ASIDE,
        d_mlp: MlpKey::RatioOrGated("mlp_ratio", "use_swiglu_ffn"),
        ..OF_MOST
    },
    eps: 1e-6,
    names: Names {
        layers: "layers",
        q: "attention.q_proj",
        k: "attention.k_proj",
        v: "attention.v_proj",
        o: "attention.out_proj",
        norms: ["norm1", "norm2"],
        factors: Some(["layer_scale1.lambda1", "layer_scale2.lambda1"]),
        ..OF_CLIP
    },
    reads: Reads::Pictures(Pictures {
        registers: Some(("embeddings.register_tokens", "num_register_tokens", 4)),
        positions: Some("embeddings.position_embeddings.weight"),
        is_class_placed: false,
        size: 640,
        ..vit::PICTURES
    }),
    ..vit::like(&[""])
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    check_masks(checkpoint, reader)?;
    read_named(FAMILY.model_type, checkpoint, reader)
}

/// Reads an encoder of this kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_named(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
) -> Result<ModelSpec> {
    let mut spec = vit_like::read(family, checkpoint, reader, LIKE)?;
    for (layer_idx, block) in spec.stacks[0].blocks_mut().iter_mut().enumerate() {
        let FeedForward::Dense(mlp) = &mut block.feed_forward else {
            continue;
        };
        if mlp.gate.is_some() {
            // Gates have a matrix of their own.
            let (d_model, d_mlp) = (mlp.up.n_in, mlp.up.n_out());
            let map = |name: &str, n_in, n_out| {
                linear(&format!("layers.{layer_idx}.mlp.{name}"), n_in, n_out, true)
            };
            mlp.gate = Some(map("gate_proj", d_model, d_mlp));
            mlp.up = map("up_proj", d_model, d_mlp);
            let factors = mlp.down.factors.take();
            mlp.down = map("down_proj", d_mlp, d_model);
            mlp.down.factors = factors;
        }
    }
    join_queries(reader, &mut spec)?;
    Ok(spec)
}

/// Puts the queries before the tokens of the last layers, whose patches turn as those of the others.
///
/// # Errors
/// When their number is impossible.
pub(super) fn join_queries(reader: &mut Reader<'_>, spec: &mut ModelSpec) -> Result<()> {
    const LAYERS: &str = "num_blocks";
    const QUERIES: &str = "num_queries";
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_last = reader.size_or("layers_with_queries", LAYERS, 4, default(LAYERS))?;
    let n_rows = reader.size_or("n_queries", QUERIES, 200, default(QUERIES))?;
    let (d_model, n_layers) = (spec.d_model, spec.stacks[0].n_layers());
    if n_last >= n_layers {
        let problem = format!("expected fewer than all {n_layers} layers, found {n_last}");
        return Err(Error::config(reader.path(), LAYERS, problem));
    }
    let first = n_layers - n_last;
    for (layer_idx, block) in spec.stacks[0].blocks_mut().iter_mut().enumerate() {
        if layer_idx + 1 == first {
            block.joined = Some(Box::new(TableSource {
                tensor: "query.weight".to_owned(),
                n_rows,
                width: d_model,
            }));
        }
        let own = block.own_mut().filter(|_| layer_idx >= first);
        let rope = own.and_then(|own| own.attention.rope.as_mut());
        if let Some(turn) = rope.and_then(|rope| rope.grid.as_mut()) {
            turn.n_first += n_rows;
        }
    }
    reader.remark(format!(
        "from layer {first} on, {n_rows} learned queries stand before all other tokens"
    ));
    Ok(())
}

/// Checks that training has ended for masks: before, queries see only the patches that they are about to choose.
///
/// # Errors
/// When some layer still has masks.
pub(super) fn check_masks(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<()> {
    const NAME: &str = "attn_mask_probs";
    let tensors = &checkpoint.tensors;
    let n = tensors
        .info(NAME)
        .map_or(0, |info| info.shape.iter().product());
    let stored = tensors.expect(NAME, &[n])?.widen()?;
    if let Some((nth, share)) = stored.iter().enumerate().find(|(_, share)| **share > 0.0) {
        let problem = format!(
            "expected 0: masks made of the queries' own choice are not read, found {share} for layer {nth} of those with queries"
        );
        return Err(Error::config(reader.path(), NAME, problem));
    }
    Ok(())
}
