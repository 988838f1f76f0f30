//! Canary's decoder: Llama's names, layer norms, sinusoidal positions; it is run on text, without attention to an encoder.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::NormKind;
use attnscope_spec::{ModelSpec, PositionTable, Sines};

use super::Family;
use super::reading::layer_norm;
use super::reading::llama_like::{
    self, BiasRule, MlpStore, NormPlaces, NormStyle, RMS, Recipe, RopeLayers,
};

pub const FAMILY: Family = Family::own("canary_decoder", "CanaryDecoder", read)
    .leaving_unread(&["encoder_attn.*", "post_attention_layernorm.*"]);

/// Fixed; no configuration states it.
const EPS: f64 = 1e-5;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let bias = BiasRule::Key("attention_bias", true);
    let recipe = Recipe {
        norm: NormStyle {
            kind: NormKind::LayerNorm,
            eps_key: None,
            eps: EPS,
            has_bias: true,
            ..RMS
        },
        norm_places: NormPlaces::BeforeNamed(["input_layernorm", "final_layernorm"]),
        rope_layers: RopeLayers::Never,
        qkv_bias: bias,
        o_bias: bias,
        mlp_bias: BiasRule::Always,
        activation: ("hidden_act", "relu"),
        mlp: MlpStore::Plain {
            up: "fc1",
            down: "fc2",
        },
        is_tied: true,
        d_head: Some(128),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    reader.note("positions", "sines and cosines", Origin::Family);
    let width = spec.d_model;
    let embed = &mut spec.stacks[0].embed;
    let base = embed.tokens.tensor.trim_end_matches("embed_tokens.weight");
    // Sines are divided by √d_model before they are added. The norm behind takes a common factor away, so that embeddings and epsilon grow
    // instead.
    embed.scale = (width as f64).sqrt() as f32;
    embed.positions = Some(PositionTable::Sinusoid(Sines::Halves));
    let name = format!("{base}embedding_layernorm");
    let eps = EPS * width as f64;
    embed.norm = Some(layer_norm(&checkpoint.tensors, &name, width, eps));
    spec.head = None;
    spec.is_causal_lm = false;
    Ok(spec)
}
