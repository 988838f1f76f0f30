//! Themes of the settings: colours of text and frames by role, on top of a built-in theme.

use attnscope_checkpoint::nearest::did_you_mean;
use toml::de::{DeTable, DeValue};

use super::read::{Config, File, Set};
use super::setting::{self, Kind, Setting};
use super::typed::kind;
use super::value::{Origin, Value};

/// Section of the themes.
pub(super) const THEMES: &str = "themes";

/// What a theme can give a colour to.
pub const ROLES: [&str; 6] = ["accent", "dim", "border", "good", "notable", "bad"];

/// Names of the terminal's own colours, in their order.
pub const COLOUR_NAMES: [&str; 16] = [
    "black",
    "red",
    "green",
    "yellow",
    "blue",
    "magenta",
    "cyan",
    "white",
    "bright-black",
    "bright-red",
    "bright-green",
    "bright-yellow",
    "bright-blue",
    "bright-magenta",
    "bright-cyan",
    "bright-white",
];

/// Settings of maps that a theme can give too.
const MAPS: [&str; 2] = ["color_map", "difference_map"];

/// The key that names the built-in theme below.
const INHERITS: &str = "inherits";

/// A colour of a theme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Rgb([u8; 3]),
    /// One of the terminal's own 16 colours.
    Own(u8),
}

impl Colour {
    /// Reads `#rrggbb`, or the name of a colour.
    fn of(text: &str) -> Result<Self, String> {
        if let Some(digits) = text.strip_prefix('#') {
            let is_hex = digits.len() == 6 && digits.chars().all(|c| c.is_ascii_hexdigit());
            let number = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex);
            let [_, r, g, b] = number
                .ok_or_else(|| format!("expected six hex digits after #, found {text:?}"))?
                .to_be_bytes();
            return Ok(Self::Rgb([r, g, b]));
        }
        let name = text.to_lowercase().replace([' ', '_'], "-");
        let name = match name.as_str() {
            "gray" | "grey" => "bright-black",
            other => other,
        };
        let nth = COLOUR_NAMES.iter().position(|known| *known == name);
        let nth = nth.ok_or_else(|| {
            let meant = did_you_mean(name, COLOUR_NAMES);
            format!("expected a colour as in \"#5ec9e1\" or \"bright-cyan\", found {text:?}{meant}")
        })?;
        Ok(Self::Own(nth as u8))
    }
}

/// A theme of the user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnTheme {
    pub name: String,
    /// The built-in theme that gives the colours that it does not give.
    pub inherits: String,
    /// By role, in the order of [`ROLES`].
    pub colours: [Option<Colour>; ROLES.len()],
    pub color_map: Option<String>,
    pub difference_map: Option<String>,
    pub origin: Origin,
}

impl OwnTheme {
    /// Describes it in one line.
    pub fn about(&self) -> String {
        let colours = ROLES.iter().zip(self.colours);
        let colours = colours.filter_map(|(role, colour)| {
            let colour = match colour? {
                Colour::Rgb([r, g, b]) => format!("#{r:02x}{g:02x}{b:02x}"),
                Colour::Own(n) => (*COLOUR_NAMES.get(usize::from(n))?).to_owned(),
            };
            Some(format!("{role} {colour}"))
        });
        let maps = [&self.color_map, &self.difference_map]
            .into_iter()
            .flatten();
        let parts = colours.chain(maps.cloned());
        let all: Vec<String> = std::iter::once(self.inherits.clone())
            .chain(parts)
            .collect();
        all.join(", ")
    }
}

/// The names of the built-in themes.
fn built_in() -> &'static [&'static str] {
    let theme = Setting::find(setting::THEME.section, setting::THEME.name);
    match theme.map(|theme| theme.kind) {
        Some(Kind::Theme(known)) => known,
        _ => &[],
    }
}

impl Config {
    /// The theme of the user's own that is chosen, if one is.
    pub fn own_theme(&self) -> Option<&OwnTheme> {
        let chosen: String = self.get(&setting::THEME);
        self.themes.iter().find(|theme| theme.name == chosen)
    }

    /// Checks that there is a theme of a name.
    pub(super) fn check_theme(&self, name: &str) -> Result<(), String> {
        let own = self.themes.iter().map(|theme| theme.name.as_str());
        let known: Vec<&str> = built_in().iter().copied().chain(own).collect();
        if known.contains(&name) {
            return Ok(());
        }
        let meant = did_you_mean(name, known.iter().copied());
        let known = known.join(", ");
        Err(format!("expected one of {known}, found {name:?}{meant}"))
    }

    /// Takes back a chosen theme that there is not; returns where it was chosen, and what is wrong with it.
    pub(super) fn refuse_theme(&mut self) -> Option<(Origin, String)> {
        let path = setting::THEME.path();
        let set: Set<Value> = self.of(setting::THEME.section, setting::THEME.name);
        let problem = self.check_theme(&set.value.to_string()).err()?;
        self.forget(&path);
        Some((set.origin, format!("{path}: {problem}")))
    }
}

impl File<'_> {
    /// Reads the themes.
    pub(super) fn take_themes(&mut self, all: &DeTable<'_>) {
        for (name, value) in all {
            let at = name.span().start;
            let name = name.get_ref().to_string();
            let DeValue::Table(fields) = value.get_ref() else {
                let found = kind(value.get_ref());
                let section = format!("[{THEMES}.{name}]");
                self.problem(
                    at,
                    &format!("{THEMES}.{name}: expected a section {section}, found {found}"),
                );
                continue;
            };
            if built_in().contains(&name.as_str()) {
                let what = format!("{THEMES}.{name}: {name} is built in: give yours another name");
                self.problem(at, &what);
                continue;
            }
            let mut theme = OwnTheme {
                name,
                inherits: "auto".to_owned(),
                colours: [None; ROLES.len()],
                color_map: None,
                difference_map: None,
                origin: self.origin(at),
            };
            for (field, value) in fields {
                let taken = theme.take(field.get_ref(), value.get_ref());
                if let Err(e) = taken {
                    let what = format!("{THEMES}.{}.{}{e}", theme.name, field.get_ref());
                    self.problem(field.span().start, &what);
                }
            }
            self.config.themes.push(theme);
        }
        let line = |theme: &OwnTheme| match theme.origin {
            Origin::File(_, line) => line,
            _ => 0,
        };
        self.config.themes.sort_by_key(line);
    }
}

impl OwnTheme {
    fn take(&mut self, field: &str, value: &DeValue<'_>) -> Result<(), String> {
        let role = ROLES.iter().position(|role| *role == field);
        if role.is_none() && field != INHERITS && !MAPS.contains(&field) {
            let known: Vec<&str> = [INHERITS].into_iter().chain(ROLES).chain(MAPS).collect();
            let meant = did_you_mean(field, known.iter().copied());
            let known = known.join(", ");
            return Err(format!(" is not known{meant}; known: {known}"));
        }
        let DeValue::String(word) = value else {
            return Err(format!(": expected a text, found {}", kind(value)));
        };
        if let Some(role) = role {
            self.colours[role] = Some(Colour::of(word).map_err(|e| format!(": {e}"))?);
        } else if field == INHERITS {
            if !built_in().contains(&word.as_ref()) {
                let meant = did_you_mean(word.as_ref(), built_in().iter().copied());
                let known = built_in().join(", ");
                return Err(format!(": expected one of {known}, found {word:?}{meant}"));
            }
            self.inherits = word.to_string();
        } else {
            let map = Setting::find(setting::THEME.section, field);
            let read = map.map_or(Ok(Value::Text(word.to_string())), |map| map.of_word(word));
            let read = read.map_err(|e| format!(": {e}"))?.to_string();
            if field == MAPS[0] {
                self.color_map = Some(read);
            } else {
                self.difference_map = Some(read);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Config {
        Config::of_text("c.toml".as_ref(), text)
    }

    #[test]
    fn a_theme_gives_colours_by_role_and_inherits_the_others() {
        let config = of(
            "[screen]\ntheme = \"dusk\"\n\n[themes.dusk]\ninherits = \"dark\"\naccent = \"#ff8800\"\nbad = \"Bright Red\"\ncolor_map = \"magma\"\n",
        );
        assert_eq!(config.problems, Vec::<String>::new());
        let theme = config.own_theme().expect("it is chosen");
        assert_eq!(theme.about(), "dark, accent #ff8800, bad bright-red, magma");
        assert_eq!(theme.colours[0], Some(Colour::Rgb([255, 136, 0])));
        assert_eq!(theme.colours[5], Some(Colour::Own(9)));
    }

    #[test]
    fn a_wrong_colour_names_its_key() {
        for (text, said) in [
            (
                "[themes.a]\naccent = \"#ff88\"",
                &["c.toml:2", "themes.a.accent", "six hex digits", "#ff88"][..],
            ),
            (
                "[themes.a]\nbad = \"reed\"",
                &["c.toml:2", "themes.a.bad", "did you mean red?"],
            ),
            ("[themes.a]\nbad = 3", &["themes.a.bad", "a whole number"]),
            (
                "[themes.a]\nacent = \"red\"",
                &["themes.a.acent", "did you mean accent?"],
            ),
            (
                "[themes.a]\ninherits = \"drak\"",
                &["themes.a.inherits", "did you mean dark?"],
            ),
            (
                "[themes.a]\ncolor_map = \"jet\"",
                &["themes.a.color_map", "viridis"],
            ),
            ("[themes.dark]\nbad = \"red\"", &["themes.dark", "built in"]),
            ("[themes]\na = 3", &["themes.a", "[themes.a]"]),
            (
                "[screen]\ntheme = \"dusk\"\n[themes.dust]\n",
                &["c.toml:2", "screen.theme", "did you mean dust?"],
            ),
        ] {
            let config = of(text);
            let [problem] = config.problems.as_slice() else {
                panic!("{text}: {:?}", config.problems)
            };
            for part in said {
                assert!(problem.contains(part), "{text}: {problem} has no {part}");
            }
        }
    }

    #[test]
    fn flags_choose_themes_of_the_settings_too() {
        let mut config = of("[themes.dusk]\naccent = \"red\"\n");
        assert_eq!(config.take_flag(&setting::THEME, "--theme", "dusk"), Ok(()));
        assert!(config.own_theme().is_some());
        let refused = config.take_flag(&setting::THEME, "--theme", "dust");
        let refused = refused.expect_err("there is none");
        assert!(
            refused.contains("--theme: expected one of auto")
                && refused.contains("did you mean dusk?"),
            "{refused}"
        );
    }
}
