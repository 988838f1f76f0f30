//! The encoder of Chameleon's VQGAN.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::Size;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::processor::Processor;
use super::reading::vqgan_like::{self, Attends, NAMES, VqganLike};

pub const FAMILY: Family =
    Family::own("chameleon_vqgan", "ChameleonVQVAE", read).leaving_unread(UNREAD);

/// The table of codes, the maps before and behind it, and what makes pictures of codes.
pub(super) const UNREAD: &[&str] = &[
    "quantize.*",
    "quant_conv.*",
    "post_quant_conv.*",
    "decoder.*",
];

/// The side of the pictures that the first level sees.
const SIDE: (&str, usize) = ("resolution", 512);

pub(super) const LIKE: VqganLike = VqganLike {
    names: NAMES,
    attends: Attends::Sides(["attn_resolutions", SIDE.0], &[], SIDE.1),
    n_heads: None,
    base_channels: 128,
    multiplier: &[1, 1, 2, 2, 4],
    n_blocks: 2,
    latent: 256,
    doubles: true,
    processor: Processor::SIGLIP,
    size: |reader, _| {
        let stated = reader.value(SIDE.0).and_then(serde_json::Value::as_u64);
        Ok(Size::Exactly(
            [stated.map_or(SIDE.1, |side| side as usize); 2],
        ))
    },
    moments: None,
    aside: &["embed_dim", "num_embeddings", "dropout", "beta"],
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const KIND: &str = "attn_type";
    let kind = reader.value(KIND).and_then(serde_json::Value::as_str);
    if let Some(kind) = kind.filter(|kind| *kind != "vanilla") {
        let problem = format!("expected vanilla: without it nothing attends, found {kind}");
        return Err(Error::config(reader.path(), KIND, problem));
    }
    vqgan_like::read(FAMILY.model_type, checkpoint, reader, LIKE)
}
