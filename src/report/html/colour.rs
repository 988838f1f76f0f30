//! Colour map of patterns and grids, the same as on the screen.
//!
//! The page's policy allows no style attributes. So every colour that a cell can have is a class, and [`Colours::rules`] defines the classes.

use std::fmt::Write as _;

use colorgrad::Gradient;

/// Number of colours of cells.
const STEPS: usize = 62;

/// Number of colours of maps, from whose indices the page's script reads probabilities.
pub(super) const LEVELS: usize = 253;

/// Number of colours where there are many maps, so that the file stays small: every fourth one.
pub(super) const FEW_LEVELS: usize = LEVELS.div_ceil(4);

/// Number of shades for the losses of tokens.
const SHADES: usize = 16;

/// Colour of NaN, which is not part of the map.
pub(super) const NOT_A_NUMBER: [u8; 3] = [255, 0, 170];

/// Probabilities labelled in the legend of maps.
pub(super) const TICKS: [f64; 5] = [0.0, 0.05, 0.25, 0.5, 1.0];

/// Share of the scale of maps. The square root is shown, since small probabilities are common and matter; all maps share one scale.
pub(super) fn share(probability: f64) -> f64 {
    probability.max(0.0).sqrt()
}

/// Colours of shares between 0 and 1.
pub(crate) struct Colours {
    steps: Vec<[u8; 3]>,
    levels: Vec<[u8; 3]>,
}

impl Colours {
    pub fn new() -> Self {
        // Viridis: perceptually uniform, and still ordered for colour-blind readers.
        let gradient = colorgrad::preset::viridis();
        let of = |n: usize| {
            let colours = (0..n).map(|step| {
                let [r, g, b, _] = gradient.at(step as f32 / (n - 1) as f32).to_rgba8();
                [r, g, b]
            });
            colours.collect()
        };
        Self {
            steps: of(STEPS),
            levels: of(LEVELS),
        }
    }

    /// Returns the colours of maps of [`LEVELS`] or [`FEW_LEVELS`], from 0 to 1.
    pub fn levels(&self, n_levels: usize) -> impl Iterator<Item = [u8; 3]> {
        let every = (LEVELS - 1) / (n_levels - 1).max(1);
        self.levels.iter().copied().step_by(every)
    }

    /// Returns the index of a share's colour among some levels.
    pub fn level(share: f64, n_levels: usize) -> usize {
        index(share, n_levels)
    }

    /// Returns the classes of a cell: the colour of a share, or that of NaN, and dark text where the colour is light.
    pub fn class(share: f64) -> String {
        match share {
            share if share.is_nan() => "nan".to_owned(),
            share if wants_dark_text(share) => format!("c{} d", index(share, STEPS)),
            share => format!("c{}", index(share, STEPS)),
        }
    }

    /// Returns the class of a token: its loss as a share of the largest that is told apart.
    pub fn class_of_loss(share: f64) -> String {
        match share {
            share if share.is_nan() => "nan".to_owned(),
            share => format!("l{}", index(share, SHADES)),
        }
    }

    /// Returns the class that gives an image its shape: width over height, in tenths.
    pub fn class_of_aspect(aspect: f64) -> String {
        format!("r{:.0}", 10.0 * aspect.clamp(0.5, 2.0))
    }

    /// Returns the rules of all these classes, and of the legend.
    pub fn rules(&self) -> String {
        let mut rules = String::new();
        for (step, [r, g, b]) in self.steps.iter().enumerate() {
            let _ = write!(rules, ".c{step}{{background:#{r:02x}{g:02x}{b:02x}}}");
        }
        let [r, g, b] = NOT_A_NUMBER;
        let _ = writeln!(rules, ".nan{{background:#{r:02x}{g:02x}{b:02x}}}");
        for step in 0..SHADES {
            let alpha = 0.75 * step as f64 / (SHADES - 1) as f64;
            let _ = write!(rules, ".l{step}{{background:rgba(224,108,52,{alpha:.2})}}");
        }
        for tenths in 5..=20 {
            let _ = write!(
                rules,
                ".maps .r{tenths}{{aspect-ratio:{:.1}}}",
                f64::from(tenths) / 10.0
            );
        }
        for (nth, tick) in TICKS.iter().enumerate() {
            let left = 100.0 * share(*tick);
            let _ = write!(rules, ".t{nth}{{left:{left:.1}%}}");
        }
        let stops: Vec<String> = (0..=8)
            .map(|nth| {
                let [r, g, b] = self.steps[index(f64::from(nth) / 8.0, STEPS)];
                format!("#{r:02x}{g:02x}{b:02x}")
            })
            .collect();
        let _ = writeln!(
            rules,
            ".ramp{{background:linear-gradient(to right,{})}}",
            stops.join(",")
        );
        rules
    }
}

fn index(share: f64, n: usize) -> usize {
    (share.clamp(0.0, 1.0) * (n - 1) as f64).round() as usize
}

/// Whether text on the colour of a share has to be dark.
fn wants_dark_text(share: f64) -> bool {
    share > 0.6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_rule() {
        let rules = Colours::new().rules();
        for nth in 0..=1000 {
            let share = f64::from(nth) / 1000.0;
            let cell = Colours::class(share);
            let cell = cell.trim_end_matches(" d");
            for class in [cell, &Colours::class_of_loss(share)] {
                assert!(rules.contains(&format!(".{class}{{")), "{class}");
            }
            let shape = Colours::class_of_aspect(4.0 * share);
            assert!(rules.contains(&format!(".maps .{shape}{{")), "{shape}");
        }
        assert_eq!(Colours::class(f64::NAN), "nan");
        assert!(rules.contains(".nan{background:#ff00aa}"));
    }
}
