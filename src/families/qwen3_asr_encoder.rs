//! The encoder of Qwen 3 ASR: that of Qwen 3 Omni without maps behind its last norm.

use super::Family;
use super::qwen3_omni_moe_audio_encoder::{Like, read_as};

pub const FAMILY: Family = Family::own(NAME, "Qwen3ASREncoder", |checkpoint, reader| {
    read_as(NAME, checkpoint, reader, Like::Asr)
});

const NAME: &str = "qwen3_asr_encoder";
