//! Granite 4: the state space of Mamba-2 in most layers, attention in the others, experts beside a layer that every token uses.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{FeedForward, ModelSpec, TokenMixer};

use super::granitemoeshared::{beside, shared_layer};
use super::reading::activation;
use super::reading::hybrid::{attending, note_attending, replace};
use super::reading::llama_like::{self, Recipe, RopeLayers, Sizes};
use super::reading::state_space::{NormRule, StateSpaceSizes};
use super::versions::norm_groups;
use super::{Family, granite, granitemoe};

pub const FAMILY: Family = Family::own("granitemoehybrid", "GraniteMoeHybrid", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let recipe = Recipe {
        rope_layers: RopeLayers::IfNamed("position_embedding_type"),
        ..granite::recipe()
    };
    let sizes = Sizes::read(reader, None)?;
    let d_model = sizes.d_model;
    let n_experts = reader.count_or("n_experts", "num_local_experts", 8)?;
    reader.forget(&["n_experts"]);
    let experts = if n_experts > 0 {
        Some(granitemoe::EXPERTS.read(reader, tensors, sizes.n_layers)?)
    } else {
        None
    };
    let default = Origin::Default("shared_intermediate_size".to_owned());
    let key = "shared_intermediate_size";
    let d_shared = reader.size_or("d_shared_expert", key, 1024, default)?;
    let act = activation(reader, recipe.activation.0, recipe.activation.1)?;
    let mlp = |_: usize, at: &str| {
        let shared = shared_layer(&format!("{at}.shared_mlp"), d_model, d_shared, act);
        let Some(experts) = &experts else {
            return FeedForward::Dense(Box::new(shared));
        };
        beside(experts.of_layer(tensors, at, d_model, (act, false)), shared)
    };
    let family = FAMILY.model_type;
    let mut spec = llama_like::read_with(family, checkpoint, reader, &recipe, sizes, &mlp)?;
    let attends = attending_layers(reader, spec.main_stack().n_layers())?;
    let mut mixer = StateSpaceSizes::read(reader, d_model, None, act)?;
    let eps = reader.value("rms_norm_eps").and_then(|eps| eps.as_f64());
    let n_groups = norm_groups(reader, mixer.n_groups);
    mixer.norm = Some(NormRule::behind_gate(
        n_groups,
        eps.unwrap_or(recipe.norm.eps),
    ));
    replace(&mut spec, &attends, ".input_layernorm.weight", |at| {
        TokenMixer::StateSpace(Box::new(mixer.at(&format!("{at}.mamba"))))
    });
    Ok(spec)
}

/// Which layers attend: those in a list; none without a list.
fn attending_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    const TYPES: [&str; 2] = ["layer_types", "layers_block_type"];
    let key = TYPES
        .into_iter()
        .find(|key| reader.value(key).is_some())
        .unwrap_or(TYPES[0]);
    let (attends, origin) = match reader.words_by_layer(key, n_layers)? {
        Some(words) => (attending(reader, key, &words)?, Origin::Key(key.to_owned())),
        None => (vec![false; n_layers], Origin::Default(TYPES[0].to_owned())),
    };
    note_attending(reader, &attends, "state space (Mamba-2)", origin);
    Ok(attends)
}
