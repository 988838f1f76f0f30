//! Bamba: the state space of Mamba-2 in most layers, attention in the others, a gated feed-forward layer in all.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, TokenMixer};

use super::Family;
use super::reading::activation_named;
use super::reading::hybrid::{note_attending, replace};
use super::reading::llama_like::{self, BiasRule, BlockNames, NormPlaces, NormStyle, RMS, Recipe};
use super::reading::state_space::{NormRule, StateSpaceSizes};
use super::versions::norm_groups;

pub const FAMILY: Family = Family::own("bamba", "Bamba", read);

const EPS: f64 = 1e-5;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        rotary_share: Some(0.5),
        norm: NormStyle { eps: EPS, ..RMS },
        norm_places: NormPlaces::BeforeNamed(["input_layernorm", "pre_ff_layernorm"]),
        names: BlockNames {
            final_norm: "final_layernorm",
            mlp: "feed_forward",
            ..BlockNames::USUAL
        },
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    const LIST: &str = "attn_layer_indices";
    let listed = reader.numbers(LIST)?.unwrap_or_default();
    let layers = 0..spec.main_stack().n_layers() as u64;
    let attends: Vec<bool> = layers.map(|idx| listed.contains(&idx)).collect();
    let origin = Origin::Key(LIST.to_owned());
    note_attending(reader, &attends, "state space (Mamba-2)", origin);
    let name = reader.value("hidden_act").and_then(|name| name.as_str());
    let activation = activation_named(reader, "hidden_act", name.unwrap_or("silu"))?;
    let mut mixer = StateSpaceSizes::read(reader, spec.d_model, None, activation)?;
    let eps = reader.value("rms_norm_eps").and_then(|eps| eps.as_f64());
    let n_groups = norm_groups(reader, mixer.n_groups);
    mixer.norm = Some(NormRule::behind_gate(n_groups, eps.unwrap_or(EPS)));
    replace(&mut spec, &attends, ".input_layernorm.weight", |at| {
        TokenMixer::StateSpace(Box::new(mixer.at(&format!("{at}.mamba"))))
    });
    Ok(spec)
}
