//! GLPN's encoder of pictures whose depth is told: that of SegFormer, for pictures of any size.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::pyramid_like::{self, PyramidLike};
use super::{Family, segformer};

pub const FAMILY: Family =
    Family::own("glpn", "GLPN", read).leaving_unread(&["decoder.*", "head.*"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = PyramidLike {
        processor: Processor::GLPN,
        ..segformer::like(&["glpn.", ""])
    };
    pyramid_like::read(FAMILY.model_type, checkpoint, reader, like)
}
