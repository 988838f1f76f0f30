//! Colour maps: all steps of each, at each colour depth. A legend shows exactly these steps.

use colorgrad::Gradient;
use ratatui::style::Color;

use super::inks::OWN;
use super::{Depth, Ground};

/// Number of steps of a map in true colour.
const STEPS: usize = 256;

/// Colour of NaN, which no map contains.
const NOT_A_NUMBER: [u8; 3] = [255, 0, 170];

/// Sequential maps. All are ordered by lightness, so that they are readable with colour blindness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sequential {
    #[default]
    Viridis,
    /// Designed to look the same with and without red-green colour blindness.
    Cividis,
    Magma,
}

/// Diverging maps, from decreases over no change to increases. Neither relies on telling red from green of equal lightness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Diverging {
    #[default]
    BlueOrange,
    PurpleGreen,
}

impl Sequential {
    pub const NAMES: [(&'static str, Self); 3] = [
        ("viridis", Self::Viridis),
        ("cividis", Self::Cividis),
        ("magma", Self::Magma),
    ];

    pub fn named(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, map)| *map)
    }

    /// Returns the steps at a depth, from nothing to most.
    pub(super) fn steps(self, depth: Depth) -> Steps {
        // The nearest colours of the gradients in xterm's cube, chosen so that lightness rises in distinguishable steps.
        let (indexed, sixteen): (&[u8], &[u8]) = match self {
            Self::Viridis => (
                &[53, 54, 24, 30, 36, 71, 77, 113, 148, 184, 220],
                &[4, 12, 6, 10, 11],
            ),
            Self::Cividis => (&[17, 18, 24, 59, 102, 144, 179, 185, 220], &[4, 8, 3, 11]),
            Self::Magma => (
                &[17, 53, 54, 90, 126, 161, 167, 209, 216, 222, 229],
                &[1, 5, 9, 3, 11],
            ),
        };
        match depth {
            Depth::Indexed => Steps::of(indexed),
            Depth::Sixteen => Steps::of(sixteen),
            Depth::Truecolor | Depth::None => {
                let rgba = |share: f32| match self {
                    Self::Viridis => colorgrad::preset::viridis().at(share),
                    Self::Cividis => colorgrad::preset::cividis().at(share),
                    Self::Magma => colorgrad::preset::magma().at(share),
                };
                Steps::mixed(|share| {
                    let [r, g, b, _] = rgba(share).to_rgba8();
                    [r, g, b]
                })
            }
        }
    }
}

impl Diverging {
    pub const NAMES: [(&'static str, Self); 2] = [
        ("blue-orange", Self::BlueOrange),
        ("purple-green", Self::PurpleGreen),
    ];

    pub fn named(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, map)| *map)
    }

    /// Returns the steps at a depth, from the largest decrease to the largest increase; the middle one means no change.
    pub(super) fn steps(self, depth: Depth, ground: Ground) -> Steps {
        use Diverging::{BlueOrange, PurpleGreen};
        use Ground::{Dark, Light};
        let (indexed, sixteen): (&[u8], &[u8]) = match (self, ground) {
            (BlueOrange, Dark) => (&[39, 32, 25, 24, 236, 94, 130, 166, 208], &[12, 4, 0, 1, 9]),
            (BlueOrange, Light) => (
                &[25, 68, 111, 153, 254, 223, 216, 209, 166],
                &[4, 12, 15, 9, 1],
            ),
            (PurpleGreen, Dark) => (
                &[177, 134, 97, 60, 236, 65, 71, 77, 120],
                &[13, 5, 0, 2, 10],
            ),
            (PurpleGreen, Light) => (
                &[90, 133, 176, 225, 254, 194, 150, 71, 28],
                &[5, 13, 15, 10, 2],
            ),
        };
        match depth {
            Depth::Indexed => Steps::of(indexed),
            Depth::Sixteen => Steps::of(sixteen),
            Depth::Truecolor | Depth::None => {
                let middle = match ground {
                    Dark => [40u8, 44, 52],
                    Light => [222, 224, 228],
                };
                let ends: [[u8; 3]; 2] = match self {
                    BlueOrange => [[46, 132, 226], [226, 86, 58]],
                    PurpleGreen => [[168, 96, 214], [52, 168, 83]],
                };
                Steps::mixed(|share| {
                    let share = 2.0 * share - 1.0;
                    let end = ends[usize::from(share > 0.0)];
                    let channel = |c: usize| {
                        let (from, to) = (f32::from(middle[c]), f32::from(end[c]));
                        (from + (to - from) * share.abs()).round() as u8
                    };
                    [channel(0), channel(1), channel(2)]
                })
            }
        }
    }
}

/// Colours of a map, in order, each with its RGB value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Steps(Vec<(Color, [u8; 3])>);

impl Steps {
    fn of(indices: &[u8]) -> Self {
        Self(indices.iter().map(|n| (colour(*n), rgb_of(*n))).collect())
    }

    fn mixed(at: impl Fn(f32) -> [u8; 3]) -> Self {
        let rgb = |i: usize| at(i as f32 / (STEPS - 1) as f32);
        let step = |rgb: [u8; 3]| (Color::Rgb(rgb[0], rgb[1], rgb[2]), rgb);
        Self((0..STEPS).map(rgb).map(step).collect())
    }

    /// Returns the step of a share between 0 and 1. If steps are few, each covers an equal part of the scale.
    pub fn at(&self, share: f32) -> (Color, [u8; 3]) {
        let (n, share) = (self.0.len(), share.clamp(0.0, 1.0));
        let idx = if n == STEPS {
            (share * (n - 1) as f32).round() as usize
        } else {
            ((share * n as f32) as usize).min(n - 1)
        };
        self.0[idx]
    }

    /// Returns the number of steps if they are few enough to be distinguished and shown one by one.
    pub fn n_apart(&self) -> Option<usize> {
        (self.0.len() < STEPS).then_some(self.0.len())
    }

    /// Returns the colour of NaN, which differs from all steps.
    pub fn not_a_number(&self, depth: Depth) -> (Color, [u8; 3]) {
        let [r, g, b] = NOT_A_NUMBER;
        let candidates = match depth {
            Depth::Truecolor | Depth::None => return (Color::Rgb(r, g, b), NOT_A_NUMBER),
            Depth::Indexed => [199, 198],
            Depth::Sixteen => [13, 9],
        };
        let is_free = |n: &&u8| self.0.iter().all(|(step, _)| *step != colour(**n));
        let n = *candidates.iter().find(is_free).unwrap_or(&candidates[0]);
        (colour(n), rgb_of(n))
    }
}

/// Returns an indexed colour; the first 16 are the terminal's own.
fn colour(n: u8) -> Color {
    let named = OWN.get(usize::from(n)).copied();
    named.unwrap_or(Color::Indexed(n))
}

/// Levels of xterm's colour cube.
pub(super) const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// Returns the RGB value of an indexed colour as in xterm: sixteen named ones, a cube with six levels per side, 24 greys.
pub fn rgb_of(n: u8) -> [u8; 3] {
    const NAMED: [[u8; 3]; 16] = [
        [0, 0, 0],
        [205, 0, 0],
        [0, 205, 0],
        [205, 205, 0],
        [0, 0, 238],
        [205, 0, 205],
        [0, 205, 205],
        [229, 229, 229],
        [127, 127, 127],
        [255, 0, 0],
        [0, 255, 0],
        [255, 255, 0],
        [92, 92, 255],
        [255, 0, 255],
        [0, 255, 255],
        [255, 255, 255],
    ];
    match n {
        0..16 => NAMED[usize::from(n)],
        16..232 => [(n - 16) / 36, (n - 16) / 6 % 6, (n - 16) % 6].map(|i| LEVELS[usize::from(i)]),
        _ => [8 + 10 * (n - 232); 3],
    }
}

/// Relative luminance, as WCAG 2.2 defines it: 0 for black, 1 for white.
pub(super) fn luminance(rgb: [u8; 3]) -> f64 {
    let linear = rgb.map(|c| match f64::from(c) / 255.0 {
        c if c <= 0.04045 => c / 12.92,
        c => ((c + 0.055) / 1.055).powf(2.4),
    });
    0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPTHS: [Depth; 3] = [Depth::Truecolor, Depth::Indexed, Depth::Sixteen];

    #[test]
    fn every_sequential_map_rises_in_lightness_at_every_depth() {
        for (name, map) in Sequential::NAMES {
            for depth in DEPTHS {
                let Steps(steps) = map.steps(depth);
                let light: Vec<f64> = steps.iter().map(|(_, rgb)| luminance(*rgb)).collect();
                let falls = light.windows(2).position(|two| two[0] > two[1] + 1e-3);
                assert_eq!(falls, None, "{name} {depth:?}");
            }
        }
    }

    #[test]
    fn every_diverging_map_is_symmetric_around_its_middle() {
        for (name, map) in Diverging::NAMES {
            for (depth, ground) in DEPTHS
                .iter()
                .flat_map(|depth| [(*depth, Ground::Dark), (*depth, Ground::Light)])
            {
                let steps = map.steps(depth, ground);
                if let Some(n) = steps.n_apart() {
                    assert_eq!(n % 2, 1, "{name} {depth:?}");
                    assert_eq!(steps.at(0.5), steps.0[n / 2], "{name} {depth:?}");
                }
                let [loss, middle, gain] = [0.0, 0.5, 1.0].map(|share| steps.at(share).0);
                assert!(
                    loss != middle && middle != gain && loss != gain,
                    "{name} {depth:?}"
                );
            }
        }
    }

    #[test]
    fn steps_are_distinct_and_differ_from_the_colour_of_nan() {
        for depth in [Depth::Indexed, Depth::Sixteen] {
            let sequential = Sequential::NAMES.map(|(_, map)| map.steps(depth));
            let grounds = [Ground::Dark, Ground::Light];
            let diverging = Diverging::NAMES
                .iter()
                .flat_map(|(_, map)| grounds.map(|ground| map.steps(depth, ground)));
            for steps in sequential.into_iter().chain(diverging) {
                let colours: Vec<Color> = steps.0.iter().map(|(colour, _)| *colour).collect();
                for (idx, colour) in colours.iter().enumerate() {
                    assert!(
                        !colours[idx + 1..].contains(colour),
                        "{colour:?} {colours:?}"
                    );
                }
                assert!(
                    !colours.contains(&steps.not_a_number(depth).0),
                    "{colours:?}"
                );
            }
        }
    }

    #[test]
    fn each_step_covers_an_equal_part_of_the_scale() {
        let steps = Sequential::Viridis.steps(Depth::Sixteen);
        let n = steps.n_apart().expect("few steps");
        for idx in 0..n {
            let (begins, ends) = (idx as f32 / n as f32, (idx + 1) as f32 / n as f32);
            for share in [begins + 1e-4, ends - 1e-4] {
                assert_eq!(steps.at(share), steps.0[idx]);
            }
        }
        assert_eq!(steps.at(1.0), steps.0[n - 1]);
    }
}
