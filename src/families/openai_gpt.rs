//! The first GPT: GPT-2 with norms after the branches, and none after the last block.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::NormKind;
use attnscope_spec::ModelSpec;

use super::Family;
use super::gpt2::{Fused, Store, read_stored};

pub const FAMILY: Family = Family::own("openai-gpt", "OpenAIGPT", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let store = Store {
        is_input_major: true,
        activation: "gelu_new",
        fused: Fused::AllOfEach,
        may_lack_biases: false,
        norms_after: true,
        norms: NormKind::LayerNorm,
    };
    read_stored(checkpoint, reader, FAMILY.model_type, store)
}
