//! The text part of Hunyuan 4 that sees: as Hunyuan 4, but for how rotating pairs lie and the epsilons of the norms of latent vectors.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::{Family, hy_v4};

pub const FAMILY: Family =
    Family::own("hy_v4_vl_text", "HYV4VLText", read).leaving_unread(&["model.mtp_layers.*"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    hy_v4::read_as(FAMILY.model_type, checkpoint, reader, true)
}
