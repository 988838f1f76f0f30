//! UltraBERT: EuroBERT with two-sided windows in most layers, which rotate otherwise, and a head of two layers.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_spec::{ModelSpec, TransformSpec};

use super::Family;
use super::reading::linear;
use super::reading::llama_like::{self, BiasRule, LocalRope, Recipe, TwoSided};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::own("ultrabert", "Ultrabert", read);

/// What the classes call the module of the head's own layers.
const HEADS: [&str; 2] = ["head", "projection_head"];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        theta: 2_560_000.0,
        local_rope: Some(LocalRope {
            theta_key: None,
            theta: 10_000.0,
        }),
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        window: WindowRule::AllBut {
            every: 3,
            every_key: None,
            width: 128,
        },
        is_causal: false,
        two_sided: TwoSided::WholeEitherWay,
        is_tied: false,
        forbidden_keys: &[(
            "attention_windows",
            "windows under this key are not read: layer_types and sliding_window say the same",
        )],
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let stored = |name: &str| {
        let first = format!("{name}.linear1.weight");
        checkpoint.tensors.contains(&first)
    };
    let d_narrow = reader.size_or(
        "d_head_layer",
        "prediction_head_size",
        768,
        attnscope_checkpoint::Origin::Default("prediction_head_size".to_owned()),
    )?;
    let Some(at) = HEADS.into_iter().find(|name| stored(name)) else {
        spec.head = None;
        return Ok(spec);
    };
    let d_model = spec.d_model;
    let layer = |name: &str, n_in, n_out| TransformSpec {
        dense: linear(&format!("{at}.{name}"), n_in, n_out, false),
        activation: Some(Activation::GeluTanh),
        norm: None,
        then: None,
    };
    let own = format!("{at}.decoder.weight");
    if let Some(head) = &mut spec.head {
        let tensors = &checkpoint.tensors;
        if tensors.contains(&own) {
            head.unembed.weight = own;
        } else if !tensors.contains(&head.unembed.weight) {
            head.unembed.weight = spec.stacks[0].embed.tokens.tensor.clone();
        }
        head.transform = Some(TransformSpec {
            then: Some(Box::new(layer("linear2", d_narrow, d_model))),
            ..layer("linear1", d_model, d_narrow)
        });
    }
    Ok(spec)
}
