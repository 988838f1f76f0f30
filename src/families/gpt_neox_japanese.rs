//! GPT-NeoX Japanese: GPT-NeoX with whole heads that rotate, branches one after the other, and one bias, in the last layer.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::gpt_neox::{NeoxLike, read_as};

pub const FAMILY: Family = Family::own("gpt_neox_japanese", "GPTNeoXJapanese", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = NeoxLike {
        family: FAMILY.model_type,
        bases: &["gpt_neox_japanese.", ""],
        share: 1.0,
        mlp_times: Some(("intermediate_multiple_size", 4)),
        has_switches: false,
        last_bias: Some("attention.dense_bias"),
    };
    read_as(checkpoint, reader, like)
}
