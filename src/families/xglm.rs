//! XGLM: BioGPT with sinusoidal positions, in thirty languages.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, Sines};

use super::Family;
use super::opt::{OptLike, read_as};
use super::reading::must_be_off;

pub const FAMILY: Family = Family::own("xglm", "XGLM", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    must_be_off(
        reader,
        "add_cross_attention",
        "this model cannot be run without its encoder",
    )?;
    let like = OptLike {
        family: FAMILY.model_type,
        bases: &["model.", ""],
        n_layers: "num_layers",
        n_heads: "attention_heads",
        d_model: "d_model",
        activation: ("activation_function", "gelu"),
        scales: Some("scale_embedding"),
        has_switches: false,
        sines: Some(Sines::HalvesToEnd),
        final_norm: "layer_norm",
        ..OptLike::OPT
    };
    read_as(checkpoint, reader, like)
}
