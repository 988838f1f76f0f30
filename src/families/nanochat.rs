//! nanochat: Llama without norm gains. It also normalises embeddings, and queries and keys after a backward rotation.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::RopeDirection;
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::llama_like::{self, BiasRule, MlpStore, NormStyle, QkNorm, RMS, Recipe};

pub const FAMILY: Family = Family::own("nanochat", "NanoChat", read);

fn recipe() -> Recipe {
    Recipe {
        norm: NormStyle {
            has_gain: false,
            ..RMS
        },
        qk_norm: QkNorm::BareAfterRope,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        activation: ("hidden_act", "relu2"),
        mlp: MlpStore::Plain {
            up: "fc1",
            down: "fc2",
        },
        logit_cap: Some(("final_logit_softcapping", 15.0)),
        ..Recipe::llama()
    }
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = llama_like::read("nanochat", checkpoint, reader, &recipe())?;
    reader.note("rope_direction", RopeDirection::Backward, Origin::Family);
    let stack = &mut spec.stacks[0];
    stack.embed.norm.clone_from(&stack.final_norm);
    let attentions = stack
        .blocks_mut()
        .iter_mut()
        .filter_map(|block| block.own_mut());
    for rope in attentions.filter_map(|own| own.attention.rope.as_mut()) {
        rope.direction = RopeDirection::Backward;
    }
    Ok(spec)
}
