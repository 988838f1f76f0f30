//! The encoder of Conditional DETR, which is DETR's. Its decoder, whose keys hold content and places side by side, is not read.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::detr::{self, Like};

pub const FAMILY: Family =
    Family::own("conditional_detr", "ConditionalDetr", read).leaving_unread(&[
        "backbone.*",
        "bbox_attention.*",
        "bbox_predictor.*",
        "class_labels_classifier.*",
        "decoder.*",
        "mask_head.*",
        "query_position_embeddings.weight",
    ]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = Like {
        is_before: false,
        reads_decoder: false,
    };
    detr::read_like(FAMILY.model_type, checkpoint, reader, like)
}
