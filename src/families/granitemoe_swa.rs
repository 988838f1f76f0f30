//! Granite with windows, sinks and a rotary base for each layer, and experts in every layer.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::llama_like::ExpertsKeys;
use super::{Family, granite_swa, granitemoe, granitemoeshared};

pub const FAMILY: Family = Family::own("granitemoe_swa", "GraniteMoeSWA", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut names = checkpoint.tensors.iter().map(|(name, _)| name);
    let is_older = names.any(|name| name.ends_with("router.layer.weight"));
    let experts = ExpertsKeys {
        router: if is_older { "router.layer" } else { "router" },
        ..granitemoe::EXPERTS
    };
    let like = (&granite_swa::recipe(), experts);
    let mut spec = granitemoeshared::read_as(FAMILY.model_type, checkpoint, reader, like)?;
    granite_swa::set_bases(reader, &mut spec)?;
    Ok(spec)
}
