//! Graphics protocols of terminals: the user's choice, and detection from environment variables.

/// The user's choice of graphics protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Graphics {
    /// Detected from the terminal's environment variables.
    #[default]
    Auto,
    Use(Protocol),
    Off,
}

impl Graphics {
    /// The choice with this name in settings and flags.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "auto" => Self::Auto,
            "kitty" => Self::Use(Protocol::Kitty),
            "iterm2" => Self::Use(Protocol::Iterm),
            "sixel" => Self::Use(Protocol::Sixel),
            "off" => Self::Off,
            _ => return None,
        })
    }
}

/// A graphics protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Kitty,
    /// Kitty's protocol through tmux, in cells that hold placeholders.
    KittyInTmux,
    Iterm,
    Sixel,
}

impl Graphics {
    /// The protocol to use, given the environment variables, and whether the terminal said that it shows sixels.
    pub fn protocol(
        self,
        variable: impl Fn(&str) -> Option<String>,
        has_sixel: bool,
    ) -> Option<Protocol> {
        match self {
            Self::Off => None,
            // The terminal around tmux is unknown to us, so the user has to name it.
            Self::Use(Protocol::Kitty) if is_set(&variable, "TMUX") => Some(Protocol::KittyInTmux),
            Self::Use(protocol) => Some(protocol),
            Self::Auto => detected(variable, has_sixel),
        }
    }
}

fn is_set(variable: &impl Fn(&str) -> Option<String>, name: &str) -> bool {
    variable(name).is_some_and(|value| !value.is_empty())
}

/// The protocol of terminals that are known to have one.
fn detected(variable: impl Fn(&str) -> Option<String>, has_sixel: bool) -> Option<Protocol> {
    let is_set = |name: &str| is_set(&variable, name);
    let is = |name: &str, words: &[&str]| {
        let value = variable(name).unwrap_or_default().to_lowercase();
        words.iter().any(|word| value.contains(word))
    };
    // A multiplexer between us and the terminal keeps its own cells, or the user wants no colours.
    if is_set("TMUX") || is_set("STY") || is_set("ZELLIJ") || is_set("NO_COLOR") {
        return None;
    }
    if is_set("KITTY_WINDOW_ID") || is("TERM", &["kitty", "ghostty"]) {
        return Some(Protocol::Kitty);
    }
    if is("TERM_PROGRAM", &["wezterm", "iterm"]) || is("LC_TERMINAL", &["iterm"]) {
        return Some(Protocol::Iterm);
    }
    if is("TERM_PROGRAM", &["ghostty", "warp"]) {
        return Some(Protocol::Kitty);
    }
    // Windows Terminal, Konsole, Rio, VS Code where images are on, and others say so themselves.
    (has_sixel || is("TERM", &["foot", "mlterm", "contour"])).then_some(Protocol::Sixel)
}
