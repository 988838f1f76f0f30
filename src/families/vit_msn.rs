//! ViT MSN: ViT with another epsilon.

use super::reading::vit_like::VitLike;
use super::{Family, vit};

pub const FAMILY: Family = Family::seeing("vit_msn", "ViTMSN", || VitLike {
    eps: 1e-6,
    ..vit::like(&["vit.", ""])
});
