//! The encoder of Janus's VQGAN.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_prompt::Size;
use attnscope_spec::ModelSpec;

use super::reading::vqgan_like::{self, Attends, VqganLike};
use super::{Family, chameleon_vqgan};

pub const FAMILY: Family =
    Family::own("janus_vqgan", "JanusVQVAE", read).leaving_unread(chameleon_vqgan::UNREAD);

const LIKE: VqganLike = VqganLike {
    attends: Attends::Last,
    size: |reader, side| {
        const KEY: &str = "num_patches";
        let n = reader.size_or("n_places", KEY, 32, Origin::Default(KEY.to_owned()))?;
        Ok(Size::Exactly([n.saturating_mul(side); 2]))
    },
    aside: &[
        "embed_dim",
        "num_embeddings",
        "dropout",
        "beta",
        "out_channels",
        "projection_dim",
        "num_hidden_layers",
        "hidden_act",
        "image_token_embed_dim",
        "initializer_range",
    ],
    ..chameleon_vqgan::LIKE
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    vqgan_like::read(FAMILY.model_type, checkpoint, reader, LIKE)
}
