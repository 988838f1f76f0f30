//! Resampling weights: the source samples of each sample of a resized line.

/// A filter, by Pillow's number in `preprocessor_config.json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    Nearest,
    Lanczos,
    Bilinear,
    Bicubic,
    Box,
    Hamming,
}

/// How a grid of stored rows, one per place, is resampled to another grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resampling {
    /// Bicubic over the four nearest, a = −0.75, at any scale; beyond the ends, the end samples repeat.
    Nearest,
    /// Bicubic with a support that grows with the scale (antialiased), a = −0.5.
    Antialiased,
    /// Linear between the two nearest; beyond the ends, the end samples repeat.
    Linear,
    /// Linear with steps a little too short, as if there were a tenth of a place more; as in PyTorch on a CPU, a line of equal
    /// length is kept.
    LinearShort,
    /// Linear between the two nearest, where the first and the last sample stay at the ends.
    LinearToEnds,
    /// Bicubic over the four nearest, a = −0.75, where the first and the last sample stay at the ends.
    CubicToEnds,
    /// Linear with a support that grows with the scale (antialiased).
    LinearAntialiased,
    /// Linear between the two nearest, to a square as long as the longer side, whose rest is cut off.
    LinearSquare,
    /// Linear between the two nearest, where nothing lies beyond the ends. Patches take the places of a picture whose rows are
    /// columns, one after another.
    LinearTurned,
    /// The line again and again, cut at the end.
    Tiles,
    /// The sample of the bin that the beginning of each place lies in, computed in f32 as in training.
    Bins,
}

/// Source samples of one new sample, with their weights.
pub type Taps = Vec<(usize, f64)>;

impl Filter {
    /// The filter with a Pillow number.
    pub fn of_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Nearest,
            1 => Self::Lanczos,
            2 => Self::Bilinear,
            3 => Self::Bicubic,
            4 => Self::Box,
            5 => Self::Hamming,
            _ => return None,
        })
    }

    /// The name in messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Lanczos => "Lanczos",
            Self::Bilinear => "bilinear",
            Self::Bicubic => "bicubic",
            Self::Box => "box",
            Self::Hamming => "Hamming",
        }
    }

    /// Its radius, in samples.
    fn reach(self) -> f64 {
        match self {
            Self::Nearest => 0.0,
            Self::Box => 0.5,
            Self::Bilinear | Self::Hamming => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    fn at(self, x: f64) -> f64 {
        let sinc = |x: f64| {
            let angle = x * std::f64::consts::PI;
            if angle == 0.0 {
                1.0
            } else {
                angle.sin() / angle
            }
        };
        let size = x.abs();
        match self {
            Self::Nearest => 1.0,
            Self::Box => f64::from(x > -0.5 && x <= 0.5),
            Self::Bilinear => (1.0 - size).max(0.0),
            Self::Hamming if size < 1.0 => {
                sinc(size)
                    * (f64::from(0.54f32)
                        + f64::from(0.46f32) * (size * std::f64::consts::PI).cos())
            }
            Self::Bicubic => cubic(size, -0.5),
            Self::Lanczos if size < 3.0 => sinc(x) * sinc(x / 3.0),
            Self::Hamming | Self::Lanczos => 0.0,
        }
    }
}

/// The cubic convolution kernel of Keys (1981) at a distance.
fn cubic(size: f64, a: f64) -> f64 {
    if size < 1.0 {
        ((a + 2.0) * size - (a + 3.0)) * size * size + 1.0
    } else if size < 2.0 {
        (((size - 5.0) * size + 8.0) * size - 4.0) * a
    } else {
        0.0
    }
}

/// The taps for resizing a line of `from` samples to `to` samples.
pub fn taps(from: usize, to: usize, resampling: Resampling) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let last = from.saturating_sub(1) as f64;
    let centre = |idx: usize| (idx as f64 + 0.5) * scale - 0.5;
    let linear = |at: f64| {
        let (whole, part) = (at.floor(), at - at.floor());
        let near = |by: f64| (whole + by).clamp(0.0, last) as usize;
        vec![(near(0.0), 1.0 - part), (near(1.0), part)]
    };
    let four = |at: f64| {
        let (whole, part) = (at.floor(), at - at.floor());
        let near = |by: f64| {
            let weight = cubic((part - by).abs(), -0.75);
            ((whole + by).clamp(0.0, last) as usize, weight)
        };
        [-1.0, 0.0, 1.0, 2.0].map(near).to_vec()
    };
    // The step that leads from the first sample to the last.
    let to_ends = last / to.saturating_sub(1).max(1) as f64;
    let all = 0..to;
    match resampling {
        Resampling::Antialiased => filter_taps(from, to, Filter::Bicubic),
        Resampling::LinearAntialiased => filter_taps(from, to, Filter::Bilinear),
        Resampling::Linear | Resampling::LinearSquare => {
            all.map(|idx| linear(centre(idx))).collect()
        }
        Resampling::LinearTurned => {
            let two = |at: f64| {
                [at.floor(), at.floor() + 1.0].map(|near| (near, 1.0 - (at - near).abs()))
            };
            let inside = |(near, weight): (f64, f64)| {
                (0.0..=last)
                    .contains(&near)
                    .then_some((near as usize, weight))
            };
            all.map(|idx| two(centre(idx)).into_iter().filter_map(inside).collect())
                .collect()
        }
        Resampling::LinearShort if from == to => all.map(|idx| vec![(idx, 1.0)]).collect(),
        Resampling::LinearShort => {
            let step = from as f64 / (to as f64 + 0.1);
            all.map(|idx| linear((idx as f64 + 0.5) * step - 0.5))
                .collect()
        }
        Resampling::LinearToEnds => all.map(|idx| linear(idx as f64 * to_ends)).collect(),
        Resampling::Tiles => all.map(|idx| vec![(idx % from.max(1), 1.0)]).collect(),
        Resampling::Bins => bins(from, to).map(|bin| vec![(bin, 1.0)]).collect(),
        Resampling::Nearest => all.map(|idx| four(centre(idx))).collect(),
        Resampling::CubicToEnds => all.map(|idx| four(idx as f64 * to_ends)).collect(),
    }
}

/// The bin of each of `to` places: the number of borders between `from` bins that do not lie after its beginning.
fn bins(from: usize, to: usize) -> impl Iterator<Item = usize> {
    // Borders and places are rounded to f32 on the way, as in training: where both should be equal, the last bit decides.
    let width = 1.0 / from.max(1) as f64;
    let borders: Vec<f32> = (1..from)
        .map(|nth| (width + (nth - 1) as f64 * width) as f32)
        .collect();
    let step = 1.0 / to.max(1) as f32;
    (0..to).map(move |idx| {
        let at = (idx as f32 * step).min((1.0 - 1e-6) as f32);
        borders.iter().filter(|border| **border <= at).count()
    })
}

/// The taps of a filter that widens when a line is shortened; normalised at the ends.
pub(super) fn filter_taps(from: usize, to: usize, filter: Filter) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let widened = scale.max(1.0);
    let reach = filter.reach() * widened;
    let one = |idx: usize| {
        let centre = (idx as f64 + 0.5) * scale;
        if filter == Filter::Nearest {
            return vec![((centre as usize).min(from - 1), 1.0)];
        }
        let first = (centre - reach + 0.5).max(0.0) as usize;
        let end = ((centre + reach + 0.5).max(0.0) as usize).min(from);
        let weight = |at: usize| filter.at((at as f64 - centre + 0.5) / widened);
        let mut taps: Taps = (first..end).map(|at| (at, weight(at))).collect();
        let sum: f64 = taps.iter().map(|(_, weight)| weight).sum();
        if sum != 0.0 {
            taps.iter_mut().for_each(|(_, weight)| *weight /= sum);
        }
        taps
    };
    (0..to).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_every_filter_sum_to_one_and_equal_lengths_are_copied() {
        for number in 0..6 {
            let filter = Filter::of_number(number).expect("known");
            for (from, to) in [(7, 3), (3, 7), (5, 5), (1, 4), (4, 1)] {
                let taps = filter_taps(from, to, filter);
                assert_eq!(taps.len(), to);
                for taps in taps {
                    let sum: f64 = taps.iter().map(|(_, weight)| weight).sum();
                    assert!((sum - 1.0).abs() < 1e-12);
                    assert!(taps.iter().all(|(at, _)| *at < from));
                }
            }
            for (idx, taps) in filter_taps(5, 5, filter).iter().enumerate() {
                let own = taps.iter().find(|(at, _)| *at == idx).expect("its own");
                assert!((own.1 - 1.0).abs() < 1e-12, "{filter:?} {taps:?}");
            }
        }
        assert_eq!(Filter::of_number(6), None);
    }

    #[test]
    fn every_resampling_keeps_an_equal_grid_and_bins_share_samples() {
        for resampling in [
            Resampling::Nearest,
            Resampling::Antialiased,
            Resampling::Linear,
            Resampling::LinearShort,
            Resampling::LinearToEnds,
            Resampling::CubicToEnds,
            Resampling::LinearAntialiased,
            Resampling::Tiles,
            Resampling::Bins,
        ] {
            for (idx, taps) in taps(5, 5, resampling).iter().enumerate() {
                let own: f64 = taps
                    .iter()
                    .filter(|(at, _)| *at == idx)
                    .map(|tap| tap.1)
                    .sum();
                assert!((own - 1.0).abs() < 1e-6, "{resampling:?} {taps:?}");
            }
        }
        let bin = |taps: &Taps| taps[0].0;
        let wide: Vec<usize> = taps(4, 6, Resampling::Bins).iter().map(bin).collect();
        assert_eq!(wide, [0, 0, 1, 2, 2, 3]);
        let tiles: Vec<usize> = taps(3, 7, Resampling::Tiles).iter().map(bin).collect();
        assert_eq!(tiles, [0, 1, 2, 0, 1, 2, 0]);
        let ends = taps(5, 3, Resampling::LinearToEnds);
        assert_eq!((ends[1][0], ends[2][0]), ((2, 1.0), (4, 1.0)));
        assert_eq!(taps(2, 4, Resampling::Linear)[1], [(0, 0.75), (1, 0.25)]);
        let short = taps(2, 4, Resampling::LinearShort);
        let at = 1.5 * 2.0 / 4.1 - 0.5;
        assert_eq!((short[1][0].0, short[1][1].0), (0, 1));
        assert!((short[1][1].1 - at).abs() < 1e-12, "{short:?}");
    }
}
