//! Colours and glyphs, adapted to the terminal's colours and legible without any.

mod depth;
mod inks;
mod maps;

use ratatui::style::{Color, Modifier, Style};

pub use self::depth::Depth;
pub use self::inks::{Inks, Role};
pub use self::maps::{Diverging, Sequential, rgb_of};

use self::maps::{LEVELS, Steps, luminance};

/// Background of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    Dark,
    Light,
}

impl Ground {
    /// Returns the background of a name; `None` for a name that leaves it to the terminal.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "dark" => Some(Self::Dark),
            "light" => Some(Self::Light),
            _ => None,
        }
    }

    /// Classifies a background colour: light if black contrasts with it more than white does.
    pub fn of(rgb: [u8; 3]) -> Self {
        if luminance(rgb) > MIDDLE {
            Self::Light
        } else {
            Self::Dark
        }
    }
}

/// Luminance at which black and white contrast equally, by WCAG 2.2.
const MIDDLE: f64 = 0.179;

/// Glyphs from nothing to full, for terminals without colour.
const RAMP: [char; 5] = ['·', '░', '▒', '▓', '█'];

/// Glyphs of decreases, from none to the largest.
const LOSSES: [char; 5] = ['·', '.', '-', '=', '#'];

/// The user's colour settings, besides depth and background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Look {
    /// Text has a contrast of at least 7:1, and nothing is dim.
    pub is_high_contrast: bool,
    pub map: Sequential,
    pub differences: Diverging,
    /// Colours of the user's own.
    pub inks: Inks,
}

/// All styles of the screen.
#[derive(Debug, Clone)]
pub struct Theme {
    pub depth: Depth,
    pub ground: Ground,
    pub look: Look,
    steps: Steps,
    /// Whether shares below a half are decreases, those above it increases, and a half means no change.
    is_diverging: bool,
}

/// Text colour on a dark background and on a light one.
type Ink = [[u8; 3]; 2];

impl Theme {
    pub fn new(depth: Depth) -> Self {
        Self::on(Ground::Dark, depth)
    }

    /// Creates the theme for a dark or light background.
    pub fn on(ground: Ground, depth: Depth) -> Self {
        Self::with(ground, depth, Look::default())
    }

    /// Creates the theme for a background and the user's settings.
    pub fn with(ground: Ground, depth: Depth, look: Look) -> Self {
        Self {
            depth,
            ground,
            look,
            steps: look.map.steps(depth),
            is_diverging: false,
        }
    }

    /// Returns the theme in true colour, for images, which do not depend on the terminal's colours.
    #[must_use]
    pub fn in_all_colours(&self) -> Self {
        Self {
            depth: Depth::Truecolor,
            ..self.clone()
        }
    }

    /// Returns the theme with a diverging map, for differences: decreases, none in the middle, increases.
    #[must_use]
    pub fn diverging(&self) -> Self {
        Self {
            steps: self.look.differences.steps(self.depth, self.ground),
            is_diverging: true,
            ..self.clone()
        }
    }

    /// Returns the colour of a share between 0 and 1; NaN has its own.
    pub fn heat(&self, share: f32) -> Color {
        if self.has_colour() {
            self.step(share).0
        } else {
            Color::Reset
        }
    }

    fn step(&self, share: f32) -> (Color, [u8; 3]) {
        if share.is_nan() {
            self.steps.not_a_number(self.depth)
        } else {
            self.steps.at(share)
        }
    }

    /// Returns the number of colours of the map if they are few, for a legend that shows each.
    pub fn n_steps(&self) -> Option<usize> {
        self.steps.n_apart().filter(|_| self.has_colour())
    }

    /// Returns a text colour that contrasts with the colour of a share.
    pub fn on_heat(&self, share: f32) -> Color {
        let is_light = luminance(self.step(share).1) > MIDDLE;
        match (self.depth, is_light) {
            (Depth::None, _) => Color::Reset,
            (Depth::Sixteen, true) => Color::Black,
            (Depth::Sixteen, false) => Color::White,
            (_, true) => self.rgb([10, 10, 20]),
            (_, false) => self.rgb([240, 240, 240]),
        }
    }

    fn rgb(&self, [r, g, b]: [u8; 3]) -> Color {
        match self.depth {
            Depth::Truecolor => Color::Rgb(r, g, b),
            Depth::Indexed => Color::Indexed(nearest_indexed([r, g, b])),
            Depth::Sixteen | Depth::None => Color::Reset,
        }
    }

    /// Returns the glyph of a share between 0 and 1; NaN has its own.
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

    /// Returns a text style legible on the background; the arguments are the colours for normal contrast, high contrast, and
    /// 16-colour terminals.
    fn coloured(&self, usual: Ink, contrasting: Ink, sixteen: [Color; 2]) -> Style {
        let nth = usize::from(self.ground == Ground::Light);
        match self.depth {
            Depth::None => Style::new(),
            Depth::Sixteen => Style::new().fg(sixteen[nth]),
            Depth::Truecolor | Depth::Indexed => {
                let ink = if self.look.is_high_contrast {
                    contrasting
                } else {
                    usual
                };
                Style::new().fg(self.rgb(ink[nth]))
            }
        }
    }

    /// Returns the user's own colour for a role, if they gave one and the terminal can show it.
    fn own(&self, role: Role) -> Option<Style> {
        let colour = match (self.look.inks.of(role)?, self.depth) {
            (_, Depth::None) | (Color::Rgb(..), Depth::Sixteen) => return None,
            (Color::Rgb(r, g, b), _) => self.rgb([r, g, b]),
            (named, _) => named,
        };
        Some(Style::new().fg(colour))
    }

    pub fn dim(&self) -> Style {
        if let Some(own) = self.own(Role::Dim) {
            return own;
        }
        match (self.depth, self.look.is_high_contrast) {
            (Depth::None | Depth::Sixteen, true) => Style::new(),
            (Depth::None, false) => Style::new().add_modifier(Modifier::DIM),
            _ => self.coloured(
                [[130, 138, 150], [96, 104, 116]],
                [[200, 206, 214], [60, 66, 76]],
                [Color::DarkGray, Color::DarkGray],
            ),
        }
    }

    pub fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn accent(&self) -> Style {
        self.own(Role::Accent).unwrap_or_else(|| {
            self.coloured(
                [[94, 201, 225], [0, 108, 148]],
                [[130, 226, 255], [0, 66, 110]],
                [Color::LightCyan, Color::Blue],
            )
        })
    }

    pub fn title(&self) -> Style {
        self.accent().add_modifier(Modifier::BOLD)
    }

    pub fn bad(&self) -> Style {
        let style = self.own(Role::Bad).unwrap_or_else(|| {
            self.coloured(
                [[255, 107, 107], [190, 32, 44]],
                [[255, 150, 150], [140, 0, 20]],
                [Color::LightRed, Color::Red],
            )
        });
        style.add_modifier(Modifier::BOLD)
    }

    pub fn good(&self) -> Style {
        self.own(Role::Good).unwrap_or_else(|| {
            self.coloured(
                [[120, 210, 130], [24, 122, 52]],
                [[150, 240, 160], [0, 84, 30]],
                [Color::LightGreen, Color::Green],
            )
        })
    }

    pub fn notable(&self) -> Style {
        self.own(Role::Notable).unwrap_or_else(|| {
            self.coloured(
                [[240, 190, 80], [146, 92, 0]],
                [[255, 214, 110], [100, 58, 0]],
                [Color::LightYellow, Color::Magenta],
            )
        })
    }

    pub fn border(&self) -> Style {
        if let Some(own) = self.own(Role::Border) {
            return own;
        }
        match (self.depth, self.look.is_high_contrast) {
            (Depth::Sixteen, true) => Style::new(),
            _ => self.coloured(
                [[80, 88, 104], [172, 178, 188]],
                [[200, 206, 214], [60, 66, 76]],
                [Color::DarkGray, Color::DarkGray],
            ),
        }
    }

    pub fn selected(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// Returns the nearest colour of xterm's colour cube and greys.
fn nearest_indexed(rgb: [u8; 3]) -> u8 {
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

/// A change to the colour settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    Theme(Ground, bool),
    /// A theme of the user's own; without a background, on the one that is.
    Own(Option<Ground>, Look),
    Depth(Depth),
    Map(Sequential),
    Differences(Diverging),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexed_colours_are_the_nearest_available() {
        assert_eq!(nearest_indexed([255, 0, 0]), 196);
        assert_eq!(nearest_indexed([128, 128, 128]), 244);
    }

    #[test]
    fn every_text_colour_is_legible_on_its_ground() {
        // WCAG 2.2: 4.5:1 for text, and 7:1 with high contrast.
        for ((ground, page), is_high_contrast) in [(Ground::Dark, 0.01), (Ground::Light, 1.0)]
            .into_iter()
            .flat_map(|on| [(on, false), (on, true)])
        {
            let look = Look {
                is_high_contrast,
                ..Look::default()
            };
            let theme = Theme::with(ground, Depth::Truecolor, look);
            let least = if is_high_contrast { 7.0 } else { 4.5 };
            for style in [
                theme.dim(),
                theme.accent(),
                theme.bad(),
                theme.good(),
                theme.notable(),
            ] {
                let Some(Color::Rgb(r, g, b)) = style.fg else {
                    panic!("{style:?} has no colour of its own")
                };
                let ink = luminance([r, g, b]);
                let contrast = (f64::max(ink, page) + 0.05) / (f64::min(ink, page) + 0.05);
                assert!(contrast >= least, "{ground:?} {style:?}: {contrast}");
            }
        }
    }

    #[test]
    fn colours_of_the_user_come_first_where_the_terminal_can_show_them() {
        let inks = Inks::default()
            .with(Role::Accent, Color::Rgb(255, 136, 0))
            .with(Role::Bad, Color::LightMagenta);
        let look = Look {
            inks,
            ..Look::default()
        };
        let at = |depth: Depth| Theme::with(Ground::Dark, depth, look);
        let accents = [Depth::Truecolor, Depth::Indexed].map(|depth| at(depth).accent().fg);
        assert_eq!(
            accents,
            [Some(Color::Rgb(255, 136, 0)), Some(Color::Indexed(208))]
        );
        // 16 colours have no such orange: the built-in one stays. The terminal's own colours are everywhere.
        let plain = Theme::new(Depth::Sixteen);
        assert_eq!(at(Depth::Sixteen).accent(), plain.accent());
        assert_eq!(at(Depth::Sixteen).bad().fg, Some(Color::LightMagenta));
        assert_eq!(
            at(Depth::Truecolor).good(),
            Theme::new(Depth::Truecolor).good()
        );
        assert_eq!(at(Depth::None).bad().fg, None);
    }

    #[test]
    fn numbers_on_a_map_are_legible_on_each_of_its_colours() {
        for depth in [Depth::Truecolor, Depth::Indexed, Depth::Sixteen] {
            for (name, map) in Sequential::NAMES {
                let look = Look {
                    map,
                    ..Look::default()
                };
                let theme = Theme::with(Ground::Dark, depth, look);
                for share in (0..=20).map(|i| i as f32 / 20.0) {
                    let ink = match theme.on_heat(share) {
                        Color::Rgb(r, g, b) => [r, g, b],
                        Color::Indexed(n) => maps::rgb_of(n),
                        Color::White => [255; 3],
                        _ => [0; 3],
                    };
                    let [a, b] = [ink, theme.step(share).1].map(luminance);
                    let contrast = (f64::max(a, b) + 0.05) / (f64::min(a, b) + 0.05);
                    assert!(contrast >= 3.0, "{name} {depth:?} {share}: {contrast}");
                }
            }
        }
    }

    #[test]
    fn decreases_and_increases_have_distinct_colours_and_glyphs() {
        let theme = Theme::new(Depth::None).diverging();
        let glyphs: String = [0.0, 0.25, 0.5, 0.75, 1.0]
            .map(|s| theme.glyph(s))
            .iter()
            .collect();
        assert_eq!(glyphs, "#-·▒█");
        let theme = Theme::new(Depth::Truecolor).diverging();
        let [loss, none, gain] = [0.0, 0.5, 1.0].map(|share| theme.heat(share));
        assert!(loss != none && none != gain && loss != gain);
    }

    #[test]
    fn glyphs_rise_with_the_share_and_nan_has_its_own() {
        let theme = Theme::new(Depth::None);
        let glyphs: Vec<char> = [0.0, 0.25, 0.5, 0.75, 1.0].map(|s| theme.glyph(s)).to_vec();
        assert_eq!(glyphs, RAMP);
        assert_eq!(theme.glyph(f32::NAN), '×');
    }
}
