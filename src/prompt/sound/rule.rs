//! How a model hears, and a sound as it hears it.

/// How a model hears: the spectrogram that it was trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoundRule {
    /// Samples a second.
    pub rate: usize,
    /// Samples of the window that each frame is taken from.
    pub n_window: usize,
    /// Samples from one frame to the next.
    pub hop: usize,
    pub n_mels: usize,
    pub n_frames: usize,
    /// Frames that become one position of the encoder.
    pub frames_a_position: usize,
}

impl SoundRule {
    /// Samples that are heard: what is missing is silence, and what is more is cut.
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

    pub(super) fn seconds(self, n_samples: usize) -> f64 {
        n_samples as f64 / self.rate as f64
    }
}

/// A sound as a model hears it.
#[derive(Debug, Clone, Default)]
pub struct Sound {
    /// What was asked for: a path, or the name of the built-in sound.
    pub asked: String,
    /// The log-mel spectrogram. // [frame, mel]
    pub values: Vec<f32>,
    pub n_mels: usize,
    /// Positions of the encoder that begin before the sound ends.
    pub n_real: usize,
    /// What there is to say of how the file was taken.
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
