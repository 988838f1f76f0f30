//! The table of all settings, used to read them, print them and write their docs page.

use std::fmt::Write as _;
use std::marker::PhantomData;

use attnscope_checks::stats::STATISTICS;

use super::value::Value;

/// Type of a setting's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Choice(&'static [&'static str]),
    /// A built-in theme, or one of the settings.
    Theme(&'static [&'static str]),
    Switch,
    Count {
        least: u64,
        most: u64,
    },
    /// Id of a statistic.
    Statistic,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    pub section: &'static str,
    pub name: &'static str,
    /// The environment variable that sets it.
    pub variable: &'static str,
    pub kind: Kind,
    /// As written in the file, without quotes.
    default: &'static str,
    pub about: &'static str,
}

/// A setting by its name, with the type of its values.
#[derive(Debug)]
pub struct Key<T> {
    pub section: &'static str,
    pub name: &'static str,
    of: PhantomData<T>,
}

macro_rules! settings {
    ($($key:ident: $type:ty = $section:literal $name:literal $variable:literal $kind:expr, $default:literal, $about:literal;)*) => {
        /// Every setting, by section.
        pub static SETTINGS: &[Setting] = &[$(
            Setting {
                section: $section,
                name: $name,
                variable: $variable,
                kind: $kind,
                default: $default,
                about: $about,
            },
        )*];

        $(
            #[doc = $about]
            pub const $key: Key<$type> = Key {
                section: $section,
                name: $name,
                of: PhantomData,
            };
        )*
    };
}

use Kind::{Choice, Count, Statistic, Switch, Theme};

#[rustfmt::skip]
settings! {
    THEME: String = "screen" "theme" "ATTNSCOPE_THEME" Theme(&["auto", "dark", "light", "high-contrast"]), "auto", "Colours of text and frames. `auto` is dark or light, as the background is; `high-contrast` has text of at least 7 to 1; `[themes.NAME]` adds themes of yours.";
    BACKGROUND: String = "screen" "background" "ATTNSCOPE_BACKGROUND" Choice(&["auto", "dark", "light"]), "auto", "What the terminal's background is. `auto` asks the terminal, and assumes dark if it does not answer within 0.1 s.";
    COLOR: String = "screen" "color" "ATTNSCOPE_COLOR" Choice(&["auto", "truecolor", "256", "16", "none"]), "auto", "How many colours the terminal shows. `auto` reads COLORTERM and TERM. NO_COLOR sets `none`.";
    COLOR_MAP: String = "screen" "color_map" "ATTNSCOPE_COLOR_MAP" Choice(&["viridis", "cividis", "magma"]), "viridis", "Colours of maps and grids. All are readable with colour-vision deficiency.";
    DIFFERENCE_MAP: String = "screen" "difference_map" "ATTNSCOPE_DIFFERENCE_MAP" Choice(&["blue-orange", "purple-green"]), "blue-orange", "Colours of differences: decrease, no change in the middle, increase.";
    GRAPHICS: String = "screen" "graphics" "ATTNSCOPE_GRAPHICS" Choice(&["auto", "kitty", "iterm2", "sixel", "off"]), "auto", "How the map of a head is drawn as a picture. `auto` reads what the terminal says of itself; `off` draws half-blocks.";
    STATISTIC: String = "screen" "statistic" "ATTNSCOPE_STATISTIC" Statistic, "entropy_relative", "The statistic that the Overview panel opens with, by its id.";
    CLIPBOARD: bool = "screen" "clipboard" "ATTNSCOPE_CLIPBOARD" Switch, "true", "Whether `y` may hand text to the terminal's clipboard (OSC 52).";
    MOUSE: bool = "screen" "mouse" "ATTNSCOPE_MOUSE" Switch, "true", "Whether the screen takes the mouse. Without it, the terminal selects text as elsewhere.";
    KEEP_HISTORY: bool = "history" "keep" "ATTNSCOPE_HISTORY" Switch, "true", "Whether prompts, bookmarks and the last view are kept for the next session. `--no-history` turns it off once.";
    HISTORY_PROMPTS: usize = "history" "prompts" "ATTNSCOPE_HISTORY_PROMPTS" Count { least: 1, most: 10_000 }, "200", "Number of prompts kept per checkpoint; the oldest are removed first.";
    HISTORY_PROMPTS_KIB: usize = "history" "prompts_kib" "ATTNSCOPE_HISTORY_PROMPTS_KIB" Count { least: 1, most: 2048 }, "256", "Maximum size in KiB of the prompts kept per checkpoint.";
    HISTORY_BOOKMARKS: usize = "history" "bookmarks" "ATTNSCOPE_HISTORY_BOOKMARKS" Count { least: 1, most: 1000 }, "100", "Number of bookmarks kept per checkpoint; the oldest are removed first.";
    CACHE_MOST_MIB: usize = "cache" "most_mib" "ATTNSCOPE_CACHE_MOST_MIB" Count { least: 1, most: 1 << 20 }, "256", "Maximum size in MiB of the statistics that `history` keeps; the least recently used are removed first.";
}

impl<T> Key<T> {
    /// `screen.theme`
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}

impl Setting {
    /// `screen.theme`
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// Finds the setting of a section and a name.
    pub fn find(section: &str, name: &str) -> Option<&'static Self> {
        let is_it = |setting: &&Self| setting.section == section && setting.name == name;
        SETTINGS.iter().find(is_it)
    }

    /// Returns the value if nobody sets it.
    pub fn default(&self) -> Value {
        let text = Value::Text(self.default.to_owned());
        self.of_text(self.default).unwrap_or(text)
    }

    /// Parses a value as given in a flag or in the environment.
    ///
    /// # Errors
    /// What was expected, and what was found.
    pub fn of_text(&self, text: &str) -> Result<Value, String> {
        let refused = || format!("expected {}, found {text:?}", self.expected());
        match self.kind {
            Switch => match text {
                "true" | "1" | "yes" | "on" => Ok(Value::Switch(true)),
                "false" | "0" | "no" | "off" => Ok(Value::Switch(false)),
                _ => Err(refused()),
            },
            Count { .. } => self.of_number(text.parse().map_err(|_| refused())?),
            Choice(_) | Statistic | Theme(_) => self.of_word(text),
        }
    }

    /// Parses a word.
    ///
    /// # Errors
    /// What was expected, and what was found.
    pub(super) fn of_word(&self, word: &str) -> Result<Value, String> {
        let known: Vec<&str> = match self.kind {
            Choice(known) => known.to_vec(),
            // Those of the settings are checked where all of them are known.
            Theme(_) => return Ok(Value::Text(word.to_owned())),
            Statistic => STATISTICS.iter().map(|statistic| statistic.id).collect(),
            Switch | Count { .. } => Vec::new(),
        };
        if known.contains(&word) {
            return Ok(Value::Text(word.to_owned()));
        }
        let meant = attnscope_checkpoint::nearest::did_you_mean(word, known);
        Err(format!(
            "expected {}, found {word:?}{meant}",
            self.expected()
        ))
    }

    /// Converts a whole number.
    ///
    /// # Errors
    /// What was expected, and what was found.
    pub(super) fn of_number(&self, number: i64) -> Result<Value, String> {
        let refused = || format!("expected {}, found {number}", self.expected());
        match self.kind {
            Count { least, most } => {
                let number = u64::try_from(number).map_err(|_| refused())?;
                let is_in = (least..=most).contains(&number);
                is_in.then_some(Value::Count(number)).ok_or_else(refused)
            }
            // 256 and 16 need no quotes in the file.
            Choice(_) => self.of_word(&number.to_string()),
            Switch | Statistic | Theme(_) => Err(refused()),
        }
    }

    /// Describes the accepted values.
    pub fn expected(&self) -> String {
        match self.kind {
            Choice(known) | Theme(known) => format!("one of {}", known.join(", ")),
            Switch => "true or false".to_owned(),
            Count { least, most } => format!("a whole number from {least} to {most}"),
            Statistic => "the id of a statistic".to_owned(),
        }
    }
}

/// Text of the settings page before its tables.
const BEFORE: &str = "\
## Settings

Write what you want to change to `~/.config/attnscope/config.toml` (`$XDG_CONFIG_HOME/attnscope/config.toml`). `ATTNSCOPE_CONFIG`
names another file; when it is empty, no file is read.

```toml
[screen]
theme = \"high-contrast\"
color_map = \"cividis\"
statistic = \"max_probability\"

[keys]
copy = \"Y\"
find = [\"/\", \"Ctrl-F\"]

[thresholds.entropy-collapse]
relative_entropy = 0.15

[cache]
most_mib = 1024
```

A flag comes before the environment, the environment before the file, and the file before the default. `attnscope config` prints every
value that is in force and where it comes from (`--format json` for programs); `attnscope config path` prints where the file lies.

A key or a section that does not exist is an error that names the file, the line and the nearest name; so is a value of another type.
Every command then ends with exit code 2, except `attnscope config`, which lists what is wrong and prints the rest.
";

/// Text of the page after its tables.
const AFTER: &str = "
### Other keys

Section `[keys]` gives an action other keys. The tables above list the actions by name. A value is a key or a list of keys; it replaces
all keys of the action, and an empty list leaves it to the palette (`:`). Footer, help, palette and tabs show the keys in force.

Keys are written as letters (`\"y\"`, `\"Y\"`, `\"?\"`) or names: `Enter`, `Esc`, `Tab`, `Space`, `Backspace`, `Delete`, `Insert`, `Home`,
`End`, `PgUp`, `PgDn`, `Up`, `Down`, `Left`, `Right`, `F1` to `F12`; with `Ctrl-`, `Alt-` or `Shift-` before them. A key that would mean
two actions in one panel is an error that names both. `Ctrl-C` always quits and `Ctrl-Z` always suspends. `attnscope keys` lists the keys in
force; `attnscope keys --check` says what is wrong with those of the settings, and then exits with 2.

### Commands and themes

Section `[commands]` adds commands that run other programs ([screen.md](screen.md#commands-of-your-own)), and sections `[themes.NAME]` add themes
([screen.md](screen.md#themes-of-your-own)). `attnscope config` prints both.

### Thresholds

Sections `[thresholds.CHECK]` move the lines that checks draw, as files for `--thresholds` do without the word `thresholds.`:
`attnscope thresholds` prints their names, defaults and sources. They hold on the screen and in `check`, `history`, `watch`, `report`
and `align`. A file given with `--thresholds` comes on top of them. Commands say on standard error when settings change a threshold.

### Colours

Without `color`, the terminal's colours are read from its environment: `COLORTERM=truecolor` or a `TERM` that is known to show every
colour; 256 where `TERM` ends in `256color`; none where `NO_COLOR` is set, or `TERM` is unset, `dumb` or a `vt`; else 16. Maps of 256
and 16 colours have few steps, and legends show each of them.

The background is asked of the terminal (OSC 11) while the checkpoint opens. A terminal that says nothing within 0.1 s is taken for dark.
Keys that are typed meanwhile are not lost.
";

/// Returns the docs page of the settings.
pub fn config_page() -> String {
    let mut page = BEFORE.to_owned();
    let mut section = "";
    for setting in SETTINGS {
        if setting.section != section {
            section = setting.section;
            let _ = write!(
                page,
                "\n### [{section}]\n\n| key | takes | default | environment | what it does |\n|---|---|---|---|---|\n"
            );
        }
        let takes = match setting.kind {
            Choice(known) => format!("`{}`", known.join("` `")),
            Theme(known) => format!("`{}` or a theme of yours", known.join("` `")),
            _ => setting.expected(),
        };
        let Setting {
            name,
            default,
            variable,
            about,
            ..
        } = setting;
        let _ = writeln!(
            page,
            "| `{name}` | {takes} | `{default}` | `{variable}` | {about} |"
        );
    }
    page + AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_valid_and_setting_names_are_unique() {
        for (idx, setting) in SETTINGS.iter().enumerate() {
            assert!(
                setting.of_text(setting.default).is_ok(),
                "{}",
                setting.path()
            );
            let others = &SETTINGS[idx + 1..];
            let is_twice = |other: &Setting| {
                other.variable == setting.variable || other.path() == setting.path()
            };
            assert!(!others.iter().any(is_twice), "{}", setting.path());
        }
    }
}
