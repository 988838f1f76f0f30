//! The text part of TIPSv2: SigLIP's with sinusoidal positions, added to scaled embeddings.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{ModelSpec, PositionTable, Sines};

use super::reading::vit_like::{self, Names, OF_CLIP, Reads, Text, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("tipsv2_text_model", "Tipsv2Text", read);

const LIKE: VitLike = VitLike {
    eps: 1e-5,
    activation: "relu",
    names: OF_CLIP,
    reads: Reads::Text(Text {
        d_vocab: 32_000,
        n_ctx: 64,
        is_causal: false,
    }),
    last_norm: Some("final_layer_norm"),
    ..vit::like(&["text_model.", ""])
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut names = checkpoint.tensors.iter().map(|(name, _)| name);
    let is_fused = names.any(|name| name.ends_with(".self_attn.in_proj.weight"));
    let like = VitLike {
        names: Names {
            qkv: is_fused.then_some("self_attn.in_proj"),
            ..OF_CLIP
        },
        ..LIKE
    };
    let mut spec = vit_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    // Only the mean over a text's states needs it.
    reader.value("pooling_epsilon");
    let scales = reader.flag_or("scales_embedding", "scale_sqrt_depth", true)?;
    reader.note("positions", "sines and cosines", Origin::Family);
    let embed = &mut spec.stacks[0].embed;
    embed.positions = Some(PositionTable::Sinusoid(Sines::HalvesToEnd));
    if scales {
        embed.scale = (spec.d_model as f64).sqrt() as f32;
    }
    Ok(spec)
}
