//! EoMT on DINOv3: its last layers see learned queries of segments before all other tokens.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::vit_like::{Keys, Names, Pictures, Reads, VitLike};
use super::{Family, dinov3_vit, eomt};

pub const FAMILY: Family =
    Family::own("eomt_dinov3", "EomtDinov3", read).leaving_unread(eomt::UNREAD);

const LIKE: VitLike = VitLike {
    bases: &[""],
    sizes: eomt::LARGE,
    keys: Keys {
        aside: eomt::ASIDE,
        ..dinov3_vit::LIKE.keys
    },
    eps: 1e-6,
    names: Names {
        layers: "layers",
        ..dinov3_vit::NAMES
    },
    reads: Reads::Pictures(Pictures {
        registers: Some(("embeddings.register_tokens", "num_register_tokens", 4)),
        size: 640,
        ..dinov3_vit::PICTURES
    }),
    last_norm: Some("layernorm"),
    ..dinov3_vit::LIKE
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    eomt::check_masks(checkpoint, reader)?;
    let mut spec = dinov3_vit::read_like(FAMILY.model_type, checkpoint, reader, LIKE)?;
    eomt::join_queries(reader, &mut spec)?;
    Ok(spec)
}
