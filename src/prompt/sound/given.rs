//! The prompt for a sound: one position per few frames, labelled with its time.

use std::path::Path;
use std::sync::Arc;

use attnscope_checkpoint::read_whole;
use attnscope_compute::error::{Error, Result};

use super::bands::Ends;
use super::mel;
use super::rule::{Sound, SoundPatches, SoundRule};
use super::wav::samples_of;
use crate::prompt::Prompt;
use crate::request::{Request, Source};

/// The prompt that stands for the built-in sound.
pub const BUILT_IN_SOUND: &str = "the built-in sound";
/// The start of error messages about a prompt that is not a sound file.
pub const HEARS: &str = "the model hears sound: expected the path of a file that ends in .wav";
/// The extension of sound files.
const ENDING: &str = "wav";
/// Maximum size of a sound file in bytes: about 46 minutes of two channels at 16 kHz and 24 bits.
const MOST_BYTES: usize = 256 << 20;

/// Whether a path is a sound file, by its extension.
pub fn is_sound(word: &str) -> bool {
    let ending = Path::new(word).extension();
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case(ENDING))
}

/// The prompt of a speech model's encoder: one position per few frames, labelled with its time.
///
/// # Errors
/// When the request has ids, a picture, a mask, or a text that is not the path of a sound; when the file cannot be read as WAV.
pub(crate) fn given(request: &Request, rule: SoundRule) -> Result<Prompt> {
    let asked = match &request.source {
        Source::Text(text) => text.trim(),
        Source::Ids(_) => return Err(Error::Prompt(format!("{HEARS}, found token ids"))),
        Source::Picture(picture) => {
            return Err(Error::Prompt(format!(
                "{HEARS}, found the picture {picture}"
            )));
        }
        Source::Values(values) => {
            let found = values.path().display();
            return Err(Error::Prompt(format!(
                "{HEARS}, found the numbers of {found}"
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
    let n_frames = rule.n_frames_of(samples.len().max(rule.n_least));
    if rule
        .steps
        .is_some_and(|steps| steps.n_positions(n_frames) == 0)
    {
        let problem = format!(
            "the sound has {} samples, which is too short for one position of the model",
            samples.len()
        );
        return Err(Error::Prompt(problem));
    }
    Ok(heard(asked, &samples, rule))
}

/// Refuses a sound file for a model that reads text.
///
/// # Errors
/// When the prompt is the path of an existing sound file.
pub(crate) fn check_is_text(source: &Source) -> Result<()> {
    match source {
        Source::Text(text) if is_sound(text) && Path::new(text).is_file() => {
            let problem = format!("{text}: the model reads text, found a file of sound");
            Err(Error::Prompt(problem))
        }
        _ => Ok(()),
    }
}

/// The prompt for some samples.
fn heard(asked: &str, samples: &[f32], rule: SoundRule) -> Prompt {
    let n_heard = rule.n_samples();
    let said = (samples.len() > n_heard).then(|| {
        format!(
            "the sound has {:.2} s: the model hears the first {:.2} s",
            rule.seconds(samples.len()),
            rule.seconds(n_heard)
        )
    });
    let mut heard = samples[..samples.len().min(n_heard)].to_vec();
    if heard.len() < rule.n_least {
        heard.resize(rule.n_least, 0.0);
    }
    if let Some(waves) = rule.waves {
        waves.surround(&mut heard);
    }
    let n_sound = heard.len();
    let (n_frames, n, n_real) = match rule.steps {
        Some(steps) => {
            let n_frames = rule.n_frames_of(n_sound);
            let n = steps.n_positions(n_frames);
            let is_silent = matches!(rule.mel.ends, Ends::MirroredThenSilent { .. });
            if rule.waves.is_none() && is_silent {
                heard.resize(n_sound + rule.mel.n_fourier, 0.0);
            }
            (n_frames, n, n)
        }
        None if rule.patches.is_some() => {
            let n = rule.n_positions();
            (rule.n_frames, n, n)
        }
        None => {
            heard.resize(n_heard, 0.0);
            let n = rule.n_positions();
            let n_real = n_sound.div_ceil(rule.hop * rule.frames_per_position);
            (rule.n_frames, n, n_real.min(n))
        }
    };
    let mut values = match rule.waves {
        Some(waves) => waves.values(&heard),
        None => mel::log_mel(&heard, rule, n_frames),
    };
    let width = rule.row_width();
    if rule.mel.n_joined > 1 {
        values.resize(n * width, 0.0);
    }
    let sound = Sound {
        asked: asked.to_owned(),
        values,
        n_mels: width,
        n_real,
        said,
        rows: None,
    };
    Prompt {
        tokens: (0..n as u32).collect(),
        labels: labels(rule, n, sound.n_real),
        positions: (0..n).collect(),
        sound: Some(Arc::new(sound)),
        ..Prompt::default()
    }
}

/// The start time of each position; positions that begin after the end of the sound are marked as padding.
fn labels(rule: SoundRule, n: usize, n_real: usize) -> Vec<String> {
    if let Some(patches) = rule.patches {
        return (0..n)
            .map(|idx| label_of_patch(rule, patches, idx))
            .collect();
    }
    let step = rule.hop * rule.frames_per_position;
    let n_decimals = if rule.seconds_per_position() < 0.01 {
        3
    } else {
        2
    };
    let silence = rule.waves.and_then(|waves| waves.silence);
    let n_before = silence.map_or(0, |silence| silence.around);
    let label = |position_idx: usize| {
        let at = (position_idx * step).saturating_sub(n_before);
        let time = format!("{:.n_decimals$}s", rule.seconds(at));
        if position_idx < n_real {
            time
        } else {
            format!("{time} pad")
        }
    };
    (0..n).map(label).collect()
}

/// The start time of a patch, and its place along the bands, from the lowest on.
fn label_of_patch(rule: SoundRule, patches: SoundPatches, position_idx: usize) -> String {
    let Some(patch_idx) = position_idx.checked_sub(patches.n_first) else {
        return format!("first {}", position_idx + 1);
    };
    let n_along = patches.grid[1].max(1);
    let time = rule.seconds(patch_idx % n_along * patches.stride * rule.hop);
    format!("{time:.2}s band {}", patch_idx / n_along + 1)
}

/// The sound used if none is given: a tone that rises, pauses and falls; six seconds, or the model's length if shorter.
fn built_in(rule: SoundRule) -> Vec<f32> {
    const SECONDS: f64 = 6.0;
    let n = ((SECONDS * rule.rate as f64) as usize).min(rule.n_samples());
    let mut phase = 0.0f64;
    let sample = |idx: usize| {
        let at = idx as f64 / n as f64; // 0..1
        let pitch = 140.0 + 260.0 * (1.0 - (2.0 * at - 1.0).abs());
        phase += std::f64::consts::TAU * pitch / rule.rate as f64;
        let is_pause = (0.45..0.55).contains(&at);
        // Like eight syllables: the loudness rises and falls eight times, and the tone has overtones like a voice.
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
    use crate::{Mel, Steps};

    const RULE: SoundRule = SoundRule {
        rate: 16_000,
        n_window: 400,
        hop: 160,
        n_mels: 8,
        n_frames: 20,
        frames_per_position: 2,
        mel: Mel::whisper(400),
        waves: None,
        steps: None,
        n_least: 0,
        patches: None,
        is_rows: false,
    };

    #[test]
    fn what_follows_the_sound_is_named_as_padding() {
        let prompt = heard("a.wav", &vec![0.1; 1_000], RULE);
        assert_eq!(prompt.labels.len(), 10);
        assert_eq!(prompt.labels[..4], ["0.00s", "0.02s", "0.04s", "0.06s"]);
        assert_eq!(prompt.labels[4], "0.08s pad");
        let sound = prompt.sound.as_deref().expect("a sound");
        assert_eq!((sound.values.len(), sound.n_mels), (20 * 8, 8));
        assert_eq!(sound.said, None);
    }

    #[test]
    fn what_is_longer_than_the_model_hears_is_cut_with_a_word() {
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
    fn patches_of_the_lowest_bands_come_first() {
        let patches = SoundPatches {
            n_first: 2,
            grid: [2, 3],
            stride: 5,
        };
        let rule = SoundRule {
            patches: Some(patches),
            ..RULE
        };
        let prompt = heard("a.wav", &vec![0.1; 1_000], rule);
        assert_eq!(prompt.labels.len(), 8);
        assert_eq!(
            prompt.labels[1..4],
            ["first 2", "0.00s band 1", "0.05s band 1"]
        );
        assert_eq!(prompt.labels[5], "0.00s band 2");
    }

    #[test]
    fn chunks_pass_through_convolutions_by_themselves() {
        let steps = Steps::of([[3, 2, 2]]);
        assert_eq!(steps.n_positions(11), 6);
        assert_eq!(steps.in_chunks(5).n_positions(11), 3 + 3 + 1);
    }

    #[test]
    fn a_file_of_sound_is_told_by_its_ending() {
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
