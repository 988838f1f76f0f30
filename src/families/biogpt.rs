//! BioGPT: OPT with scaled embeddings and gelu.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::opt::{OptLike, read_as};

pub const FAMILY: Family = Family::own("biogpt", "BioGpt", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    // The norms have a fixed epsilon, whatever this key says.
    reader.value("layer_norm_eps");
    let like = OptLike {
        family: FAMILY.model_type,
        bases: &["biogpt.", ""],
        d_mlp: "intermediate_size",
        activation: ("hidden_act", "gelu"),
        scales: Some("scale_embedding"),
        has_switches: false,
        final_norm: "layer_norm",
        heads: &["output_projection.weight"],
        ..OptLike::OPT
    };
    read_as(checkpoint, reader, like)
}
