//! SegFormer's encoder: overlapping patches in stages, keys of a coarser grid, and a convolution in every feed-forward layer.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, Pooled};

use super::Family;
use super::reading::processor::Processor;
use super::reading::pyramid_like::{self, PyramidLike};
use super::reading::task_rules::TaskRules;
use super::reading::vit_like::{Biases, Names, OF_VIT};

pub const FAMILY: Family = Family::own("segformer", "Segformer", read)
    .with_tasks(TASKS)
    .leaving_unread(&["decode_head.*"]);

/// A classifier of pictures reads the mean of the patches of the last stage.
pub(super) const TASKS: TaskRules = TaskRules {
    picture: |_| Pooled::Mean,
    ..TaskRules::USUAL
};

/// SegFormer under the given prefixes.
pub(super) const fn like(bases: &'static [&'static str]) -> PyramidLike {
    PyramidLike {
        bases,
        names: Names {
            layers: "encoder.block.{}",
            q: "attention.self.query",
            k: "attention.self.key",
            v: "attention.self.value",
            o: "attention.output.dense",
            norms: ["layer_norm_1", "layer_norm_2"],
            up: "mlp.dense1",
            down: "mlp.dense2",
            biases: Biases::All,
            ..OF_VIT
        },
        patches: "encoder.patch_embeddings.{}",
        kernel: "proj",
        stage_norm: "encoder.layer_norm.{}",
        reduction: ["attention.self.sr", "attention.self.layer_norm"],
        mixes: Some("mlp.dwconv.dwconv"),
        ratios: "sr_ratios",
        d_model: [32, 64, 160, 256],
        patch: [7, 3, 3, 3],
        mlp_ratios: [4; 4],
        eps: Some(1e-5),
        qkv_bias: None,
        pools: None,
        has_places: false,
        processor: Processor::SEGFORMER,
    }
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = like(&["segformer.", "model.segformer.", ""]);
    pyramid_like::read(FAMILY.model_type, checkpoint, reader, like)
}
