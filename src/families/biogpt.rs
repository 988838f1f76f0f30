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
        n_layers: "num_hidden_layers",
        n_heads: "num_attention_heads",
        d_model: "hidden_size",
        d_mlp: "intermediate_size",
        activation: ("hidden_act", "gelu"),
        scales: Some("scale_embedding"),
        has_switches: false,
        sines: None,
        final_norm: "layer_norm",
        head: "output_projection.weight",
    };
    read_as(checkpoint, reader, like)
}
