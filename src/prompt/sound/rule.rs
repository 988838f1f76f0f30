//! The audio preprocessing of a model, and its result.

use attnscope_checkpoint::values::Values;

use super::bands::{Ends, Mel};

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
    pub mel: Mel,
    /// Set if the model hears samples instead of a spectrogram: a frame is a sample.
    pub waves: Option<Waves>,
    /// Set if the model hears a sound as long as it is: how its frames become positions. `None` if all sounds become equally long.
    pub steps: Option<Steps>,
    /// Samples that a sound has at least: a shorter one is lengthened with silence, which counts as sound.
    pub n_least: usize,
    /// Set if positions are patches of the spectrogram.
    pub patches: Option<SoundPatches>,
    /// Set if the model reads rows of numbers as they are given: a frame is a row of `n_mels` of them, and nothing is heard.
    pub is_rows: bool,
}

/// Upper limit of convolutions over samples.
pub const MOST_CONVOLUTIONS: usize = 16;

/// Positions that are patches of a spectrogram, all of the lowest bands first, behind learned rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoundPatches {
    /// Learned rows before the patches.
    pub n_first: usize,
    /// Number of patches along the bands, and along the frames.
    pub grid: [usize; 2],
    /// Frames from one patch to the next.
    pub stride: usize,
}

impl SoundPatches {
    pub fn n_positions(self) -> usize {
        self.n_first + self.grid[0] * self.grid[1]
    }
}

/// How frames become positions: through convolutions, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// Width, stride and padding (both ends together) of each convolution; those beyond the last are 1, 1, 0.
    convolutions: [[usize; 3]; MOST_CONVOLUTIONS],
    /// Set if frames pass through the convolutions in chunks of so many.
    chunk: Option<usize>,
}

impl Steps {
    /// The steps of some convolutions, of which those beyond the largest number are left out.
    pub fn of(convolutions: impl IntoIterator<Item = [usize; 3]>) -> Self {
        let mut steps = [[1, 1, 0]; MOST_CONVOLUTIONS];
        for (step, one) in steps.iter_mut().zip(convolutions) {
            *step = one;
        }
        Self {
            convolutions: steps,
            chunk: None,
        }
    }

    /// The same, for chunks of some frames.
    pub fn in_chunks(self, n_frames: usize) -> Self {
        Self {
            chunk: Some(n_frames.max(1)),
            ..self
        }
    }

    /// Number of positions of some frames.
    pub fn n_positions(self, n_frames: usize) -> usize {
        match self.chunk {
            None => self.n_of_chunk(n_frames),
            Some(chunk) => {
                let n_chunks = n_frames / chunk;
                let of_chunk = self.n_of_chunk(chunk);
                n_chunks.saturating_mul(of_chunk) + self.n_of_chunk(n_frames % chunk)
            }
        }
    }

    fn n_of_chunk(self, n_frames: usize) -> usize {
        let after = |n: usize, [wide, stride, padding]: [usize; 3]| {
            let padded = n.saturating_add(padding);
            match padded.checked_sub(wide).filter(|_| n > 0) {
                Some(left) => left / stride.max(1) + 1,
                None => 0,
            }
        };
        self.convolutions.into_iter().fold(n_frames, after)
    }
}

/// A sound that is heard as samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waves {
    /// Samples are shifted to mean 0 and scaled to variance 1.
    pub is_normalised: bool,
    /// Added to the variance that samples are divided by: 10 to this power.
    pub added_decades: i32,
    /// Set if a model puts silence around every sound, which counts as sound.
    pub silence: Option<Silence>,
}

/// Silence that a model hears before and behind a sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    /// A sound is lengthened to a multiple of so many samples first.
    pub multiple: usize,
    /// Samples at either end.
    pub around: usize,
}

impl Silence {
    /// Puts silence around a sound.
    fn put(self, samples: &mut Vec<f32>) {
        samples.resize(samples.len().next_multiple_of(self.multiple.max(1)), 0.0);
        samples.splice(0..0, std::iter::repeat_n(0.0, self.around));
        samples.resize(samples.len() + self.around, 0.0);
    }
}

impl Waves {
    /// Puts silence around a sound, if the model does.
    pub(super) fn surround(self, samples: &mut Vec<f32>) {
        if let Some(silence) = self.silence {
            silence.put(samples);
        }
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
            mel: Mel::whisper(1),
            waves: None,
            steps: None,
            n_least: 0,
            patches: None,
            is_rows: true,
        }
    }

    /// Number of samples that the model hears at most: a longer sound is cut, a shorter one is padded with silence if all become
    /// equally long.
    pub fn n_samples(self) -> usize {
        self.n_frames * self.hop
    }

    pub fn n_positions(self) -> usize {
        match (self.steps, self.patches) {
            (_, Some(patches)) => patches.n_positions(),
            (Some(steps), None) => steps.n_positions(self.n_frames),
            (None, None) => self.n_frames.div_ceil(self.frames_per_position),
        }
    }

    /// Number of frames of a sound that is heard as long as it is.
    pub fn n_frames_of(self, n_samples: usize) -> usize {
        let hop = self.hop.max(1);
        match self.mel.ends {
            _ if self.waves.is_some() => n_samples,
            Ends::Inside => match n_samples.checked_sub(self.n_window) {
                Some(left) => left / hop + 1,
                None => 0,
            },
            Ends::MirroredThenSilent { counts_part: true } => n_samples.div_ceil(hop),
            Ends::MirroredThenSilent { counts_part: false } | Ends::Mirrored | Ends::Silent => {
                n_samples / hop
            }
        }
    }

    /// Number of values in a row: those of all frames that stand beside each other.
    pub fn row_width(self) -> usize {
        self.n_mels * self.mel.n_joined.max(1)
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
