//! Spectrograms that are heard as long as the sound: Kaldi's filter banks, and Whisper's.

use attnscope_checkpoint::Reader;
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::{BandNorm, Ends, Mel, SoundRule, SoundWindow, Steps};

use super::extractor::{Extractor, FASTEST, MOST_SAMPLES, WIDEST_WINDOW};

/// Kaldi's samples per second, per window, and from one window to the next: 25 ms every 10 ms.
const KALDI: [usize; 3] = [16_000, 400, 160];

/// The rule of some frames, before anything is known of positions.
fn plain([rate, n_window, hop]: [usize; 3], n_mels: usize, mel: Mel) -> SoundRule {
    SoundRule {
        rate,
        n_window,
        hop,
        n_mels,
        n_frames: MOST_SAMPLES / hop.max(1),
        frames_per_position: 1,
        mel,
        waves: None,
        steps: None,
        n_least: 0,
        patches: None,
        is_rows: false,
    }
}

/// Kaldi's filter banks, for a model of so many bands, whose extractor states them under a key.
///
/// # Errors
/// When the extractor makes others.
pub fn kaldi(
    extractor: &Extractor,
    reader: &mut Reader<'_>,
    n_mels: usize,
    (window, norm): (SoundWindow, BandNorm),
) -> Result<SoundRule> {
    const RATE: &str = "sampling_rate";
    const BANDS: &str = "num_mel_bins";
    let rate = extractor.size(RATE, KALDI[0], FASTEST)?;
    if rate != KALDI[0] {
        let problem = format!(
            "expected {}, whose windows are of 25 ms, found {rate}",
            KALDI[0]
        );
        return Err(extractor.error(RATE, problem));
    }
    let found = extractor.size(BANDS, n_mels, MOST_SAMPLES)?;
    if found != n_mels {
        let problem = format!("expected the {n_mels} bands of the model, found {found}");
        return Err(extractor.error(BANDS, problem));
    }
    extractor.note_dither(reader);
    Ok(plain(KALDI, n_mels, Mel::kaldi(window, rate, norm)))
}

/// Whisper's spectrogram of a sound with silence behind it.
///
/// # Errors
/// When a setting of the extractor is impossible, or does not fit the model.
pub fn whisper(extractor: &Extractor, reader: &mut Reader<'_>, n_mels: usize) -> Result<SoundRule> {
    extractor.check_bands(n_mels)?;
    let n_window = extractor.size("n_fft", 400, WIDEST_WINDOW)?;
    let rate = extractor.size("sampling_rate", 16_000, FASTEST)?;
    let hop = extractor.size("hop_length", 160, WIDEST_WINDOW)?;
    extractor.note_dither(reader);
    let mel = Mel {
        ends: Ends::MirroredThenSilent { counts_part: true },
        ..Mel::whisper(n_window)
    };
    Ok(plain([rate, n_window, hop], n_mels, mel))
}

/// A rule whose frames become positions through steps, at most so many; and a note of it.
///
/// # Errors
/// When a position needs more samples than a sound may have.
pub fn heard_in_steps(
    extractor: &Extractor,
    reader: &mut Reader<'_>,
    rule: SoundRule,
    (steps, apart): (Steps, usize),
    n_positions: Option<usize>,
) -> Result<SoundRule> {
    if apart.saturating_mul(rule.hop) > MOST_SAMPLES {
        let problem =
            format!("expected at most {MOST_SAMPLES} samples from one position to the next");
        return Err(Error::config(
            reader.path(),
            "max_source_positions",
            problem,
        ));
    }
    let mut n_frames = rule.n_frames;
    if let Some(most) = n_positions {
        n_frames = n_frames.min(most.saturating_mul(apart));
        // Padding may give a few frames a position beyond the last.
        while steps.n_positions(n_frames) > most {
            n_frames -= 1;
        }
    }
    let rule = SoundRule {
        n_frames,
        frames_per_position: apart,
        steps: Some(steps),
        ..rule
    };
    note(extractor, reader, rule);
    Ok(rule)
}

/// Says what is heard.
pub fn note(extractor: &Extractor, reader: &mut Reader<'_>, rule: SoundRule) {
    let said = format!(
        "{} mel bands of {} samples every {}, {} Hz, a position every {}",
        rule.n_mels,
        rule.n_window,
        rule.hop,
        rule.rate,
        rule.frames_per_position.saturating_mul(rule.hop)
    );
    reader.note("sound", said, extractor.origin());
}
