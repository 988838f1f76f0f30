//! DeiT: ViT with a second learned token, which a teacher's labels were learned at.

use super::reading::processor::Processor;
use super::reading::vit_like::{Pictures, Reads, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::seeing("deit", "DeiT", || VitLike {
    reads: Reads::Pictures(Pictures {
        distillation: Some("embeddings.distillation_token"),
        processor: Processor::DEIT,
        ..vit::PICTURES
    }),
    ..vit::like(&["deit.", ""])
});
