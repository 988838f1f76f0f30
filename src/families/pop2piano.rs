//! Pop2Piano: T5 1.1 whose gate has a relu; sounds stand where the embeddings of tokens would.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::t5::{self, T5Like};

pub const FAMILY: Family =
    Family::own("pop2piano", "Pop2Piano", read).leaving_unread(&["mel_conditioner.*"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = T5Like {
        family: FAMILY.model_type,
        feed_forward: ("feed_forward_proj", "gated-gelu"),
        activation: Some(("dense_act_fn", "relu")),
        ..T5Like::PLAIN
    };
    t5::read_as(checkpoint, reader, like)
}
