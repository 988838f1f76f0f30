//! Aria: Llama whose feed-forward layers are experts, stored input-major, beside some that every token uses.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ModelSpec, RouterScores};

use super::Family;
use super::reading::llama_like::{
    self, BiasRule, ExpertStore, ExpertsKeys, Recipe, SharedKeys, SharedWidth,
};

pub const FAMILY: Family = Family::own("aria_text", "AriaText", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const ACTIVATION: &str = "hidden_act";
    if let Some(found) = reader.value(ACTIVATION).filter(|name| *name != "silu") {
        let problem = format!("expected \"silu\", which its experts always use, found {found}");
        return Err(Error::config(reader.path(), ACTIVATION, problem));
    }
    let mut names = checkpoint.tensors.iter().map(|(name, _)| name);
    let is_old = names.any(|name| name.ends_with("mlp.experts.fc1.weight"));
    let store = if is_old {
        ExpertStore::SlabsByInput {
            gate_up: "experts.fc1.weight",
            down: "experts.fc2.weight",
        }
    } else {
        ExpertStore::SlabsByInput {
            gate_up: "experts.gate_up_proj",
            down: "experts.down_proj",
        }
    };
    let recipe = Recipe {
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        experts: Some(ExpertsKeys {
            store,
            router: "router",
            n_experts: ["moe_num_experts", "num_local_experts"],
            d_expert: "intermediate_size",
            n_used: "moe_topk",
            scores: RouterScores::SoftmaxOfChosen,
            normalises: BiasRule::Never,
            shared: Some(SharedKeys {
                name: "shared_experts",
                width: SharedWidth::Times("moe_num_shared_experts", 2),
                gate: None,
            }),
            ..ExpertsKeys::PLAIN
        }),
        ..Recipe::llama()
    };
    llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)
}
