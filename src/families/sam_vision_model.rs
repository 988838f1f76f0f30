//! The encoder of pictures of Segment Anything: patches see those of their own window in most layers, and positions are learned vectors
//! by distance in rows and in columns. What follows its last layer is not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Biases, Keys, MlpKey, Names, OF_CLIP, OF_MOST, Pictures, Reads, VitLike,
};
use super::reading::windowed::{Windowed, fixed_grid};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("sam_vision_model", "SamVision", read);

const LIKE: VitLike = VitLike {
    keys: Keys {
        aside: &[
            "output_channels",
            "num_pos_feats",
            "downsample_channels",
            "post_conv_in_channels",
            "post_conv_mid_channels",
            "post_conv_out_channels",
            "decoder_hidden_size",
            "mlp_ratio",
            "scale",
        ],
        ..OF_MOST
    },
    eps: 1e-6,
    names: Names {
        layers: "layers",
        qkv: Some("attn.qkv"),
        o: "attn.proj",
        norms: ["layer_norm1", "layer_norm2"],
        up: "mlp.lin1",
        down: "mlp.lin2",
        biases: Biases::Switch("qkv_bias"),
        ..OF_CLIP
    },
    reads: Reads::Pictures(PICTURES),
    last_norm: None,
    ..vit::like(&[
        "vision_encoder.",
        "model.vision_tower.sam_encoder.",
        "vision_tower.sam_encoder.",
        "model.vision_tower.",
        "vision_tower.",
        "backbone.vision_tower.",
        "model.encoder.vision_tower.",
        "model.encoder.",
        "sam_encoder.",
        "",
    ])
};

const PICTURES: Pictures = Pictures {
    kernel: "patch_embed.projection.weight",
    class: None,
    positions: Some("pos_embed"),
    size: 1024,
    processor: Processor::SAM,
    ..vit::PICTURES
};

/// Layers in which every patch sees every other one, if the configuration does not state them.
const WHOLE: [u64; 4] = [2, 5, 8, 11];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let has_positions = reader.flag_or("stores_positions", "use_abs_pos", true)?;
    // Older files state the width of feed-forward layers, or leave it to a ratio.
    let states_width = reader.value("mlp_dim").is_some();
    let like = VitLike {
        keys: Keys {
            d_mlp: if states_width {
                MlpKey::Width("mlp_dim")
            } else {
                MlpKey::Ratio("mlp_ratio")
            },
            ..LIKE.keys
        },
        reads: Reads::Pictures(Pictures {
            positions: PICTURES.positions.filter(|_| has_positions),
            ..PICTURES
        }),
        ..LIKE
    };
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let has_steps = reader.flag_or("distance_vectors", "use_rel_pos", true)?;
    const KEY: &str = "global_attn_indexes";
    let whole = reader.numbers(KEY)?.unwrap_or(WHOLE.to_vec());
    let side = reader.count_or("window", "window_size", 14)?;
    let windowed = Windowed {
        grid: fixed_grid(reader, &spec)?,
        sides: [side; 2],
        n_first: 0,
        key: KEY,
        whole: &|layer_idx| side == 0 || whole.contains(&(layer_idx as u64)),
        tables: has_steps.then_some(("qkv.weight", ["rel_pos_h", "rel_pos_w"])),
    };
    windowed.apply(reader, &mut spec);
    reader.note(
        "neck",
        "not read: the last hidden state is that of the last layer",
        Origin::Family,
    );
    Ok(spec)
}
