//! LongT5: T5 1.1 whose encoder sees a window to both sides. The other form of its encoder is refused.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::Family;
use super::t5::{self, T5Like};

pub const FAMILY: Family = Family::own("longt5", "LongT5", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const KIND: &str = "encoder_attention_type";
    let kind = reader.word_or("encoder_attention", KIND, "local")?;
    if kind != "local" {
        let problem = format!(
            "expected \"local\", found {kind:?}: keys that sum up parts of a text are not read"
        );
        return Err(Error::config(reader.path(), KIND, problem));
    }
    reader.value("global_block_size");
    let like = T5Like {
        family: FAMILY.model_type,
        encoder_attention: "LocalSelfAttention",
        radius: Some(("local_radius", 127)),
        ..T5Like::PLAIN
    };
    t5::read_as(checkpoint, reader, like)
}
