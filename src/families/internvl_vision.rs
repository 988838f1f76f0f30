//! InternVL's tower of pictures: BEiT's blocks with learned positions, whose factors are always stored.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, Resampling};

use super::reading::processor::Processor;
use super::reading::vit_like::{
    self, Biases, Keys, Names, OF_MOST, OF_VIT, Pictures, Reads, Sizes, VitLike,
};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("internvl_vision", "InternVLVisionModel", read);

const LIKE: VitLike = VitLike {
    sizes: Sizes {
        d_model: 1024,
        d_mlp: 4096,
        n_layers: 24,
        n_heads: 16,
    },
    keys: Keys {
        aside: &["attention_bias", "layer_scale_init_value", "use_mask_token"],
        off: &["use_qk_norm"],
        words: &[("norm_type", "layer_norm")],
        ..OF_MOST
    },
    eps: 1e-6,
    names: Names {
        q: "attention.q_proj",
        k: "attention.k_proj",
        v: "attention.v_proj",
        o: "attention.projection_layer",
        up: "mlp.fc1",
        down: "mlp.fc2",
        biases: Biases::Stored,
        factors: Some(["lambda_1", "lambda_2"]),
        ..OF_VIT
    },
    reads: Reads::Pictures(PICTURES),
    ..vit::like(&["vision_tower.", ""])
};

const PICTURES: Pictures = Pictures {
    resampled: Some(Resampling::Nearest),
    size: 448,
    patch: 14,
    processor: Processor::CLIP,
    ..vit::PICTURES
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let has_positions =
        reader.flag_or("stores_positions", "use_absolute_position_embeddings", true)?;
    // The norm follows the mean of the patches, which some models take.
    let takes_mean = reader.flag_or("mean_of_patches", "use_mean_pooling", true)?;
    let like = VitLike {
        reads: Reads::Pictures(Pictures {
            positions: PICTURES.positions.filter(|_| has_positions),
            ..PICTURES
        }),
        last_norm: Some("layernorm").filter(|_| !takes_mean),
        ..LIKE
    };
    vit_like::read(FAMILY.model_type, checkpoint, reader, like)
}
