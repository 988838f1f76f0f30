//! Turns text, ids, masks, pictures and sounds into token sequences with readable labels.

mod at_hand;
mod chat;
mod given_ids;
mod inputs;
mod languages;
mod limits;
mod lost;
mod picture;
mod positions;
mod prepare;
mod prompt;
mod put_around;
mod request;
mod sound;
mod starts;
#[cfg(test)]
mod tests;
mod tokenizer;
mod writing;

pub use at_hand::{PromptsBeside, built_in_texts};
pub use chat::{ChatTemplate, Messages};
pub use given_ids::GivenIds;
pub use inputs::{parse_inputs, read_inputs};
pub use languages::code_of as language_code;
pub use limits::Limits;
pub use lost::TokenizerLoss;
pub use picture::{
    Filter, Firsts, Picture, PicturePreprocessing, PictureSource, Resampling, Size, is_picture,
    taps,
};
pub use positions::PositionRule;
pub use prepare::prepare;
pub use prompt::Prompt;
pub use request::{N_GENERATED, Positions, Request, Source, Target};
pub use sound::{
    BUILT_IN_SOUND, BandNorm, Bands, Deviation, Ends, HEARS, LogPower, MOST_CONVOLUTIONS, Mel,
    Silence, Sound, SoundPatches, SoundRule, SoundWindow, Steps, Waves, is_sound, samples_of,
};
pub use starts::{Prefix, Starts};
pub use tokenizer::{PromptForm, Token, Tokenizer, Vocabulary};
pub use writing::Sampling;
