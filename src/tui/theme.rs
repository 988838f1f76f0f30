//! Colours and glyphs: as many as the terminal has, and legible without any.

use colorgrad::Gradient;
use ratatui::style::{Color, Modifier, Style};

/// How many colours the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Truecolor,
    /// The 256 of xterm.
    Indexed,
    /// None: glyphs carry magnitude.
    None,
}

impl Depth {
    /// Reads `NO_COLOR`, `COLORTERM` and `TERM`.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        if variable("NO_COLOR").is_some_and(|v| !v.is_empty()) {
            return Self::None;
        }
        let is = |name: &str, words: &[&str]| {
            variable(name).is_some_and(|v| words.iter().any(|w| v.contains(w)))
        };
        if is("COLORTERM", &["truecolor", "24bit"]) || is("TERM", &["direct"]) {
            return Self::Truecolor;
        }
        if is("TERM", &["256color", "kitty", "alacritty", "ghostty"]) {
            Self::Indexed
        } else {
            Self::None
        }
    }
}

/// What the colours stand on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    Dark,
    Light,
}

/// Glyphs from nothing to full, for terminals without colour.
const RAMP: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// Glyphs of values that became less, from nothing to most.
const LOSSES: [char; 5] = [' ', '.', '-', '=', '#'];

/// A colour that the map does not have.
const NOT_A_NUMBER: [u8; 3] = [255, 0, 170];

/// Steps of the colour map that are told apart.
const STEPS: usize = 256;

/// Every style of the screen.
#[derive(Debug, Clone)]
pub struct Theme {
    pub depth: Depth,
    pub ground: Ground,
    map: Vec<[u8; 3]>,
    /// Shares below a half are losses, those above it gains: the middle is nothing.
    is_diverging: bool,
}

impl Theme {
    pub fn new(depth: Depth) -> Self {
        Self::on(Ground::Dark, depth)
    }

    /// The theme for a dark or a light page.
    pub fn on(ground: Ground, depth: Depth) -> Self {
        // Viridis: perceptually uniform, and still ordered for people who see fewer colours.
        let gradient = colorgrad::preset::viridis();
        let map = (0..STEPS).map(|i| gradient.at(i as f32 / (STEPS - 1) as f32).to_rgba8());
        Self {
            depth,
            ground,
            map: map.map(|[r, g, b, _]| [r, g, b]).collect(),
            is_diverging: false,
        }
    }

    /// The theme with colours for differences: losses, nothing in the middle, gains.
    #[must_use]
    pub fn diverging(&self) -> Self {
        let middle = match self.ground {
            Ground::Dark => [40u8, 44, 52],
            Ground::Light => [222, 224, 228],
        };
        const ENDS: [[u8; 3]; 2] = [[46, 132, 226], [226, 86, 58]];
        let mix = |i: usize| {
            let share = 2.0 * i as f32 / (STEPS - 1) as f32 - 1.0;
            let end = ENDS[usize::from(share > 0.0)];
            let channel = |c: usize| {
                let (from, to) = (f32::from(middle[c]), f32::from(end[c]));
                (from + (to - from) * share.abs()).round() as u8
            };
            [channel(0), channel(1), channel(2)]
        };
        Self {
            map: (0..STEPS).map(mix).collect(),
            is_diverging: true,
            ..self.clone()
        }
    }

    /// The colour of a share between 0 and 1; NaN has one of its own.
    pub fn heat(&self, share: f32) -> Color {
        if share.is_nan() {
            return self.rgb(NOT_A_NUMBER);
        }
        self.rgb(self.heat_rgb(share))
    }

    /// The colour of a share, moved towards white: for what is selected.
    pub fn heat_marked(&self, share: f32) -> Color {
        let colour = if share.is_nan() {
            NOT_A_NUMBER
        } else {
            self.heat_rgb(share)
        };
        self.rgb(colour.map(|c| c.saturating_add(70)))
    }

    fn heat_rgb(&self, share: f32) -> [u8; 3] {
        self.map[((share.clamp(0.0, 1.0) * (STEPS - 1) as f32).round()) as usize]
    }

    /// A text colour that stands out on the colour of a share.
    pub fn on_heat(&self, share: f32) -> Color {
        let is_light = match (self.is_diverging, self.ground) {
            (true, ground) => ground == Ground::Light,
            (false, _) => share > 0.6,
        };
        if is_light {
            self.rgb([10, 10, 20])
        } else {
            self.rgb([240, 240, 240])
        }
    }

    fn rgb(&self, [r, g, b]: [u8; 3]) -> Color {
        match self.depth {
            Depth::Truecolor => Color::Rgb(r, g, b),
            Depth::Indexed => Color::Indexed(nearest_indexed([r, g, b])),
            Depth::None => Color::Reset,
        }
    }

    /// The glyph of a share between 0 and 1; NaN has one of its own.
    pub fn glyph(&self, share: f32) -> char {
        if share.is_nan() {
            return '×';
        }
        if self.is_diverging {
            let share = 2.0 * share.clamp(0.0, 1.0) - 1.0;
            let ramp = if share < 0.0 { LOSSES } else { RAMP };
            return ramp[(share.abs() * (RAMP.len() - 1) as f32).round() as usize];
        }
        RAMP[(share.clamp(0.0, 1.0) * (RAMP.len() - 1) as f32).round() as usize]
    }

    pub fn has_colour(&self) -> bool {
        self.depth != Depth::None
    }

    /// A text colour that is legible on the ground.
    fn coloured(&self, on_dark: [u8; 3], on_light: [u8; 3]) -> Style {
        if self.has_colour() {
            let rgb = match self.ground {
                Ground::Dark => on_dark,
                Ground::Light => on_light,
            };
            Style::new().fg(self.rgb(rgb))
        } else {
            Style::new()
        }
    }

    pub fn dim(&self) -> Style {
        if self.has_colour() {
            self.coloured([130, 138, 150], [96, 104, 116])
        } else {
            Style::new().add_modifier(Modifier::DIM)
        }
    }

    pub fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn accent(&self) -> Style {
        self.coloured([94, 201, 225], [0, 108, 148])
    }

    pub fn title(&self) -> Style {
        self.accent().add_modifier(Modifier::BOLD)
    }

    pub fn bad(&self) -> Style {
        self.coloured([255, 107, 107], [190, 32, 44])
            .add_modifier(Modifier::BOLD)
    }

    pub fn good(&self) -> Style {
        self.coloured([120, 210, 130], [24, 122, 52])
    }

    pub fn notable(&self) -> Style {
        self.coloured([240, 190, 80], [146, 92, 0])
    }

    pub fn border(&self) -> Style {
        self.coloured([80, 88, 104], [172, 178, 188])
    }

    pub fn selected(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// The nearest of xterm's colour cube and greys.
fn nearest_indexed(rgb: [u8; 3]) -> u8 {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let nearest_level = |c: u8| {
        (0..6)
            .min_by_key(|i| LEVELS[*i].abs_diff(c))
            .unwrap_or_default()
    };
    let cube = rgb.map(nearest_level);
    let grey_step = (rgb.iter().map(|c| u32::from(*c)).sum::<u32>() / 3)
        .saturating_sub(3)
        .min(233) as usize
        / 10;
    let grey = [(8 + 10 * grey_step) as u8; 3];
    let distance = |a: [u8; 3]| -> u32 {
        a.iter()
            .zip(rgb)
            .map(|(a, b)| u32::from(a.abs_diff(b)).pow(2))
            .sum()
    };
    if distance(cube.map(|i| LEVELS[i])) <= distance(grey) {
        (16 + 36 * cube[0] + 6 * cube[1] + cube[2]) as u8
    } else {
        (232 + grey_step) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_wins_over_everything_and_truecolor_over_256() {
        let with = |pairs: &'static [(&str, &str)]| {
            Depth::detect(|name| {
                pairs
                    .iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, v)| (*v).to_owned())
            })
        };
        assert_eq!(
            with(&[("NO_COLOR", "1"), ("COLORTERM", "truecolor")]),
            Depth::None
        );
        assert_eq!(
            with(&[("COLORTERM", "truecolor"), ("TERM", "xterm-256color")]),
            Depth::Truecolor
        );
        assert_eq!(with(&[("TERM", "xterm-256color")]), Depth::Indexed);
        assert_eq!(with(&[("TERM", "vt100")]), Depth::None);
        assert_eq!(
            with(&[("NO_COLOR", ""), ("TERM", "xterm-256color")]),
            Depth::Indexed
        );
    }

    #[test]
    fn indexed_colours_are_the_nearest_ones() {
        assert_eq!(nearest_indexed([255, 0, 0]), 196);
        assert_eq!(nearest_indexed([128, 128, 128]), 244);
    }

    #[test]
    fn every_text_colour_is_legible_on_its_ground() {
        // WCAG 2.2: relative luminance, and 4.5 to 1 for text.
        let luminance = |colour: Color| {
            let Color::Rgb(r, g, b) = colour else {
                panic!("{colour:?} is not a colour of its own")
            };
            let linear = [r, g, b].map(|c| match f64::from(c) / 255.0 {
                c if c <= 0.04045 => c / 12.92,
                c => ((c + 0.055) / 1.055).powf(2.4),
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        };
        for (ground, page) in [(Ground::Dark, 0.01), (Ground::Light, 1.0)] {
            let theme = Theme::on(ground, Depth::Truecolor);
            for style in [
                theme.dim(),
                theme.accent(),
                theme.bad(),
                theme.good(),
                theme.notable(),
            ] {
                let ink = luminance(style.fg.expect("a colour"));
                let contrast = (f64::max(ink, page) + 0.05) / (f64::min(ink, page) + 0.05);
                assert!(contrast >= 4.5, "{ground:?} {style:?}: {contrast}");
            }
        }
    }

    #[test]
    fn differences_have_colours_and_glyphs_of_their_own_for_losses_and_gains() {
        let theme = Theme::new(Depth::None).diverging();
        let glyphs: String = [0.0, 0.25, 0.5, 0.75, 1.0]
            .map(|s| theme.glyph(s))
            .iter()
            .collect();
        assert_eq!(glyphs, "#- ▒█");
        let theme = Theme::new(Depth::Truecolor).diverging();
        let [loss, none, gain] = [0.0, 0.5, 1.0].map(|share| theme.heat(share));
        assert!(loss != none && none != gain && loss != gain);
    }

    #[test]
    fn the_glyph_ramp_rises_and_nan_stands_apart() {
        let theme = Theme::new(Depth::None);
        let glyphs: Vec<char> = [0.0, 0.25, 0.5, 0.75, 1.0].map(|s| theme.glyph(s)).to_vec();
        assert_eq!(glyphs, RAMP);
        assert_eq!(theme.glyph(f32::NAN), '×');
    }
}
