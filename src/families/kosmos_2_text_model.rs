//! The text part of Kosmos-2: XGLM with norms inside both branches (Magneto); positions count tokens other than padding.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, Sines};

use super::Family;
use super::opt::{OptLike, read_as};
use super::reading::must_be_off;

pub const FAMILY: Family = Family::own("kosmos_2_text_model", "Kosmos2Text", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    must_be_off(
        reader,
        "add_cross_attention",
        "this model cannot be run without its encoder",
    )?;
    read_as(checkpoint, reader, like(FAMILY.model_type))
}

/// How the text parts of Kosmos-2 and Kosmos-2.5 differ from OPT.
pub(super) const fn like(family: &'static str) -> OptLike {
    OptLike {
        family,
        bases: &["model.", "text_model.model.", ""],
        n_layers: "layers",
        n_heads: "attention_heads",
        d_model: "embed_dim",
        activation: ("activation_function", "gelu"),
        scales: Some("scale_embedding"),
        has_switches: false,
        sines: Some(Sines::HalvesToEnd),
        final_norm: "layer_norm",
        heads: &["lm_head.weight", "text_model.lm_head.weight"],
        ffn: "ffn.",
        counts_not_pad: true,
        inner_norms: [Some("self_attn.inner_attn_ln"), Some("ffn.ffn_layernorm")],
        eps_key: Some("layer_norm_eps"),
        ..OptLike::OPT
    }
}
