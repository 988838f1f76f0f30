//! Sound prompts: reads a WAV file, cuts or pads it to the model's length, and computes a log-mel spectrogram.

mod bands;
mod given;
mod mel;
mod rows;
mod rule;
mod wav;

pub use bands::{BandNorm, Bands, Deviation, Ends, LogPower, Mel, SoundWindow};
pub use given::{BUILT_IN_SOUND, HEARS, is_sound};
pub(super) use given::{check_is_text, given};
pub(super) use rows::{given_rows, target_rows};
pub use rule::{MOST_CONVOLUTIONS, Silence, Sound, SoundPatches, SoundRule, Steps, Waves};
pub use wav::samples_of;
