//! Colour depth of a terminal, detected from its environment.

/// Number of colours that the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Truecolor,
    /// xterm's 256 colours.
    Indexed,
    /// The 16 standard colours, as the terminal's own theme defines them.
    Sixteen,
    /// No colours: glyphs show magnitude.
    None,
}

/// Terminals with true colour, even where `COLORTERM` is not passed on, as over ssh.
const TRUECOLOR_TERMS: [&str; 6] = ["direct", "kitty", "alacritty", "ghostty", "wezterm", "foot"];
/// Terminals without colours.
const COLOURLESS_TERMS: [&str; 7] = ["dumb", "unknown", "vt", "cons25-m", "lpr", "printer", "hp"];

impl Depth {
    /// Depths with their names in flags and settings.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("truecolor", Self::Truecolor),
        ("256", Self::Indexed),
        ("16", Self::Sixteen),
        ("none", Self::None),
    ];

    /// Returns the depth of a name; `None` for a name that leaves it to the terminal.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, depth)| *depth)
    }

    /// Detects the depth from `NO_COLOR`, `COLORTERM` and `TERM`.
    pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Self {
        if variable("NO_COLOR").is_some_and(|v| !v.is_empty()) {
            return Self::None;
        }
        let term = variable("TERM").unwrap_or_default().to_lowercase();
        let is_colourless = term.is_empty()
            || term.ends_with("-mono")
            || term.ends_with("-m")
            || COLOURLESS_TERMS
                .iter()
                .any(|known| term.starts_with(known) && !term.contains("color"));
        let colorterm = variable("COLORTERM").unwrap_or_default().to_lowercase();
        let says_truecolor = ["truecolor", "24bit"].iter().any(|w| colorterm.contains(w));
        let is_truecolor = TRUECOLOR_TERMS.iter().any(|known| term.contains(known));
        match (says_truecolor || is_truecolor, is_colourless) {
            (true, _) => Self::Truecolor,
            (false, _) if term.contains("256color") => Self::Indexed,
            (false, true) => Self::None,
            // Every other terminal in use has 16 colours.
            (false, false) => Self::Sixteen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_colour_depth_follows_the_environment_variables() {
        let with = |pairs: &[(&str, &str)]| {
            Depth::detect(|name| {
                let found = pairs.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        for (pairs, expected) in [
            (
                &[("NO_COLOR", "1"), ("COLORTERM", "truecolor")][..],
                Depth::None,
            ),
            (
                &[("COLORTERM", "truecolor"), ("TERM", "xterm-256color")],
                Depth::Truecolor,
            ),
            (
                &[("COLORTERM", "24bit"), ("TERM", "xterm")],
                Depth::Truecolor,
            ),
            (&[("TERM", "xterm-kitty")], Depth::Truecolor),
            (&[("TERM", "xterm-direct")], Depth::Truecolor),
            (&[("TERM", "xterm-256color")], Depth::Indexed),
            (&[("TERM", "tmux-256color")], Depth::Indexed),
            (
                &[("NO_COLOR", ""), ("TERM", "xterm-256color")],
                Depth::Indexed,
            ),
            (&[("TERM", "xterm")], Depth::Sixteen),
            (&[("TERM", "screen")], Depth::Sixteen),
            (&[("TERM", "linux")], Depth::Sixteen),
            (&[("TERM", "xterm-color")], Depth::Sixteen),
            (&[("TERM", "rxvt-unicode")], Depth::Sixteen),
            (&[("TERM", "vt100")], Depth::None),
            (&[("TERM", "vt220")], Depth::None),
            (&[("TERM", "xterm-mono")], Depth::None),
            (&[("TERM", "dumb")], Depth::None),
            (&[("TERM", "")], Depth::None),
            (&[], Depth::None),
        ] {
            assert_eq!(with(pairs), expected, "{pairs:?}");
        }
    }
}
