//! PVT: patches in stages with stored positions, keys of a coarser grid, and a token before the patches of the last stage.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::pyramid_like::{self, PyramidLike};
use super::reading::vit_like::{Biases, Names};
use super::{Family, segformer};

pub const FAMILY: Family = Family::own("pvt", "Pvt", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let of_segformer = segformer::like(&["pvt.", ""]);
    let like = PyramidLike {
        names: Names {
            biases: Biases::Switch("qkv_bias"),
            ..of_segformer.names
        },
        kernel: "projection",
        stage_norm: "encoder.layer_norm",
        reduction: [
            "attention.self.sequence_reduction",
            "attention.self.layer_norm",
        ],
        mixes: None,
        ratios: "sequence_reduction_ratios",
        d_model: [64, 128, 320, 512],
        patch: [4, 2, 2, 2],
        mlp_ratios: [8, 8, 4, 4],
        eps: None,
        qkv_bias: Some("qkv_bias"),
        has_places: true,
        processor: Processor::PVT,
        ..of_segformer
    };
    pyramid_like::read(FAMILY.model_type, checkpoint, reader, like)
}
