//! Sound input: a WAV file, cut or padded to the model's length, as a log-mel spectrogram.

mod mel;
mod wav;

use std::path::Path;
use std::sync::Arc;

use attnscope_checkpoint::read_whole;
use attnscope_compute::error::{Error, Result};

use super::{Prompt, Request, Source};

pub use wav::samples_of;

/// The prompt that selects the built-in sound.
pub const BUILT_IN_SOUND: &str = "the built-in sound";
/// The expected kind of prompt, for messages.
pub const HEARS: &str = "the model hears sound: expected the path of a file that ends in .wav";
/// The extension of sound files.
const ENDING: &str = "wav";
/// Upper limit of a sound file in bytes: forty minutes of stereo at 16 kHz in 24 bits.
const MOST_BYTES: usize = 256 << 20;

/// Preprocessing of sound: the kind of spectrogram that the model was trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoundRule {
    /// Samples per second.
    pub rate: usize,
    /// Samples in the window of each frame.
    pub n_window: usize,
    /// Samples from one frame to the next.
    pub hop: usize,
    pub n_mels: usize,
    pub n_frames: usize,
    /// Frames per encoder position.
    pub frames_a_position: usize,
}

impl SoundRule {
    /// Number of input samples: shorter sounds are padded with silence, longer ones are cut.
    pub fn n_samples(self) -> usize {
        self.n_frames * self.hop
    }

    pub fn n_positions(self) -> usize {
        self.n_frames.div_ceil(self.frames_a_position)
    }

    /// Seconds from one position of the encoder to the next.
    pub fn seconds_a_position(self) -> f64 {
        (self.hop * self.frames_a_position) as f64 / self.rate as f64
    }

    fn seconds(self, n_samples: usize) -> f64 {
        n_samples as f64 / self.rate as f64
    }
}

/// A preprocessed sound, as the model receives it.
#[derive(Debug, Clone, Default)]
pub struct Sound {
    /// The requested source: a path, or the name of the built-in sound.
    pub asked: String,
    /// The log-mel spectrogram. // [frame, mel]
    pub values: Vec<f32>,
    pub n_mels: usize,
    /// Number of frames, and of encoder positions, that begin before the sound ends.
    pub n_frames: usize,
    pub n_real: usize,
    /// A remark on how the file was used.
    pub said: Option<String>,
}

impl PartialEq for Sound {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
        let (mine, others) = (&self.values, &other.values);
        self.n_mels == other.n_mels
            && mine.len() == others.len()
            && mine.iter().zip(others).all(same)
    }
}

impl Eq for Sound {}

/// Whether a word is the name of a sound file.
pub fn is_sound(word: &str) -> bool {
    let ending = Path::new(word).extension();
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case(ENDING))
}

/// The encoder prompt of a speech model: one position per few frames, labelled with its time.
///
/// # Errors
/// When the request has ids, a mask, or a text that is not the path of a sound; when the model cannot use the file.
pub(super) fn given(request: &Request, rule: SoundRule) -> Result<Prompt> {
    let asked = match &request.source {
        Source::Text(text) => text.trim(),
        Source::Ids(_) => return Err(Error::Prompt(format!("{HEARS}, found token ids"))),
        Source::Picture(picture) => {
            return Err(Error::Prompt(format!(
                "{HEARS}, found the picture {picture}"
            )));
        }
    };
    if request.attention_mask.is_some() {
        let problem = format!("{HEARS}, found an attention mask too: no part of a sound is masked");
        return Err(Error::Prompt(problem));
    }
    let samples = if asked == BUILT_IN_SOUND {
        built_in(rule)
    } else if is_sound(asked) {
        let path = Path::new(asked);
        let bytes = read_whole(path, MOST_BYTES)?;
        samples_of(&bytes, rule.rate).map_err(|problem| Error::file(path, problem))?
    } else {
        let shown: String = asked.chars().take(60).collect();
        return Err(Error::Prompt(format!("{HEARS}, found {shown:?}")));
    };
    Ok(heard(asked, &samples, rule))
}

/// Refuses a sound file for a model that reads text.
///
/// # Errors
/// When the prompt is the path of an existing sound file.
pub(super) fn check_is_text(source: &Source) -> Result<()> {
    match source {
        Source::Text(text) if is_sound(text) && Path::new(text).is_file() => {
            let problem = format!("{text}: the model reads text, found a file of sound");
            Err(Error::Prompt(problem))
        }
        _ => Ok(()),
    }
}

/// The remark on how the sound of a side was used.
pub(super) fn said_of(side: &Prompt) -> Option<String> {
    side.sound.as_ref()?.said.clone()
}

impl Prompt {
    /// The source that the user gave: the path of a sound, or the ids.
    pub fn given_source(&self) -> Source {
        let given = self.given();
        match (&given.picture, &given.sound) {
            (Some(picture), _) => Source::Picture(picture.source.clone()),
            (None, Some(sound)) => Source::Text(sound.asked.clone()),
            (None, None) => Source::Ids(given.tokens.clone()),
        }
    }
}

/// The encoder prompt for some samples.
pub(super) fn heard(asked: &str, samples: &[f32], rule: SoundRule) -> Prompt {
    let n_heard = rule.n_samples();
    let said = (samples.len() > n_heard).then(|| {
        format!(
            "the sound has {:.2} s: the model hears the first {:.2} s",
            rule.seconds(samples.len()),
            rule.seconds(n_heard)
        )
    });
    let n_sound = samples.len().min(n_heard);
    let mut heard = samples[..n_sound].to_vec();
    heard.resize(n_heard, 0.0);
    let n = rule.n_positions();
    let sound = Sound {
        asked: asked.to_owned(),
        values: mel::log_mel(&heard, rule),
        n_mels: rule.n_mels,
        n_frames: n_sound / rule.hop,
        n_real: n_sound.div_ceil(rule.hop * rule.frames_a_position).min(n),
        said,
    };
    Prompt {
        tokens: (0..n as u32).collect(),
        labels: labels(rule, sound.n_real),
        positions: (0..n).collect(),
        sound: Some(Arc::new(sound)),
        ..Prompt::default()
    }
}

/// The time of every position; positions after the end of the sound are marked as padding.
fn labels(rule: SoundRule, n_real: usize) -> Vec<String> {
    let step = rule.hop * rule.frames_a_position;
    let n_decimals = if rule.seconds_a_position() < 0.01 {
        3
    } else {
        2
    };
    let label = |position_idx: usize| {
        let time = format!("{:.n_decimals$}s", rule.seconds(position_idx * step));
        if position_idx < n_real {
            time
        } else {
            format!("{time} pad")
        }
    };
    (0..rule.n_positions()).map(label).collect()
}

/// A tone that rises, falls silent and falls again, for runs without a sound: six seconds, or as long as the model allows.
fn built_in(rule: SoundRule) -> Vec<f32> {
    const SECONDS: f64 = 6.0;
    let n = ((SECONDS * rule.rate as f64) as usize).min(rule.n_samples());
    let mut phase = 0.0f64;
    let sample = |idx: usize| {
        let at = idx as f64 / n as f64; // 0..1
        let pitch = 140.0 + 260.0 * (1.0 - (2.0 * at - 1.0).abs());
        phase += std::f64::consts::TAU * pitch / rule.rate as f64;
        let is_pause = (0.45..0.55).contains(&at);
        // Like syllables: the loudness rises and falls eight times, with overtones like a voice's.
        let loudness = (8.0 * std::f64::consts::PI * at).sin().abs();
        let overtones = (1..=6).map(|nth| (f64::from(nth) * phase).sin() / f64::from(nth));
        if is_pause {
            0.0
        } else {
            (0.25 * loudness * overtones.sum::<f64>()) as f32
        }
    };
    (0..n).map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: SoundRule = SoundRule {
        rate: 16_000,
        n_window: 400,
        hop: 160,
        n_mels: 8,
        n_frames: 20,
        frames_a_position: 2,
    };

    #[test]
    fn positions_after_the_sound_are_labelled_as_padding() {
        let prompt = heard("a.wav", &vec![0.1; 1_000], RULE);
        assert_eq!(prompt.labels.len(), 10);
        assert_eq!(prompt.labels[..4], ["0.00s", "0.02s", "0.04s", "0.06s"]);
        assert_eq!(prompt.labels[4], "0.08s pad");
        let sound = prompt.sound.as_deref().expect("a sound");
        assert_eq!((sound.values.len(), sound.n_mels), (20 * 8, 8));
        assert_eq!(sound.said, None);
    }

    #[test]
    fn a_sound_longer_than_the_model_allows_is_cut_with_a_remark() {
        let prompt = heard("a.wav", &vec![0.1; 4_000], RULE);
        let sound = prompt.sound.as_deref().expect("a sound");
        let said = sound.said.as_deref().expect("a word");
        assert!(said.contains("0.25 s") && said.contains("0.20 s"), "{said}");
        let whole = heard("a.wav", &vec![0.1; 3_200], RULE);
        assert_eq!(
            prompt,
            Prompt {
                sound: prompt.sound.clone(),
                ..whole.clone()
            }
        );
        assert_eq!(sound, whole.sound.as_deref().expect("a sound"));
    }

    #[test]
    fn a_sound_file_is_recognised_by_its_extension() {
        for word in ["a.wav", "dir/A.WAV", "./two words.wav"] {
            assert!(is_sound(word), "{word}");
        }
        for word in ["wav", "a.wav.txt", ".wav", "a.mp3", ""] {
            assert!(!is_sound(word), "{word}");
        }
    }

    #[test]
    fn the_built_in_sound_fits_any_model() {
        let samples = built_in(RULE);
        assert_eq!(samples.len(), 3_200);
        assert!(samples.iter().all(|sample| sample.abs() < 1.0));
        assert!(samples.iter().any(|sample| sample.abs() > 0.05));
    }
}
