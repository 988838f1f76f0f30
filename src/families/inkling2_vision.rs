//! Inkling 2's tower of pictures: pictures as they are, filled up to whole squares of patches with learned positions, which turn by column and
//! row, counted from 1. A class token has a position of its own and does not turn. What merges patches behind the last block is not read.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::attention::GridFrequencies;
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, Resampling};

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Count, Kernel, Keys, MlpKey, Names, OF_CLIP, OF_MOST, Pictures, Reads, Sizes, Turn,
    VitLike,
};
use super::{Family, vit};

pub const FAMILY: Family =
    Family::own("inkling2_vision", "Inkling2Vision", read).leaving_unread(&["merger.*"]);

const GRID: &str = "posemb_grid_size";

const LIKE: VitLike = VitLike {
    sizes: Sizes {
        d_model: 1024,
        d_mlp: 4096,
        n_layers: 23,
        n_heads: 16,
    },
    keys: Keys {
        aside: &[
            "layer_scale_init_value",
            "mlp_ratio",
            "projection_hidden_dim",
            "projector_bias",
            "text_hidden_size",
        ],
        ..OF_MOST
    },
    eps: 1e-5,
    names: Names {
        layers: "layers",
        norms: ["layernorm_before", "layernorm_after"],
        factors: Some(["lambda_1", "lambda_2"]),
        ..OF_CLIP
    },
    reads: Reads::Pictures(Pictures {
        kernel: "embeddings.patch_embedding.weight",
        form: Kernel::FlatChannelsLast,
        has_bias: Some(false),
        class: Some("embeddings.class_embedding"),
        class_place: Some("embeddings.cls_position_embedding"),
        is_class_placed: false,
        positions: Some("embeddings.position_embedding.weight"),
        places: Count::Grid([GRID; 2], 32),
        resampled: Some(Resampling::Linear),
        turn: Some(Turn {
            first: 1,
            frequencies: GridFrequencies::ColumnsFirst,
            interleaved: true,
            ..Turn::PLAIN
        }),
        merged: Some(("spatial_merge_size", 2)),
        norm: Some("pre_layernorm"),
        patch: 20,
        processor: Processor::INKLING2,
        ..vit::PICTURES
    }),
    last_norm: None,
    ..vit::like(&["", "vision_tower.", "model.vision_tower."])
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let states_width = reader.value("intermediate_size").is_some();
    let like = VitLike {
        keys: Keys {
            d_mlp: if states_width {
                LIKE.keys.d_mlp
            } else {
                MlpKey::Ratio("mlp_ratio")
            },
            ..LIKE.keys
        },
        ..LIKE
    };
    vit_like::read(FAMILY.model_type, checkpoint, reader, like)
}
