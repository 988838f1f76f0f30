//! PVT's second version: overlapping patches without positions, a convolution in every feed-forward layer, and keys that may be means.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::pyramid_like::{self, PyramidLike};
use super::reading::vit_like::{Biases, Names};
use super::{Family, segformer};

pub const FAMILY: Family = Family::own("pvt_v2", "PvtV2", read).with_tasks(segformer::TASKS);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let of_segformer = segformer::like(&["pvt_v2.", ""]);
    let like = PyramidLike {
        names: Names {
            layers: "encoder.layers.{}.blocks",
            q: "attention.query",
            k: "attention.key",
            v: "attention.value",
            o: "attention.proj",
            biases: Biases::Switch("qkv_bias"),
            ..of_segformer.names
        },
        patches: "encoder.layers.{}.patch_embedding",
        stage_norm: "encoder.layers.{}.layer_norm",
        reduction: ["attention.spatial_reduction", "attention.layer_norm"],
        mlp_ratios: [8, 8, 4, 4],
        eps: None,
        qkv_bias: Some("qkv_bias"),
        pools: Some("linear_attention"),
        processor: Processor::PVT,
        ..of_segformer
    };
    pyramid_like::read(FAMILY.model_type, checkpoint, reader, like)
}
