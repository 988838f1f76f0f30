//! ViT: patches of a picture as tokens, a class token before them, norms before both branches.

use attnscope_compute::ops::NormKind;

use super::Family;
use super::reading::processor::Processor;
use super::reading::vit_like::{
    BASE, Behind, Count, Kernel, OF_MOST, OF_VIT, Pictures, Reads, VitLike,
};

pub const FAMILY: Family = Family::seeing("vit", "ViT", || VitLike {
    reads: Reads::Pictures(PICTURES),
    ..like(&["vit.", ""])
});

/// How ViT embeds pictures.
pub(super) const PICTURES: Pictures = Pictures {
    kernel: "embeddings.patch_embeddings.projection.weight",
    form: Kernel::Picture,
    has_bias: Some(true),
    patch_norm: None,
    class: Some("embeddings.cls_token"),
    class_place: None,
    class_by_window: None,
    distillation: None,
    is_class_placed: true,
    registers: None,
    positions: Some("embeddings.position_embeddings"),
    lines: None,
    area: None,
    places: Count::Size,
    resampled: None,
    turn: None,
    are_registers_placed: false,
    merged: None,
    n_spare: 0,
    shares_spare: false,
    n_behind: Behind::None,
    margin: 0,
    moments: None,
    norm: None,
    size: 224,
    patch: 16,
    processor: Processor::VIT,
};

/// ViT under the given prefixes.
pub(super) const fn like(bases: &'static [&'static str]) -> VitLike {
    VitLike {
        bases,
        sizes: BASE,
        keys: OF_MOST,
        eps: 1e-12,
        activation: "gelu",
        norm: NormKind::LayerNorm,
        names: OF_VIT,
        reads: Reads::Pictures(PICTURES),
        last_norm: Some("layernorm"),
    }
}
