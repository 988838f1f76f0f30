//! Colour map of patterns and grids, the same as on the screen.

use colorgrad::Gradient;

/// Number of colours in the map.
pub(super) const STEPS: usize = 62;

/// Colour of NaN, which is not part of the map.
pub(super) const NOT_A_NUMBER: [u8; 3] = [255, 0, 170];

/// Colours of shares between 0 and 1.
pub(super) struct Colours {
    steps: Vec<[u8; 3]>,
}

impl Colours {
    pub fn new() -> Self {
        // Viridis: perceptually uniform, and still ordered for colour-blind readers.
        let gradient = colorgrad::preset::viridis();
        let steps = (0..STEPS).map(|step| {
            let [r, g, b, _] = gradient.at(step as f32 / (STEPS - 1) as f32).to_rgba8();
            [r, g, b]
        });
        Self {
            steps: steps.collect(),
        }
    }

    /// Returns all colours, from 0 to 1.
    pub fn steps(&self) -> &[[u8; 3]] {
        &self.steps
    }

    /// Returns the index of a share's colour.
    pub fn step(share: f64) -> usize {
        (share.clamp(0.0, 1.0) * (STEPS - 1) as f64).round() as usize
    }

    /// Returns the colour of a share in CSS; NaN has its own colour.
    pub fn css(&self, share: f64) -> String {
        let [r, g, b] = if share.is_nan() {
            NOT_A_NUMBER
        } else {
            self.steps[Self::step(share)]
        };
        format!("#{r:02x}{g:02x}{b:02x}")
    }

    /// Returns the whole map as a CSS gradient.
    pub fn css_gradient(&self) -> String {
        let stops: Vec<String> = (0..=8).map(|i| self.css(f64::from(i) / 8.0)).collect();
        format!("linear-gradient(to right,{})", stops.join(","))
    }
}

/// Whether text on the colour of a share has to be dark.
pub(super) fn wants_dark_text(share: f64) -> bool {
    share > 0.6
}
