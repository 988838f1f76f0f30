//! Granite Speech 5 with a head for CTC: its encoder. The head writes a token or none for each of the fewer rows that the encoder leaves.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::{Family, granite_speech5_encoder};

pub const FAMILY: Family = Family::own("granite_speech5_ctc", "GraniteSpeech5CTC", read)
    .leaving_unread(&["num_batches_tracked", "ctc_head.*"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    for key in [
        "vocab_size",
        "ctc_loss_reduction",
        "ctc_zero_infinity",
        "tie_word_embeddings",
    ] {
        reader.value(key);
    }
    reader.remark(
        "the encoder is read: its head has outputs for fewer rows than are given, and is left out"
            .to_owned(),
    );
    let kind = FAMILY.model_type;
    granite_speech5_encoder::read_part(kind, checkpoint, reader, "encoder_config")
}
