//! What a person's settings are for this command: the file and the environment, read once, and what flags say on top.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Result, bail};
use attnscope_checks::Thresholds;
use attnscope_compute::ops::Device;
use attnscope_screen::{Keymap, Limits, Setup};
use attnscope_system::config::{Config, Kind, Setting, setting};
use attnscope_worker::Terms;
use clap::ValueEnum;
use clap::builder::{PossibleValue, TypedValueParser};

use super::progress::note;
use super::python_code::CODE;

/// What was read when the command began.
static READ: OnceLock<Config> = OnceLock::new();

/// The settings of this process.
pub fn config() -> &'static Config {
    READ.get_or_init(read)
}

/// Reads the file and the environment, keys included.
fn read() -> Config {
    let mut config = Config::read(|name| std::env::var_os(name));
    if let Err(problems) = Keymap::of(&config) {
        config.problems.extend(problems);
    }
    config
}

/// Refuses settings that something is wrong with.
///
/// # Errors
/// The first thing that is wrong with them.
pub fn begin() -> Result<()> {
    let config = config();
    if let Some(problem) = config.problems.first() {
        match config.problems.len() - 1 {
            0 => bail!("{problem}"),
            n => bail!("{problem}; {n} more: attnscope config lists them"),
        }
    }
    Ok(())
}

/// On what a screen computes, and where it draws the lines of checks.
pub fn terms(device: Device, is_forced: bool) -> Terms {
    Terms {
        device,
        is_forced,
        thresholds: config().thresholds(),
        python_code: CODE,
    }
}

/// Where checks draw their lines: the defaults, what settings change, and what a file changes.
///
/// # Errors
/// When the file cannot be read, or is no table of thresholds.
pub fn thresholds(file: Option<&Path>) -> Result<Thresholds> {
    let set = config().thresholds();
    Ok(match file {
        Some(path) => set.with_file(path)?,
        None => set,
    })
}

/// Says that settings moved lines of checks: what a check says depends on them.
pub fn note_thresholds() {
    let changed: Vec<String> = config()
        .thresholds
        .iter()
        .map(|(name, set)| format!("{name} = {} ({})", set.value, set.origin))
        .collect();
    if !changed.is_empty() {
        note(&format!("thresholds: {}", changed.join(", ")));
    }
}

/// Whether what a person does is kept for the next session.
pub fn keeps_history(no_history: bool) -> bool {
    !no_history && config().get(&setting::KEEP_HISTORY)
}

pub fn limits() -> Limits {
    Limits::of(config())
}

/// What every command that opens the screen takes.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Screen")]
pub struct ScreenArgs {
    /// Colours of text and frames [default: to suit the background]
    #[arg(long, value_parser = ThemeParser, value_name = "THEME")]
    theme: Option<String>,
    /// Background of the terminal [default: ask the terminal]
    #[arg(long, value_enum, value_name = "GROUND")]
    background: Option<Background>,
    /// Number of colours of the terminal [default: read from COLORTERM and TERM]
    #[arg(long, visible_alias = "colour", value_enum, value_name = "DEPTH")]
    color: Option<Color>,
    /// Colours of maps and grids [default: viridis]
    #[arg(long, value_enum, value_name = "MAP")]
    color_map: Option<ColorMap>,
    /// Draw maps as pictures [default: if the terminal supports it]
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    graphics: Option<Graphics>,
}

/// Takes the built-in themes, which help and completions list, and those of the settings.
#[derive(Debug, Clone, Copy)]
struct ThemeParser;

impl TypedValueParser for ThemeParser {
    type Value = String;

    /// Whether there is such a theme, the settings say.
    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> std::result::Result<String, clap::Error> {
        clap::builder::StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(built_in_themes().iter().map(PossibleValue::new)))
    }
}

/// The names of the built-in themes.
fn built_in_themes() -> &'static [&'static str] {
    let theme = Setting::find(setting::THEME.section, setting::THEME.name);
    match theme.map(|theme| theme.kind) {
        Some(Kind::Theme(known)) => known,
        _ => &[],
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Background {
    Auto,
    Dark,
    Light,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Truecolor,
    #[value(name = "256")]
    Indexed,
    #[value(name = "16")]
    Sixteen,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ColorMap {
    Viridis,
    Cividis,
    Magma,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Graphics {
    Auto,
    Kitty,
    Iterm2,
    Sixel,
    Off,
}

/// What a value is called in settings too.
fn name(value: &impl ValueEnum) -> String {
    let possible = value.to_possible_value();
    possible.map_or(String::new(), |value| value.get_name().to_owned())
}

impl ScreenArgs {
    /// The settings, with what these flags say.
    ///
    /// # Errors
    /// None for flags that settings know.
    pub fn config(&self) -> Result<Config> {
        let mut config = config().clone();
        let flags = [
            (&setting::THEME, "--theme", self.theme.clone()),
            (
                &setting::BACKGROUND,
                "--background",
                self.background.as_ref().map(name),
            ),
            (&setting::COLOR, "--color", self.color.as_ref().map(name)),
            (
                &setting::COLOR_MAP,
                "--color-map",
                self.color_map.as_ref().map(name),
            ),
            (
                &setting::GRAPHICS,
                "--graphics",
                self.graphics.as_ref().map(name),
            ),
        ];
        for (key, flag, value) in flags {
            if let Some(value) = value {
                let taken = config.take_flag(key, flag, &value);
                taken.map_err(anyhow::Error::msg)?;
            }
        }
        Ok(config)
    }

    /// How the screen is to be.
    ///
    /// # Errors
    /// When a key of the settings cannot be as they want it.
    pub fn setup(&self) -> Result<Setup> {
        let setup = Setup::of(&self.config()?, |name| std::env::var(name).ok());
        setup.map_err(|problems| anyhow::Error::msg(problems.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_system::config::SETTINGS;

    #[test]
    fn flags_offer_what_settings_take() {
        fn names<T: ValueEnum>() -> Vec<String> {
            T::value_variants().iter().map(name).collect()
        }
        for (setting, flags) in [
            ("background", names::<Background>()),
            ("color", names::<Color>()),
            ("color_map", names::<ColorMap>()),
            ("graphics", names::<Graphics>()),
        ] {
            let found = SETTINGS.iter().find(|known| known.name == setting);
            match found.map(|setting| setting.kind) {
                Some(Kind::Choice(known)) => assert_eq!(known.to_vec(), flags),
                other => panic!("{setting}: {other:?}"),
            }
        }
    }
}
