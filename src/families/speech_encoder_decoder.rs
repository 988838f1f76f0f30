//! Encoder-decoder models whose encoder hears: wav2vec 2.0 or its kin, and a decoder of BERT's kind.

use super::encoder_decoder::read_with_senses;
use super::{Family, wav2vec2};

pub const FAMILY: Family = Family::own(
    "speech-encoder-decoder",
    "SpeechEncoderDecoder",
    |checkpoint, reader| {
        read_with_senses(("speech-encoder-decoder", "wav2vec2"), checkpoint, reader)
    },
)
.leaving_unread(wav2vec2::UNREAD);
