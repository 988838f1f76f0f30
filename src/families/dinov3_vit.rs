//! DINOv3: ViT whose patches turn by their place in the picture, with registers and learned factors of what branches add.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::attention::{GridFrequencies, GridPlaces, GridTurn, RopeSpec};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{FeedForward, LinearSource, Mixer, ModelSpec};

use super::reading::linear;
use super::reading::vit_like::{self, Biases, Names, Pictures, Reads, Sizes, VitLike};
use super::{Family, dinov2, vit};

pub const FAMILY: Family = Family::own("dinov3_vit", "DINOv3ViT", read);

pub(super) const NAMES: Names = Names {
    layers: "layer",
    q: "attention.q_proj",
    k: "attention.k_proj",
    v: "attention.v_proj",
    qkv: None,
    o: "attention.o_proj",
    norms: ["norm1", "norm2"],
    up: "mlp.up_proj",
    down: "mlp.down_proj",
    gate: None,
    head_norms: None,
    biases: Biases::All,
    factors: None,
};

pub(super) const PICTURES: Pictures = Pictures {
    kernel: "embeddings.patch_embeddings.weight",
    registers: Some(("embeddings.register_tokens", "num_register_tokens", 0)),
    positions: None,
    patch: 16,
    ..dinov2::PICTURES
};

pub(super) const LIKE: VitLike = VitLike {
    sizes: Sizes {
        d_model: 384,
        d_mlp: 1536,
        n_layers: 12,
        n_heads: 6,
    },
    eps: 1e-5,
    names: NAMES,
    reads: Reads::Pictures(PICTURES),
    last_norm: Some("norm"),
    ..vit::like(&["", "dinov3_vit."])
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut names = checkpoint.tensors.iter().map(|(name, _)| name);
    let layers = if names.any(|name| name.contains("model.layer.0.")) {
        "model.layer"
    } else {
        NAMES.layers
    };
    let like = VitLike {
        names: Names { layers, ..NAMES },
        ..LIKE
    };
    read_like(FAMILY.model_type, checkpoint, reader, like)
}

/// Reads a family of DINOv3's kind.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_like(
    family: &'static str,
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: VitLike,
) -> Result<ModelSpec> {
    let mut spec = vit_like::read(family, checkpoint, reader, like)?;
    let rope = turn(reader, &spec)?;
    let has =
        |reader: &mut Reader<'_>, key: &'static str, default| reader.flag_or(key, key, default);
    let biases = [
        has(reader, "query_bias", true)?,
        has(reader, "key_bias", false)?,
        has(reader, "value_bias", true)?,
        has(reader, "proj_bias", true)?,
    ];
    let has_mlp_bias = has(reader, "mlp_bias", true)?;
    let is_gated = reader.flag_or("gated_mlp", "use_gated_mlp", false)?;
    for block in spec.stacks[0].blocks_mut() {
        let (Mixer::Attention(own), FeedForward::Dense(mlp)) =
            (&mut block.mixer, &mut block.feed_forward)
        else {
            continue;
        };
        own.attention.rope = Some(rope.clone());
        let maps = &mut own.projections;
        let at = maps.q.weight.replace("attention.q_proj.weight", "");
        let each = [&mut maps.q, &mut maps.k, &mut maps.v, &mut maps.o];
        for (map, has_bias) in each.into_iter().zip(biases) {
            map.bias = map.bias.take().filter(|_| has_bias);
        }
        if is_gated {
            let gate = format!("{at}mlp.gate_proj");
            mlp.gate = Some(linear(&gate, mlp.up.n_in, mlp.up.n_out(), true));
        }
        let gate = mlp.gate.iter_mut();
        for map in gate.chain([&mut mlp.up, &mut mlp.down]) {
            map.bias = map.bias.take().filter(|_| has_mlp_bias);
        }
        let scaled = |map: &mut LinearSource, name: &str| {
            *map = map.clone().times(format!("{at}{name}.lambda1"));
        };
        scaled(&mut maps.o, "layer_scale1");
        scaled(&mut mlp.down, "layer_scale2");
    }
    Ok(spec)
}

/// How patches turn by their place.
pub(super) fn turn(reader: &mut Reader<'_>, spec: &ModelSpec) -> Result<RopeSpec> {
    let theta = vit_like::theta(reader, 100.0)?;
    for key in ["pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"] {
        // In training only.
        reader.value(key);
    }
    let d_head = spec
        .main_stack()
        .first_attention()
        .map_or(0, |own| own.d_head);
    if d_head == 0 || !d_head.is_multiple_of(4) {
        let problem = format!("expected heads whose width is a multiple of 4, found {d_head}");
        return Err(Error::config(reader.path(), "num_attention_heads", problem));
    }
    let pictures = spec.preprocessing();
    let Some((pictures, size)) = pictures.and_then(|all| Some((all, all.fixed_size()?))) else {
        let problem = "expected pictures of one size, as height and width state it";
        return Err(Error::config(reader.path(), "image_size", problem));
    };
    let [rows, columns] = [0, 1].map(|side| size[side] / pictures.patch[side].max(1));
    Ok(RopeSpec {
        grid: Some(GridTurn {
            n_first: pictures.firsts.len(),
            grid: Some([rows, columns]),
            places: GridPlaces::Centres,
            frequencies: GridFrequencies::Shared,
        }),
        ..RopeSpec::plain(theta, d_head)
    })
}
