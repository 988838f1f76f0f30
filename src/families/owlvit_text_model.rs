//! OWL-ViT's tower of queries: CLIP's encoder of captions.

use super::reading::vit_like::{Reads, Text, VitLike};
use super::{Family, clip_text_model};

pub const FAMILY: Family = Family::seeing("owlvit_text_model", "OwlViTTextModel", || VitLike {
    bases: &["owlvit.text_model.", "text_model.", ""],
    reads: Reads::Text(Text {
        n_ctx: 16,
        ..clip_text_model::TEXT
    }),
    ..clip_text_model::LIKE
});
