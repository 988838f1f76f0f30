//! The transformer over patches of the Byte Latent Transformer, between the encoder and the decoder of bytes, which are not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::blt_local_encoder::recipe;
use super::reading::{given_rows, linear};

pub const FAMILY: Family = Family::own("blt_global_transformer", "BltGlobalTransformer", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    /// The width of patches, where a map brings it to that of the residual.
    const WIDTH: &str = "encoder_cross_output_size";
    let both = (checkpoint, &mut *reader);
    let made_by = ("the encoder of bytes", false);
    let mut spec = given_rows::read_layers(FAMILY.model_type, both, &recipe(), made_by)?;
    if reader.is_stated(WIDTH) {
        let width = reader.size_or("d_patch", WIDTH, spec.d_model, Origin::Family)?;
        let map = linear("token_embedding_projection", width, spec.d_model, false);
        spec.stacks[0].embed = given_rows::mapped(map);
    }
    Ok(spec)
}
