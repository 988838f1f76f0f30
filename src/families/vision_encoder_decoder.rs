//! Encoder-decoder models whose encoder sees: ViT or its kin, and a decoder of BERT's kind.

use super::Family;
use super::encoder_decoder::read_with_senses;

pub const FAMILY: Family = Family::own(
    "vision-encoder-decoder",
    "VisionEncoderDecoder",
    |checkpoint, reader| read_with_senses(("vision-encoder-decoder", "vit"), checkpoint, reader),
);
