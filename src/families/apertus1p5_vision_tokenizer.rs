//! The encoder of Apertus 1.5's tokenizer of pictures.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_prompt::Size;
use attnscope_spec::ModelSpec;

use super::reading::processor::Processor;
use super::reading::vqgan_like::{self, Attends, NAMES, Names, VqganLike};
use super::{Family, chameleon_vqgan};

pub const FAMILY: Family = Family::own(
    "apertus1p5_vision_tokenizer",
    "Apertus1p5VisionTokenizerModel",
    read,
)
.leaving_unread(chameleon_vqgan::UNREAD);

const LIKE: VqganLike = VqganLike {
    names: Names {
        levels: "stages",
        block: "layers.{}.resnet",
        attention: "layers.{}.attention",
        norm: "layers.{}.attention.norm",
        ..NAMES
    },
    attends: Attends::Sides(["attn_resolutions", "resolution"], &[16], 256),
    base_channels: 256,
    n_blocks: 4,
    doubles: false,
    processor: Processor::APERTUS,
    size: |_, side| {
        Ok(Size::Multiple {
            of: side,
            least: 128 * 128,
            most: 1400 * 1400,
        })
    },
    aside: &[
        "codebook_size",
        "embed_dim",
        "dropout",
        "spatial_scale_factor",
    ],
    ..chameleon_vqgan::LIKE
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    vqgan_like::read(FAMILY.model_type, checkpoint, reader, LIKE)
}
