//! ESM C: an encoder of proteins of Llama's shape, whose layers add less the fewer there are.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::llama_like::{self, BiasRule, NormStyle, QkNorm, RMS, Recipe};
use super::reading::masked_head::{MaskedHead, masked_head, note_head};
use super::reading::prefix;

pub const FAMILY: Family = Family::own("esmc", "Esmc", read);

/// Fixed; no configuration states it.
const EPS: f64 = 1e-5;

/// The number of layers at which branches are added as they are.
const LAYERS_AT_ONE: f64 = 36.0;

const HEAD: MaskedHead = MaskedHead {
    dense: Some("lm_head.dense"),
    norm: "lm_head.layer_norm",
    decoder: "lm_head.decoder",
    bias: "lm_head.bias",
    activation: Some(Activation::Gelu),
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let recipe = Recipe {
        norm: NormStyle {
            kind: NormKind::LayerNorm,
            eps_key: None,
            eps: EPS,
            has_bias: true,
            ..RMS
        },
        qk_norm: QkNorm::Whole,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        is_causal: false,
        base: Some(prefix(tensors, &["esmc.", ""], "embed_tokens.weight")),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    reader.forget(&["unembedding", "tied_unembedding"]);
    let stack = &mut spec.stacks[0];
    let scale = (LAYERS_AT_ONE / stack.n_layers() as f64).sqrt();
    let origin = Origin::Derived("num_hidden_layers".to_owned());
    reader.note("branch_scale", scale, origin);
    for block in stack.blocks_mut() {
        block.branch_scales = [scale as f32; 2];
    }
    if let Some(norm) = &mut stack.final_norm {
        norm.bias = None;
    }
    let tokens = stack.embed.tokens.clone();
    let widths = (spec.d_model, tokens.width);
    let activation = Activation::Gelu;
    spec.head = masked_head(
        reader,
        tensors,
        ("", HEAD),
        &tokens,
        widths,
        activation,
        EPS,
    );
    note_head(reader, spec.head.is_some());
    Ok(spec)
}
