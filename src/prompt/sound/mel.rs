//! Samples → log power in mel bands, which are spaced like perceived pitch.

use rayon::prelude::*;

use super::rule::SoundRule;

/// Lower limit of the power, before the logarithm.
const FLOOR: f64 = 1e-10;
/// Powers more than this many decades below the maximum are raised to that level.
const RANGE: f64 = 8.0;
/// The upper frequency limit of the bands, at any sample rate.
const HIGHEST: f64 = 8_000.0;

/// The log-mel spectrogram as in Whisper: frames around every `hop`th sample, mirrored at both ends. // [frame, mel]
pub(super) fn log_mel(samples: &[f32], rule: SoundRule) -> Vec<f32> {
    let filters = Filters::new(rule);
    let fourier = Fourier::new(rule.n_window);
    let silence = vec![FLOOR.log10(); rule.n_mels];
    let frame = |frame_idx: usize| -> Vec<f64> {
        match fourier.power(samples, frame_idx * rule.hop) {
            Some(power) => filters.apply(&power),
            None => silence.clone(),
        }
    };
    let frames: Vec<Vec<f64>> = (0..rule.n_frames).into_par_iter().map(frame).collect();
    let largest = frames.iter().flatten().copied().fold(f64::MIN, f64::max);
    let least = largest - RANGE;
    let scaled = frames
        .iter()
        .flatten()
        .map(|log| (log.max(least) + 4.0) / 4.0);
    scaled.map(|value| value as f32).collect()
}

/// The power spectrum of a windowed frame.
struct Fourier {
    /// Hann's window, periodic.
    window: Vec<f64>,
    /// cos and sin of 2π·n/n_window.
    turns: Vec<(f64, f64)>,
}

impl Fourier {
    fn new(n: usize) -> Self {
        let angle = |idx: usize| std::f64::consts::TAU * idx as f64 / n as f64;
        Self {
            window: (0..n).map(|idx| 0.5 - 0.5 * angle(idx).cos()).collect(),
            turns: (0..n)
                .map(|idx| (angle(idx).cos(), angle(idx).sin()))
                .collect(),
        }
    }

    /// The power spectrum around a sample; `None` for silence. // [frequency]
    fn power(&self, samples: &[f32], centre: usize) -> Option<Vec<f64>> {
        let n = self.window.len();
        let first = centre as isize - (n / 2) as isize;
        let windowed: Vec<f64> = self
            .window
            .iter()
            .zip(first..)
            .map(|(weight, at)| weight * f64::from(samples[mirrored(at, samples.len())]))
            .collect();
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

/// Triangular mel filters of equal area, as in Slaney's Auditory Toolbox.
struct Filters {
    /// The first frequency bin of each band, and its weights from there on. // [mel]
    bands: Vec<(usize, Vec<f64>)>,
}

impl Filters {
    fn new(rule: SoundRule) -> Self {
        let n_frequencies = rule.n_window / 2 + 1;
        let nyquist = (rule.rate / 2) as f64;
        let frequency = |idx: usize| nyquist * idx as f64 / (n_frequencies - 1).max(1) as f64;
        let highest = mel_of(HIGHEST);
        let edge = |idx: usize| hertz_of(highest * idx as f64 / (rule.n_mels + 1) as f64);
        let band = |mel_idx: usize| {
            let [low, centre, high] = [edge(mel_idx), edge(mel_idx + 1), edge(mel_idx + 2)];
            let weight = |idx: usize| {
                let at = frequency(idx);
                let (up, down) = ((at - low) / (centre - low), (high - at) / (high - centre));
                // Whisper stores the filters as f32.
                f64::from((up.min(down).max(0.0) * 2.0 / (high - low)) as f32)
            };
            let first = (0..n_frequencies).find(|idx| weight(*idx) > 0.0);
            let first = first.unwrap_or(n_frequencies);
            let weights = (first..n_frequencies).map(weight);
            (first, weights.take_while(|weight| *weight > 0.0).collect())
        };
        Self {
            bands: (0..rule.n_mels).map(band).collect(),
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
            sum.max(FLOOR).log10()
        };
        self.bands.iter().map(log).collect()
    }
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
        waves: None,
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
            let mel = log_mel(&samples, RULE);
            let middle = &mel[3 * 80..4 * 80];
            let loudest = (0..80).max_by(|a, b| middle[*a].total_cmp(&middle[*b]));
            let centre = hertz_of(mel_of(HIGHEST) * (loudest.expect("bands") + 1) as f64 / 81.0);
            assert!((centre - pitch).abs() < 60.0, "{pitch} {centre}");
        }
    }

    #[test]
    fn the_power_spectrum_agrees_with_its_definition() {
        let samples: Vec<f32> = (0..30).map(|idx| ((idx * idx) as f32).sin()).collect();
        for n in [9, 12] {
            let fourier = Fourier::new(n);
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
        let mel = log_mel(&vec![0.0; RULE.n_samples()], RULE);
        assert!(mel.iter().all(|value| *value == -1.5));
    }
}
