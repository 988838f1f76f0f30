//! How many colours a terminal shows, as its environment says.

/// How many colours the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Truecolor,
    /// The 256 of xterm.
    Indexed,
    /// The 16 that every terminal with colours has, as its own theme paints them.
    Sixteen,
    /// None: glyphs carry magnitude.
    None,
}

/// Terminals that show every colour, also where `COLORTERM` does not reach: over ssh.
const TRUECOLOR_TERMS: [&str; 6] = ["direct", "kitty", "alacritty", "ghostty", "wezterm", "foot"];
/// Terminals without colours.
const COLOURLESS_TERMS: [&str; 7] = ["dumb", "unknown", "vt", "cons25-m", "lpr", "printer", "hp"];

impl Depth {
    /// The depths, and what flags and settings call them.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("truecolor", Self::Truecolor),
        ("256", Self::Indexed),
        ("16", Self::Sixteen),
        ("none", Self::None),
    ];

    /// The depth of a name; `None` for one that leaves it to the terminal.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, depth)| *depth)
    }

    /// Reads `NO_COLOR`, `COLORTERM` and `TERM`.
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
            // Every other terminal that is in use has the 16.
            (false, false) => Self::Sixteen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_as_many_colours_as_its_environment_says() {
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
