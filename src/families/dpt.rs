//! DPT: ViT, whose positions are resampled linearly; the head that makes depths of its layers is not read.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ModelSpec, Resampling};

use super::reading::processor::Processor;
use super::reading::vit_like::{self, Keys, OF_MOST, Pictures, Reads, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("dpt", "DPT", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const OTHER: &str = "backbone_config";
    if let Some(found) = reader.value(OTHER).filter(|found| !found.is_null()) {
        let problem = format!("expected null: ViT is read, found {found}");
        return Err(Error::config(reader.path(), OTHER, problem));
    }
    let like = VitLike {
        keys: Keys {
            off: &["is_hybrid"],
            aside: HEAD,
            ..OF_MOST
        },
        reads: Reads::Pictures(Pictures {
            resampled: Some(Resampling::Linear),
            size: 384,
            processor: Processor::DPT,
            ..vit::PICTURES
        }),
        ..vit::like(&["dpt.", ""])
    };
    vit_like::read(FAMILY.model_type, checkpoint, reader, like)
}

/// Keys of what follows the layers.
const HEAD: &[&str] = &[
    "backbone_out_indices",
    "readout_type",
    "reassemble_factors",
    "neck_hidden_sizes",
    "fusion_hidden_size",
    "head_in_index",
    "use_batch_norm_in_fusion_residual",
    "use_bias_in_fusion_residual",
    "add_projection",
    "use_auxiliary_head",
    "auxiliary_loss_weight",
    "semantic_loss_ignore_index",
    "backbone_featmap_shape",
    "neck_ignore_stages",
    "pooler_output_size",
    "pooler_act",
];
