//! The encoder of bytes of the Byte Latent Transformer. What gathers its bytes into patches reads them, and changes none.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::llama_like::{self, NormStyle, RMS, Recipe};

/// What gathers bytes into patches.
pub const FAMILY: Family = Family::own("blt_local_encoder", "BltLocalEncoder", read)
    .leaving_unread(&["cross_attn_layers.*", "patch_embedding_projection.weight"]);

/// A Llama with interleaved rotation, as all parts of the model but the patcher are.
pub(super) fn recipe() -> Recipe {
    Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        interleaved: true,
        theta: 500_000.0,
        base: Some(""),
        ..Recipe::llama()
    }
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe())?;
    spec.head = None;
    spec.is_causal_lm = false;
    spec.stacks[0].final_norm = None;
    reader.forget(&["unembedding", "tied_unembedding"]);
    for key in [
        "cross_attn_all_layers",
        "cross_attn_k",
        "hidden_size_global",
    ] {
        reader.value(key);
    }
    let said = "run alone: the whole model adds rows of groups of bytes to those of bytes, and looks back over a window";
    reader.remark(said.to_owned());
    Ok(spec)
}
