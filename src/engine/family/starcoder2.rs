//! StarCoder 2: Llama with layer norms, biases, an ungated feed-forward layer, and a window where one is stated.

use super::Family;
use super::reading::llama_like::{self, BiasRule, MlpStore, NormStyle, RMS, Recipe};
use super::reading::windows::WindowRule;
use crate::checkpoint::{Checkpoint, Reader};
use crate::error::Result;
use crate::model::ModelSpec;
use crate::ops::NormKind;

pub const FAMILY: Family = Family {
    model_type: "starcoder2",
    architecture: "Starcoder2",
    read,
};

const BIAS: BiasRule = BiasRule::Key("use_bias", true);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        norm: NormStyle {
            kind: NormKind::LayerNorm,
            eps_key: Some("norm_epsilon"),
            eps: 1e-5,
            has_bias: true,
            ..RMS
        },
        qkv_bias: BIAS,
        o_bias: BIAS,
        mlp_bias: BIAS,
        mlp: MlpStore::Plain {
            up: "c_fc",
            down: "c_proj",
        },
        activation: ("hidden_act", "gelu_pytorch_tanh"),
        is_tied: true,
        window: WindowRule::Always(None),
        ..Recipe::llama(FAMILY.model_type)
    };
    llama_like::read(checkpoint, reader, &recipe)
}
