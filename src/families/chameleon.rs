//! Chameleon: Llama whose queries and keys have layer norms with a gain and a bias of each head; pictures are tokens too.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::llama_like::{self, BiasRule, NormStyle, QkNorm, RMS, Recipe};

pub const FAMILY: Family = Family::own("chameleon", "Chameleon", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        qk_norm: QkNorm::CentredByHead,
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    // The sizes of the norms' tensors say how many shards trained it.
    reader.value("model_parallel_size");
    if reader.flag_or("norms_outputs", "swin_norm", false)? {
        for block in spec.stacks[0].blocks_mut() {
            block.attn_out = block.attn_pre.take();
            block.mlp_out = block.mlp_pre.take();
        }
    }
    if names_pictures(reader) && spec.head.is_some() {
        reader.remark(
            "logits of the tokens of pictures are shown as they are: transformers sets them to the lowest number".to_owned(),
        );
    }
    Ok(spec)
}

/// Whether the vocabulary has tokens that stand for parts of pictures.
fn names_pictures(reader: &mut Reader<'_>) -> bool {
    let names = reader
        .value("vocabulary_map")
        .and_then(|map| map.as_object());
    names.is_some_and(|names| names.keys().any(|name| name.starts_with("IMGIMG")))
}
