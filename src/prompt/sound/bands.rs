//! How the frames of a spectrogram are made: window, ends of the sound, bands, logarithm, normalisation.

/// The settings of a spectrogram that do not say how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mel {
    /// Length of the Fourier transform: a window that is shorter is padded with zeros.
    pub n_fourier: usize,
    pub window: SoundWindow,
    pub ends: Ends,
    /// The share of the sample before that is taken from each sample, in millionths.
    pub emphasis: u32,
    /// Each frame loses its mean before it is emphasised, and is emphasised by itself, as in Kaldi.
    pub by_frame: bool,
    /// Multiplies samples: Kaldi counts them in steps of 16 bits.
    pub gain: u32,
    pub bands: Bands,
    pub log: LogPower,
    pub norm: BandNorm,
    /// Frames that stand beside each other in one row; fewer at the end are left out, or zeros follow them.
    pub n_joined: usize,
}

/// The weights of the samples in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoundWindow {
    /// Hann's, of which the sample behind the last would be the first again.
    Periodic,
    /// Hann's, whose last weight is 0 as the first is.
    Symmetric,
    /// The same to the power 0.85, as in Kaldi.
    Povey,
}

/// Where frames lie, and what is beyond the ends of the sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Around every hop-th sample; the sound is mirrored at its ends.
    Mirrored,
    /// The same, with silence behind the sound. A frame whose middle lies in the sound counts, or only one that a whole hop follows.
    MirroredThenSilent { counts_part: bool },
    /// Around every hop-th sample; silence is beyond the ends.
    Silent,
    /// Only where a whole window lies in the sound.
    Inside,
}

/// Where bands lie, and what a band weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bands {
    /// Triangles of equal area over frequencies, as in Slaney's Auditory Toolbox, up to some frequency.
    EqualArea { highest: usize },
    /// Triangles of equal height over the mel scale of HTK, between two frequencies.
    EqualHeight { lowest: usize, highest: usize },
}

/// The logarithm of a band's power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogPower {
    /// To base 10 of at least 1e-10.
    Decimal,
    /// Natural, of the power and 2^−24.
    NaturalOfMore,
    /// Natural, of at least 1e-5.
    NaturalFromFloor,
    /// Natural, of at least 2^−23.
    NaturalFromEpsilon,
}

/// What happens to the logarithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BandNorm {
    /// At most 8 below the largest; then 4 is added, and the sum divided by 4.
    Whisper,
    /// The same, where the largest is taken to be some number of billionths.
    WhisperBelow(i64),
    /// Each band gets mean 0 and variance 1 over the sound.
    PerBand(Deviation),
    /// A mean is taken away, and a divisor divides, both in billionths.
    Fixed {
        mean: i64,
        divisor: i64,
    },
    None,
}

/// What a band is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deviation {
    /// The deviation of a sample, and 1e-5, as in NeMo.
    Guarded,
    /// The root of the variance of a sample and 1e-7.
    OfSample,
    /// The deviation over all frames.
    OfAll,
}

impl Mel {
    /// Whisper's.
    pub const fn whisper(n_window: usize) -> Self {
        Self {
            n_fourier: n_window,
            window: SoundWindow::Periodic,
            ends: Ends::Mirrored,
            emphasis: 0,
            by_frame: false,
            gain: 1,
            n_joined: 1,
            bands: Bands::EqualArea { highest: 8_000 },
            log: LogPower::Decimal,
            norm: BandNorm::Whisper,
        }
    }

    /// NeMo's, for sounds of some rate.
    pub const fn nemo(n_fourier: usize, rate: usize, emphasis: u32) -> Self {
        Self {
            n_fourier,
            window: SoundWindow::Symmetric,
            ends: Ends::Silent,
            emphasis,
            by_frame: false,
            gain: 1,
            n_joined: 1,
            bands: Bands::EqualArea { highest: rate / 2 },
            log: LogPower::NaturalOfMore,
            norm: BandNorm::PerBand(Deviation::Guarded),
        }
    }

    /// LASR's.
    pub const fn lasr(n_fourier: usize) -> Self {
        Self {
            n_fourier,
            window: SoundWindow::Symmetric,
            ends: Ends::Inside,
            emphasis: 0,
            by_frame: false,
            gain: 1,
            n_joined: 1,
            bands: Bands::EqualHeight {
                lowest: 125,
                highest: 7_500,
            },
            log: LogPower::NaturalFromFloor,
            norm: BandNorm::None,
        }
    }

    /// Kaldi's filter banks, for sounds of some rate.
    pub const fn kaldi(window: SoundWindow, rate: usize, norm: BandNorm) -> Self {
        Self {
            n_fourier: 512,
            window,
            ends: Ends::Inside,
            emphasis: 970_000,
            by_frame: true,
            gain: 1 << 15,
            n_joined: 1,
            bands: Bands::EqualHeight {
                lowest: 20,
                highest: rate / 2,
            },
            log: LogPower::NaturalFromEpsilon,
            norm,
        }
    }
}
