//! Kosmos 2.5's tower of pictures: Pix2Struct's, with scaled scores.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::{Family, pix2struct_vision_model};

pub const FAMILY: Family = Family::own("kosmos_2_5_vision_model", "Kosmos2_5VisionModel", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let widths = ("intermediate_size", "head_dim");
    let lines = ("max_num_patches", Processor::KOSMOS);
    pix2struct_vision_model::read_as(FAMILY.model_type, checkpoint, reader, (widths, lines))
}
