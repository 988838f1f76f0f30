//! The encoder of sound of Qwen 2.5 Omni: Whisper's, where frames are heard, and positions seen, in chunks.

use super::Family;
use super::qwen3_omni_moe_audio_encoder::{Like, read_as};

pub const FAMILY: Family = Family::own(NAME, "Qwen2_5OmniAudioEncoder", |checkpoint, reader| {
    read_as(NAME, checkpoint, reader, Like::Omni25)
})
.leaving_unread(&[
    "ln_post.*",
    "audio_bos_eos_token.*",
    "proj.weight",
    "proj.bias",
]);

const NAME: &str = "qwen2_5_omni_audio_encoder";
