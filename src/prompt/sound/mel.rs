//! Samples → log power in mel bands, which are spaced like perceived pitch.

use rayon::prelude::*;

use super::bands::{BandNorm, Bands, Deviation, Ends, LogPower, Mel, SoundWindow};
use super::rule::SoundRule;

/// Lower limit of the power, before a logarithm to base 10.
const FLOOR: f64 = 1e-10;
/// Lower limit of the power, before a natural logarithm.
const NATURAL_FLOOR: f64 = 1e-5;
/// The least power of Kaldi, before a natural logarithm.
const EPSILON: f64 = 1.0 / (1 << 23) as f64;
/// Added to the power, before a natural logarithm.
const GUARD: f64 = 1.0 / (1 << 24) as f64;
/// Powers more than this many decades below the maximum are raised to that level.
const RANGE: f64 = 8.0;
/// Added to the deviation that a band is divided by.
const EPS: f64 = 1e-5;
/// Added to the variance that a band is divided by.
const OF_VARIANCE: f64 = 1e-7;
/// The power that makes Hann's window Kaldi's.
const POVEY: f64 = 0.85;

/// The log-mel spectrogram. // [frame, mel]
pub(super) fn log_mel(samples: &[f32], rule: SoundRule, n_frames: usize) -> Vec<f32> {
    let filters = Filters::new(rule);
    let fourier = Fourier::new(rule);
    let emphasised = emphasised(samples, rule.mel);
    let samples = emphasised.as_deref().unwrap_or(samples);
    let silence = filters.apply(&vec![0.0; rule.mel.n_fourier / 2 + 1]);
    let is_inside = rule.mel.ends == Ends::Inside;
    let frame = |frame_idx: usize| -> Vec<f64> {
        if is_inside && frame_idx * rule.hop + rule.n_window > samples.len() {
            return vec![0.0; rule.n_mels]; // beyond the sound
        }
        match fourier.power(samples, frame_idx * rule.hop) {
            Some(power) => filters.apply(&power),
            None => silence.clone(),
        }
    };
    let mut frames: Vec<Vec<f64>> = (0..n_frames).into_par_iter().map(frame).collect();
    match rule.mel.norm {
        BandNorm::None => {}
        BandNorm::PerBand(deviation) => norm_bands(&mut frames, rule.n_mels, deviation),
        BandNorm::Fixed { mean, divisor } => {
            let [mean, divisor] = [mean, divisor].map(|billionths| billionths as f64 * 1e-9);
            let all = frames.iter_mut().flatten();
            all.for_each(|log| *log = (*log - mean) / divisor);
        }
        BandNorm::Whisper | BandNorm::WhisperBelow(_) => {
            let largest = match rule.mel.norm {
                BandNorm::WhisperBelow(billionths) => billionths as f64 * 1e-9,
                _ => frames.iter().flatten().copied().fold(f64::MIN, f64::max),
            };
            let least = largest - RANGE;
            let all = frames.iter_mut().flatten();
            all.for_each(|log| *log = (log.max(least) + 4.0) / 4.0);
        }
    }
    frames.iter().flatten().map(|value| *value as f32).collect()
}

/// Samples less a share of the sample before each; `None` if that changes nothing, or is done in each frame.
fn emphasised(samples: &[f32], mel: Mel) -> Option<Vec<f32>> {
    if mel.emphasis == 0 || mel.by_frame {
        return None;
    }
    let share = f64::from(mel.emphasis) * 1e-6;
    let before = [0.0].iter().chain(samples);
    let pairs = samples.iter().zip(before);
    let less = pairs.map(|(now, before)| (f64::from(*now) - share * f64::from(*before)) as f32);
    Some(less.collect())
}

/// Gives every band mean 0 and variance 1 over the frames. // [frame, mel]
fn norm_bands(frames: &mut [Vec<f64>], n_mels: usize, by: Deviation) {
    let n = frames.len() as f64;
    for band in 0..n_mels {
        let mean = frames.iter().map(|frame| frame[band]).sum::<f64>() / n;
        let squares = frames.iter().map(|frame| (frame[band] - mean).powi(2));
        let sum = squares.sum::<f64>();
        let of_sample = sum / (n - 1.0).max(1.0);
        let deviation = match by {
            Deviation::Guarded => of_sample.sqrt() + EPS,
            Deviation::OfSample => (of_sample + OF_VARIANCE).sqrt(),
            Deviation::OfAll => (sum / n).sqrt(),
        };
        for frame in frames.iter_mut() {
            frame[band] = (frame[band] - mean) / deviation;
        }
    }
}

/// The power spectrum of a windowed frame.
struct Fourier {
    /// Padded with zeros to the length of the transform.
    window: Vec<f64>,
    n_window: usize,
    mel: Mel,
    /// cos and sin of 2π·n/length.
    turns: Vec<(f64, f64)>,
}

impl Fourier {
    fn new(rule: SoundRule) -> Self {
        let (n, n_window) = (rule.mel.n_fourier, rule.n_window.min(rule.mel.n_fourier));
        let angle = |idx: usize, n: usize| std::f64::consts::TAU * idx as f64 / n.max(1) as f64;
        let turns = match rule.mel.window {
            SoundWindow::Periodic => n_window,
            SoundWindow::Symmetric | SoundWindow::Povey => n_window.saturating_sub(1),
        };
        let first = match rule.mel.ends {
            Ends::Inside => 0,
            Ends::Mirrored | Ends::MirroredThenSilent { .. } | Ends::Silent => (n - n_window) / 2,
        };
        let mut window = vec![0.0; n];
        for (idx, weight) in window[first..first + n_window].iter_mut().enumerate() {
            let hann = 0.5 - 0.5 * angle(idx, turns).cos();
            *weight = if rule.mel.window == SoundWindow::Povey {
                hann.powf(POVEY)
            } else {
                hann
            };
        }
        Self {
            window,
            n_window,
            mel: rule.mel,
            turns: (0..n)
                .map(|idx| (angle(idx, n).cos(), angle(idx, n).sin()))
                .collect(),
        }
    }

    /// Takes the mean of a frame away, and a share of the sample before from each.
    fn begin(&self, frame: &mut [f64]) {
        let (gain, share) = (
            f64::from(self.mel.gain),
            f64::from(self.mel.emphasis) * 1e-6,
        );
        let mean = frame.iter().sum::<f64>() / frame.len().max(1) as f64;
        let mut before = frame.first().map_or(0.0, |first| first - mean);
        for value in frame {
            let now = *value - mean;
            *value = (now - share * before) * gain;
            before = now;
        }
    }

    /// The power spectrum of the frame at a sample; `None` for silence. // [frequency]
    fn power(&self, samples: &[f32], at: usize) -> Option<Vec<f64>> {
        let n = self.window.len();
        let first = match self.mel.ends {
            Ends::Inside => at as isize,
            Ends::Mirrored | Ends::MirroredThenSilent { .. } | Ends::Silent => {
                at as isize - (n / 2) as isize
            }
        };
        let sample = |at: isize| match self.mel.ends {
            Ends::Mirrored | Ends::MirroredThenSilent { .. } => {
                samples[mirrored(at, samples.len())]
            }
            Ends::Silent | Ends::Inside => {
                let at = usize::try_from(at).ok().and_then(|at| samples.get(at));
                at.copied().unwrap_or(0.0)
            }
        };
        let mut windowed: Vec<f64> = (first..).take(n).map(|at| f64::from(sample(at))).collect();
        if self.mel.by_frame {
            self.begin(&mut windowed[..self.n_window]);
        }
        windowed
            .iter_mut()
            .zip(&self.window)
            .for_each(|(value, weight)| *value *= weight);
        if windowed.iter().all(|value| *value == 0.0) {
            return None;
        }
        // A real signal is the sum of an even part, with only cosine terms, and an odd part, with only sine terms.
        let half = n.div_ceil(2);
        let (even, odd): (Vec<f64>, Vec<f64>) = (1..half)
            .map(|idx| {
                (
                    windowed[idx] + windowed[n - idx],
                    windowed[idx] - windowed[n - idx],
                )
            })
            .unzip();
        let middle = n.is_multiple_of(2).then(|| windowed[n / 2]);
        let power = |k: usize| {
            let sign = if k.is_multiple_of(2) { 1.0 } else { -1.0 };
            let mut real = windowed[0] + sign * middle.unwrap_or(0.0);
            let (mut imaginary, mut at) = (0.0, 0);
            for (even, odd) in even.iter().zip(&odd) {
                at += k;
                if at >= n {
                    at -= n;
                }
                let (cos, sin) = self.turns[at];
                real += even * cos;
                imaginary += odd * sin;
            }
            real * real + imaginary * imaginary
        };
        Some((0..=n / 2).map(power).collect())
    }
}

/// The index of a sample beyond the ends, mirrored at the end sample.
fn mirrored(at: isize, n: usize) -> usize {
    let last = n as isize - 1;
    let mut at = at;
    while at < 0 || at > last {
        at = if at < 0 { -at } else { 2 * last - at };
        if last == 0 {
            return 0;
        }
    }
    at as usize
}

/// Triangular mel filters.
struct Filters {
    /// The first frequency bin of each band, and its weights from there on. // [mel]
    bands: Vec<(usize, Vec<f64>)>,
    log: LogPower,
}

impl Filters {
    fn new(rule: SoundRule) -> Self {
        let n_frequencies = rule.mel.n_fourier / 2 + 1;
        let nyquist = (rule.rate / 2) as f64;
        let frequency = |idx: usize| nyquist * idx as f64 / (n_frequencies - 1).max(1) as f64;
        // Triangles stand on frequencies, or on their mels.
        let (lowest, highest, is_on_mels) = match rule.mel.bands {
            Bands::EqualArea { highest } => (0.0, mel_of(highest as f64), false),
            Bands::EqualHeight { lowest, highest } => {
                (htk_mel_of(lowest as f64), htk_mel_of(highest as f64), true)
            }
        };
        let edge = |idx: usize| {
            let mel = lowest + (highest - lowest) * idx as f64 / (rule.n_mels + 1) as f64;
            if is_on_mels { mel } else { hertz_of(mel) }
        };
        let band = |mel_idx: usize| {
            let [low, centre, high] = [edge(mel_idx), edge(mel_idx + 1), edge(mel_idx + 2)];
            let weight = |idx: usize| {
                let at = frequency(idx);
                let at = if is_on_mels { htk_mel_of(at) } else { at };
                let (up, down) = ((at - low) / (centre - low), (high - at) / (high - centre));
                let height = if is_on_mels { 1.0 } else { 2.0 / (high - low) };
                // Whisper and NeMo store the filters as f32.
                f64::from((up.min(down).max(0.0) * height) as f32)
            };
            let first = (0..n_frequencies).find(|idx| weight(*idx) > 0.0);
            let first = first.unwrap_or(n_frequencies);
            let weights = (first..n_frequencies).map(weight);
            (first, weights.take_while(|weight| *weight > 0.0).collect())
        };
        Self {
            bands: (0..rule.n_mels).map(band).collect(),
            log: rule.mel.log,
        }
    }

    /// The log power in every band. // [mel]
    fn apply(&self, power: &[f64]) -> Vec<f64> {
        let log = |(first, weights): &(usize, Vec<f64>)| {
            let sum: f64 = weights
                .iter()
                .zip(&power[*first..])
                .map(|(w, p)| w * p)
                .sum();
            match self.log {
                LogPower::Decimal => sum.max(FLOOR).log10(),
                LogPower::NaturalOfMore => (sum + GUARD).ln(),
                LogPower::NaturalFromFloor => sum.max(NATURAL_FLOOR).ln(),
                LogPower::NaturalFromEpsilon => sum.max(EPSILON).ln(),
            }
        };
        self.bands.iter().map(log).collect()
    }
}

/// The mel scale of HTK.
fn htk_mel_of(hertz: f64) -> f64 {
    1_127.0 * (hertz / 700.0).ln_1p()
}

/// Where the mel scale changes from linear to logarithmic.
const TURN_HERTZ: f64 = 1_000.0;
const TURN_MEL: f64 = 15.0;
const HERTZ_A_MEL: f64 = 200.0 / 3.0;

/// The logarithm of one mel step in the logarithmic part: 27 steps are a factor of 6.4.
fn log_step() -> f64 {
    6.4f64.ln() / 27.0
}

fn mel_of(hertz: f64) -> f64 {
    if hertz < TURN_HERTZ {
        hertz / HERTZ_A_MEL
    } else {
        TURN_MEL + (hertz / TURN_HERTZ).ln() / log_step()
    }
}

fn hertz_of(mel: f64) -> f64 {
    if mel < TURN_MEL {
        mel * HERTZ_A_MEL
    } else {
        TURN_HERTZ * ((mel - TURN_MEL) * log_step()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: SoundRule = SoundRule {
        rate: 16_000,
        n_window: 400,
        hop: 160,
        n_mels: 80,
        n_frames: 6,
        frames_per_position: 2,
        mel: Mel::whisper(400),
        waves: None,
        steps: None,
        n_least: 0,
        patches: None,
        is_rows: false,
    };

    #[test]
    fn a_tone_is_strongest_in_the_band_of_its_pitch() {
        for pitch in [440.0, 1_000.0, 3_000.0] {
            let sample = |idx: usize| {
                let at = idx as f64 / RULE.rate as f64;
                (std::f64::consts::TAU * pitch * at).sin() as f32
            };
            let samples: Vec<f32> = (0..RULE.n_samples()).map(sample).collect();
            let mel = log_mel(&samples, RULE, RULE.n_frames);
            let middle = &mel[3 * 80..4 * 80];
            let loudest = (0..80).max_by(|a, b| middle[*a].total_cmp(&middle[*b]));
            let centre = hertz_of(mel_of(8_000.0) * (loudest.expect("bands") + 1) as f64 / 81.0);
            assert!((centre - pitch).abs() < 60.0, "{pitch} {centre}");
        }
    }

    #[test]
    fn the_power_spectrum_agrees_with_its_definition() {
        let samples: Vec<f32> = (0..30).map(|idx| ((idx * idx) as f32).sin()).collect();
        for n in [9, 12] {
            let rule = SoundRule {
                n_window: n,
                mel: Mel::whisper(n),
                ..RULE
            };
            let fourier = Fourier::new(rule);
            let found = fourier.power(&samples, 12).expect("sound");
            for (k, found) in found.iter().enumerate() {
                let (mut real, mut imaginary) = (0.0, 0.0);
                for idx in 0..n {
                    let value = fourier.window[idx] * f64::from(samples[12 - n / 2 + idx]);
                    let angle = std::f64::consts::TAU * (k * idx) as f64 / n as f64;
                    real += value * angle.cos();
                    imaginary -= value * angle.sin();
                }
                let expected: f64 = real * real + imaginary * imaginary;
                assert!((found - expected).abs() < 1e-9, "{n} {k}");
            }
        }
    }

    #[test]
    fn ends_are_mirrored_without_repeating_the_end_sample() {
        let at: Vec<usize> = (-3..7).map(|at| mirrored(at, 4)).collect();
        assert_eq!(at, [3, 2, 1, 0, 1, 2, 3, 2, 1, 0]);
        assert_eq!(mirrored(-5, 1), 0);
        assert_eq!(mirrored(-9, 3), 1);
    }

    #[test]
    fn silence_gives_a_constant_spectrogram() {
        let mel = log_mel(&vec![0.0; RULE.n_samples()], RULE, RULE.n_frames);
        assert!(mel.iter().all(|value| *value == -1.5));
    }

    #[test]
    fn normed_bands_have_no_mean_and_one_variance() {
        let rule = SoundRule {
            mel: Mel::nemo(512, 16_000, 970_000),
            ..RULE
        };
        let samples: Vec<f32> = (0..960).map(|idx| ((idx * idx) as f32).sin()).collect();
        let mel = log_mel(&samples, rule, 6);
        for band in 0..80 {
            let values: Vec<f32> = mel[band..].iter().step_by(80).copied().collect();
            let mean = values.iter().sum::<f32>() / 6.0;
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / 5.0;
            assert!(mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-3, "{band}");
        }
    }

    #[test]
    fn emphasis_takes_a_share_of_the_sample_before() {
        let mel = |emphasis| Mel::nemo(512, 16_000, emphasis);
        assert_eq!(emphasised(&[1.0, 2.0, 4.0], mel(0)), None);
        let less = emphasised(&[1.0, 2.0, 4.0], mel(500_000));
        assert_eq!(less, Some(vec![1.0, 1.5, 3.0]));
    }

    #[test]
    fn a_frame_of_kaldi_loses_its_mean_and_is_emphasised_by_itself() {
        let rule = SoundRule {
            mel: Mel {
                gain: 2,
                ..Mel::kaldi(SoundWindow::Povey, 16_000, BandNorm::None)
            },
            ..RULE
        };
        let mut frame = [1.0, 2.0, 6.0];
        Fourier::new(rule).begin(&mut frame);
        let expected = [-2.0 * 0.03, -1.0 + 2.0 * 0.97, 3.0 + 0.97].map(|v| 2.0 * v);
        for (found, expected) in frame.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{frame:?}");
        }
    }

    #[test]
    fn frames_beyond_the_sound_are_zero_where_windows_lie_inside() {
        let rule = SoundRule {
            mel: Mel::kaldi(SoundWindow::Symmetric, 16_000, BandNorm::None),
            ..RULE
        };
        let samples: Vec<f32> = (0..560).map(|idx| ((idx * idx) as f32).sin()).collect();
        let mel = log_mel(&samples, rule, 3);
        assert!(mel[..2 * 80].iter().all(|value| *value != 0.0));
        assert!(mel[2 * 80..].iter().all(|value| *value == 0.0));
    }
}
