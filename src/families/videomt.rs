//! VidEoMT: EoMT over the frames of a video, one after another. A picture is the first frame, whose queries are those that are stored.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::{Family, eomt};

pub const FAMILY: Family = Family::own("videomt", "Videomt", read).leaving_unread(eomt::UNREAD);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let spec = eomt::read_named(FAMILY.model_type, checkpoint, reader)?;
    reader.remark("a picture is read as the first frame of a video".to_owned());
    Ok(spec)
}
