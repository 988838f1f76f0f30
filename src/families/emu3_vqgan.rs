//! The encoder of Emu3's VQGAN, which reads a picture as a video that stands still.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_prompt::Size;
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::vqgan_like::{self, Attends, Names, VqganLike};
use super::{Family, chameleon_vqgan};

pub const FAMILY: Family =
    Family::own("emu3_vqgan", "Emu3VQVAE", read).leaving_unread(chameleon_vqgan::UNREAD);

const LIKE: VqganLike = VqganLike {
    names: Names {
        levels: "down_block.down",
        block: "block.{}",
        attention: "attn.{}",
        norm: "attn_norms.{}",
        middle: "middle_block",
        middle_norm: "attn_norm",
        maps: ["q_proj", "k_proj", "v_proj", "out_proj"],
    },
    attends: Attends::Levels("attn_resolutions", &[3]),
    n_heads: Some("num_attention_heads"),
    base_channels: 256,
    multiplier: &[1, 2, 2, 4],
    latent: 4,
    processor: Processor::EMU3,
    size: |_, of| {
        Ok(Size::Multiple {
            of,
            least: 512 * 512,
            most: 1024 * 1024,
        })
    },
    moments: Some(("temporal_downsample_factor", 4)),
    aside: &[
        "codebook_size",
        "embed_dim",
        "out_channels",
        "attention_dropout",
    ],
    ..chameleon_vqgan::LIKE
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    vqgan_like::read(FAMILY.model_type, checkpoint, reader, LIKE)
}
