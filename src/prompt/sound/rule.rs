//! The audio preprocessing of a model, and its result.

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
}

impl SoundRule {
    /// Number of samples that the model receives: a shorter sound is padded with silence, a longer one is cut.
    pub fn n_samples(self) -> usize {
        self.n_frames * self.hop
    }

    pub fn n_positions(self) -> usize {
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
    /// The log-mel spectrogram. // [frame, mel]
    pub values: Vec<f32>,
    pub n_mels: usize,
    /// Number of encoder positions that begin before the sound ends; the others are padding.
    pub n_real: usize,
    /// The remark that the sound was cut; `None` if it was not.
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
