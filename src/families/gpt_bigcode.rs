//! GPT-BigCode (StarCoder): GPT-2 with one key and value head for all queries, stored output-major.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::NormKind;
use attnscope_spec::ModelSpec;

use super::Family;
use super::gpt2::{Fused, Store, read_stored};
use super::layouts::Keys;

pub const FAMILY: Family = Family::own("gpt_bigcode", "GPTBigCode", read).with_keys(Keys::Gpt2);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let shares_key = reader.flag_or("multi_query", "multi_query", true)?;
    let store = Store {
        is_input_major: false,
        activation: "gelu_pytorch_tanh",
        fused: if shares_key {
            Fused::OneKey
        } else {
            Fused::PerHead
        },
        may_lack_biases: false,
        norms_after: false,
        norms: NormKind::LayerNorm,
    };
    read_stored(checkpoint, reader, FAMILY.model_type, store)
}
