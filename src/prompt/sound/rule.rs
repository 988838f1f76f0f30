//! The audio preprocessing of a model, and its result.

use attnscope_checkpoint::values::Values;

/// A model's audio preprocessing: the shape of the spectrogram that it was trained on.
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
    /// Frames per position of the encoder.
    pub frames_per_position: usize,
    /// Set if the model hears samples instead of a spectrogram: a frame is a sample.
    pub waves: Option<Waves>,
    /// Set if the model reads rows of numbers as they are given: a frame is a row of `n_mels` of them, and nothing is heard.
    pub is_rows: bool,
}

/// Upper limit of convolutions over samples.
pub const MOST_CONVOLUTIONS: usize = 16;

/// How samples become positions: through convolutions that read no further than the sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waves {
    /// Samples are shifted to mean 0 and scaled to variance 1.
    pub is_normalised: bool,
    /// Added to the variance that samples are divided by: 10 to this power.
    pub added_decades: i32,
    /// Width and stride of each convolution; those beyond the last are 1.
    pub steps: [[usize; 2]; MOST_CONVOLUTIONS],
}

impl Waves {
    /// Number of positions of some samples.
    pub fn n_positions(self, n_samples: usize) -> usize {
        let after = |n: usize, [wide, stride]: [usize; 2]| match n.checked_sub(wide) {
            Some(left) => left / stride.max(1) + 1,
            None => 0,
        };
        self.steps.into_iter().fold(n_samples, after)
    }

    /// Samples shifted to mean 0 and scaled to variance 1, if the model was trained on such.
    pub(super) fn values(self, samples: &[f32]) -> Vec<f32> {
        if !self.is_normalised {
            return samples.to_vec();
        }
        let n = samples.len().max(1) as f64;
        let mean = samples.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        let squares = samples.iter().map(|v| (f64::from(*v) - mean).powi(2));
        let scale = 1.0 / (squares.sum::<f64>() / n + 10f64.powi(self.added_decades)).sqrt();
        let of = |v: &f32| ((f64::from(*v) - mean) * scale) as f32;
        samples.iter().map(of).collect()
    }
}

impl SoundRule {
    /// The rule of a model that reads rows of numbers.
    pub fn of_rows(width: usize) -> Self {
        Self {
            rate: 1,
            n_window: 1,
            hop: 1,
            n_mels: width,
            n_frames: usize::MAX,
            frames_per_position: 1,
            waves: None,
            is_rows: true,
        }
    }

    /// Number of samples that the model receives: a shorter sound is padded with silence, a longer one is cut.
    pub fn n_samples(self) -> usize {
        self.n_frames * self.hop
    }

    pub fn n_positions(self) -> usize {
        if let Some(waves) = self.waves {
            return waves.n_positions(self.n_frames);
        }
        self.n_frames.div_ceil(self.frames_per_position)
    }

    /// Seconds from one position of the encoder to the next.
    pub fn seconds_per_position(self) -> f64 {
        (self.hop * self.frames_per_position) as f64 / self.rate as f64
    }

    pub(super) fn seconds(self, n_samples: usize) -> f64 {
        n_samples as f64 / self.rate as f64
    }
}

/// A preprocessed sound, as the model receives it.
#[derive(Debug, Clone, Default)]
pub struct Sound {
    /// The prompt: a path, or the name of the built-in sound.
    pub asked: String,
    /// The log-mel spectrogram, samples, or the rows that were given. // [frame, mel]
    pub values: Vec<f32>,
    pub n_mels: usize,
    /// Number of encoder positions that begin before the sound ends; the others are padding.
    pub n_real: usize,
    /// The remark that the sound was cut; `None` if it was not.
    pub said: Option<String>,
    /// The file of rows, for a model that reads rows of numbers.
    pub rows: Option<Values>,
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
