//! nanoGPT: GPT-2's parts stored output-major, exact gelu, and biases only where the model was trained with them.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::NormKind;
use attnscope_spec::ModelSpec;

use super::Family;
use super::gpt2::{Fused, Store, read_stored};
use super::layouts::Keys;

pub const FAMILY: Family = Family::own("nanogpt", "NanoGPT", read).with_keys(Keys::Gpt2);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let store = Store {
        is_input_major: false,
        activation: "gelu",
        fused: Fused::AllOfEach,
        may_lack_biases: true,
        norms_after: false,
        norms: NormKind::LayerNorm,
    };
    read_stored(checkpoint, reader, FAMILY.model_type, store)
}
