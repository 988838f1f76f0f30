//! ViT MAE: ViT, read without the masks of its training.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::vit_like;
use super::{Family, vit};

pub const FAMILY: Family = Family::own("vit_mae", "ViTMAE", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = vit::like(&["vit.", ""]);
    let spec = vit_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let share = reader.number_or("mask_ratio", "mask_ratio", 0.75)?;
    if share > 0.0 {
        reader.remark(format!(
            "all patches of a picture are read: transformers leaves out {share} of them at random, as in training"
        ));
    }
    Ok(spec)
}
