//! Reads the settings file and the environment; reports every problem, so that one mistake does not hide the others.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use attnscope_checkpoint::nearest::did_you_mean;
use attnscope_checkpoint::{CONFIGURATION, read_text};
use attnscope_checks::Thresholds;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::commands::{COMMANDS, Command};
use super::place;
use super::setting::{self, Key, SETTINGS, Setting};
use super::themes::{OwnTheme, THEMES};
use super::thresholds::THRESHOLDS;
use super::typed::{kind, value_of};
use super::value::{FromSetting, Origin, Value};

/// The section of keys.
const KEYS: &str = "keys";

/// A value with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Set<T> {
    pub value: T,
    pub origin: Origin,
}

/// New keys for an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyChange {
    pub action: String,
    pub keys: Vec<String>,
    pub origin: Origin,
}

/// All values in force.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Path of the settings file, if known, and whether it exists.
    pub path: Option<PathBuf>,
    pub is_there: bool,
    values: BTreeMap<String, Set<Value>>,
    pub keys: Vec<KeyChange>,
    /// Commands of the user's own, in the order of the file.
    pub commands: Vec<Command>,
    /// Themes of the user's own, in the order of the file.
    pub themes: Vec<OwnTheme>,
    /// By name: `entropy-collapse.relative_entropy`.
    pub thresholds: BTreeMap<String, Set<f64>>,
    /// Problems, one per line, each with its location.
    pub problems: Vec<String>,
}

impl Config {
    /// Reads the settings file, as located by the environment, and the environment.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let (path, is_named) = place::path(&variable);
        let mut config = Self {
            is_there: path.as_ref().is_some_and(|path| path.exists()),
            path,
            ..Self::default()
        };
        if let Some(path) = config.path.clone()
            && (config.is_there || is_named)
        {
            match read_text(&path, CONFIGURATION) {
                Ok(text) => config.take_file(&path, &text),
                Err(e) => config.problems.push(e.to_string()),
            }
        }
        config.take_environment(variable);
        config
    }

    /// Reads the values of a text as if it were a file at this path.
    pub fn of_text(path: &std::path::Path, text: &str) -> Self {
        let mut config = Self::default();
        config.take_file(path, text);
        config
    }

    /// Returns the value in force of a setting, and its origin.
    pub fn of(&self, section: &str, name: &str) -> Set<Value> {
        let set = self.values.get(&format!("{section}.{name}")).cloned();
        set.unwrap_or_else(|| Set {
            value: Setting::find(section, name).map_or(Value::Switch(false), Setting::default),
            origin: Origin::Default,
        })
    }

    /// Returns the value in force of a setting.
    pub fn get<T: FromSetting>(&self, key: &Key<T>) -> T {
        T::of(&self.of(key.section, key.name).value)
    }

    /// Takes the value of a setting back.
    pub(super) fn forget(&mut self, path: &str) {
        self.values.remove(path);
    }

    /// Returns the thresholds of checks in force.
    pub fn thresholds(&self) -> Thresholds {
        let mut all = Thresholds::default();
        for (name, set) in &self.thresholds {
            all.set(name, set.value);
        }
        all
    }

    /// Applies a flag.
    ///
    /// # Errors
    /// What the setting accepts, and what was found.
    pub fn take_flag<T>(
        &mut self,
        key: &Key<T>,
        flag: &'static str,
        text: &str,
    ) -> Result<(), String> {
        let setting = Setting::find(key.section, key.name).ok_or("there is no such setting")?;
        let value = setting.of_text(text).map_err(|e| format!("{flag}: {e}"))?;
        if setting.path() == setting::THEME.path() {
            self.check_theme(text).map_err(|e| format!("{flag}: {e}"))?;
        }
        let origin = Origin::Flag(flag);
        self.values.insert(setting.path(), Set { value, origin });
        Ok(())
    }

    fn take_environment(&mut self, variable: impl Fn(&str) -> Option<OsString>) {
        let said = |name: &str| variable(name).filter(|value| !value.is_empty());
        if said("NO_COLOR").is_some() {
            let value = Value::Text("none".to_owned());
            let origin = Origin::Environment("NO_COLOR");
            let set = Set { value, origin };
            self.values.insert("screen.color".to_owned(), set);
        }
        for setting in SETTINGS {
            let Some(text) = said(setting.variable) else {
                continue;
            };
            let text = text.to_string_lossy();
            let read = setting.of_text(&text).and_then(|value| {
                let is_theme = setting.path() == setting::THEME.path();
                let checked = if is_theme {
                    self.check_theme(&text)
                } else {
                    Ok(())
                };
                checked.map(|()| value)
            });
            match read {
                Ok(value) => {
                    let origin = Origin::Environment(setting.variable);
                    self.values.insert(setting.path(), Set { value, origin });
                }
                Err(e) => self.problems.push(format!("{}: {e}", setting.variable)),
            }
        }
    }

    fn take_file(&mut self, path: &std::path::Path, text: &str) {
        let mut file = File {
            path,
            text,
            config: self,
            problems: Vec::new(),
        };
        match DeTable::parse(text) {
            Ok(table) => {
                file.take(table.get_ref());
                if let Some((Origin::File(_, line), problem)) = file.config.refuse_theme() {
                    let problem = format!("{}:{line}: {problem}", path.display());
                    file.problems.push((line, problem));
                }
            }
            Err(e) => {
                let at = e.span().map_or(0, |span| span.start);
                let problem = format!("is not TOML ({})", e.message().replace('\n', ", "));
                file.problem(at, &problem);
            }
        }
        // In the order of lines, as the user reads them.
        let File { mut problems, .. } = file;
        problems.sort_by_key(|(line, _)| *line);
        let problems = problems.into_iter().map(|(_, problem)| problem);
        self.problems.extend(problems);
    }
}

/// State of reading the settings file.
pub(super) struct File<'a> {
    path: &'a std::path::Path,
    text: &'a str,
    pub(super) config: &'a mut Config,
    /// Problems with their line numbers.
    problems: Vec<(usize, String)>,
}

impl File<'_> {
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    pub(super) fn origin(&self, at: usize) -> Origin {
        Origin::File(self.path.to_path_buf(), self.line(at))
    }

    pub(super) fn problem(&mut self, at: usize, what: &str) {
        let line = self.line(at);
        let problem = format!("{}:{line}: {what}", self.path.display());
        self.problems.push((line, problem));
    }

    fn take(&mut self, table: &DeTable<'_>) {
        let mut sections: Vec<&str> = SETTINGS.iter().map(|setting| setting.section).collect();
        sections.dedup();
        sections.extend([KEYS, THRESHOLDS, COMMANDS, THEMES]);
        for (name, value) in table {
            let (section, at) = (name.get_ref().as_ref(), name.span().start);
            if !sections.contains(&section) {
                let meant = self.meant_by(section, &sections);
                let known = sections.join(", ");
                self.problem(
                    at,
                    &format!("{section} is not known{meant}; sections: {known}"),
                );
                continue;
            }
            let DeValue::Table(values) = value.get_ref() else {
                let found = kind(value.get_ref());
                self.problem(
                    at,
                    &format!("{section}: expected a section [{section}], found {found}"),
                );
                continue;
            };
            match section {
                KEYS => self.take_keys(values),
                THEMES => self.take_themes(values),
                COMMANDS => self.take_commands(values),
                THRESHOLDS => self.take_thresholds(values),
                _ => self.take_section(section, values),
            }
        }
    }

    /// Suggests what an unknown section name may mean: a key placed before any section, or a typo.
    fn meant_by(&self, name: &str, sections: &[&str]) -> String {
        match SETTINGS.iter().find(|setting| setting.name == name) {
            Some(setting) => format!(" here: it belongs into [{}]", setting.section),
            None => did_you_mean(name, sections.iter().copied()),
        }
    }

    fn take_section(&mut self, section: &str, values: &DeTable<'_>) {
        for (name, value) in values {
            let at = name.span().start;
            let Some(setting) = Setting::find(section, name.get_ref()) else {
                let name = name.get_ref().as_ref();
                let here = SETTINGS.iter().filter(|setting| setting.section == section);
                let known: Vec<&str> = here.map(|setting| setting.name).collect();
                let elsewhere = SETTINGS.iter().find(|setting| setting.name == name);
                let meant = match elsewhere {
                    Some(setting) => format!(" (it belongs into [{}])", setting.section),
                    None => did_you_mean(name, known.iter().copied()),
                };
                let known = known.join(", ");
                let what = format!("{section}.{name} is not known{meant}; known: {known}");
                self.problem(at, &what);
                continue;
            };
            match value_of(setting, value.get_ref()) {
                Ok(value) => {
                    let origin = self.origin(at);
                    let set = Set { value, origin };
                    self.config.values.insert(setting.path(), set);
                }
                Err(e) => self.problem(at, &format!("{}: {e}", setting.path())),
            }
        }
    }

    /// Actions are checked by the screen, which reports unknown ones.
    fn take_keys(&mut self, values: &DeTable<'_>) {
        for (name, value) in values {
            let at = name.span().start;
            let keys = match value.get_ref() {
                DeValue::String(key) => Some(vec![key.to_string()]),
                DeValue::Array(keys) => keys.iter().map(key_of).collect(),
                _ => None,
            };
            let action = name.get_ref().to_string();
            match keys {
                Some(keys) => {
                    let origin = self.origin(at);
                    let change = KeyChange {
                        action,
                        keys,
                        origin,
                    };
                    self.config.keys.push(change);
                }
                None => {
                    let found = kind(value.get_ref());
                    let what =
                        format!("keys.{action}: expected a key or a list of keys, found {found}");
                    self.problem(at, &what);
                }
            }
        }
    }
}

fn key_of(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(key) => Some(key.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::setting;

    fn of(text: &str) -> Config {
        Config::of_text(std::path::Path::new("c.toml"), text)
    }

    #[test]
    fn a_mistake_names_its_line_and_the_nearest_name_and_hides_no_other() {
        for (text, said) in [
            (
                "[screen]\ntheem = \"dark\"",
                &["c.toml:2", "screen.theem", "did you mean theme?"][..],
            ),
            ("[sceen]\n", &["c.toml:1", "did you mean screen?"]),
            ("theme = \"dark\"\n", &["c.toml:1", "theme", "[screen]"]),
            (
                "\n\n[screen]\ntheme = \"drak\"",
                &["c.toml:4", "\"drak\"", "did you mean dark?"],
            ),
            (
                "[screen]\ntheme = true",
                &["c.toml:2", "expected one of auto", "true or false"],
            ),
            (
                "[screen]\nclipboard = \"yes\"",
                &["c.toml:2", "expected true or false", "a text"],
            ),
            (
                "[screen]\nstatistic = \"max_probabilty\"",
                &["did you mean max_probability?"],
            ),
            ("[cache]\nmost_mib = -1", &["c.toml:2", "from 1 to", "-1"]),
            (
                "[cache]\nmost_mib = 1.5",
                &["a whole number", "found a number"],
            ),
            (
                "[cache]\nmost_mib = 99999999999999999999",
                &["a whole number"],
            ),
            ("[screen]\nmost_mib = 1", &["c.toml:2", "[cache]"]),
            ("screen = 3", &["c.toml:1", "[screen]", "a whole number"]),
            (
                "[keys]\nquit = 3",
                &["c.toml:2", "keys.quit", "a whole number"],
            ),
            (
                "[keys]\nquit = [\"q\", 3]",
                &["c.toml:2", "keys.quit", "a list"],
            ),
            (
                "[thresholds.entropy-collapse]\nrelative_entropi = 1",
                &[
                    "c.toml:2",
                    "did you mean entropy-collapse.relative_entropy?",
                ],
            ),
            (
                "[thresholds]\nentropy-collapse = 1",
                &["c.toml:2", "[thresholds.entropy-collapse]"],
            ),
            (
                "[thresholds.entropy-collapse]\nrelative_entropy = nan",
                &["c.toml:2", "expected a number"],
            ),
            ("[screen]\ntheme = ", &["c.toml:2", "is not TOML"]),
            (
                "[screen]\ntheme = \"dark\"\ntheme = \"light\"",
                &["c.toml:3", "is not TOML"],
            ),
        ] {
            let with_more = format!("{text}\n\n[history]\nprompts = 7\n");
            let config = of(&with_more);
            let [problem] = config.problems.as_slice() else {
                panic!("{text}: {:?}", config.problems)
            };
            for part in said {
                assert!(problem.contains(part), "{text}: {problem} has no {part}");
            }
            assert!(!problem.contains('\n'), "{problem}");
            let expected = if problem.contains("is not TOML") {
                200
            } else {
                7
            };
            assert_eq!(config.get(&setting::HISTORY_PROMPTS), expected, "{text}");
        }
    }

    #[test]
    fn values_from_the_file_have_their_line_as_origin() {
        let text = "[screen]\ncolor = 256\nmouse = false\n\n[thresholds.entropy-collapse]\nrelative_entropy = 1\n\n[keys]\ncopy = [\"Y\"]\n";
        let mut config = of(text);
        assert_eq!(config.problems, Vec::<String>::new());
        let line = |n| Origin::File("c.toml".into(), n);
        let color = config.of("screen", "color");
        assert_eq!(
            (color.value.to_string(), color.origin),
            ("256".to_owned(), line(2))
        );
        assert!(!config.get(&setting::MOUSE));
        assert_eq!(config.thresholds().entropy_collapse.relative_entropy, 1.0);
        assert_eq!(config.keys[0].origin, line(9));
        let taken = config.take_flag(&setting::COLOR, "--color", "none");
        assert_eq!(
            (taken, config.get(&setting::COLOR)),
            (Ok(()), "none".to_owned())
        );
        let refused = config.take_flag(&setting::COLOR, "--color", "many");
        assert!(
            refused
                .expect_err("refused")
                .contains("--color: expected one of")
        );
    }

    #[test]
    fn the_environment_overrides_the_file_and_its_mistakes_are_reported() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("c.toml");
        std::fs::write(&path, "[screen]\ncolor = 256\ntheme = \"light\"\n").expect("writes");
        let with = |pairs: &[(&str, &str)]| {
            Config::read(|name| match name {
                place::VARIABLE => Some(path.clone().into()),
                name => {
                    let found = pairs.iter().find(|(known, _)| *known == name);
                    found.map(|(_, value)| OsString::from(value))
                }
            })
        };
        let config = with(&[("NO_COLOR", "1"), ("ATTNSCOPE_THEME", "dark")]);
        assert_eq!(config.get(&setting::COLOR), "none");
        assert_eq!(
            config.of("screen", "color").origin,
            Origin::Environment("NO_COLOR")
        );
        assert_eq!(config.get(&setting::THEME), "dark");
        let config = with(&[("NO_COLOR", "1"), ("ATTNSCOPE_COLOR", "16")]);
        assert_eq!(config.get(&setting::COLOR), "16");
        let config = with(&[("NO_COLOR", ""), ("ATTNSCOPE_THEME", "blue")]);
        assert_eq!(config.get(&setting::COLOR), "256");
        assert!(config.problems[0].contains("ATTNSCOPE_THEME: expected one of"));
        assert_eq!(config.get(&setting::THEME), "light");
    }

    #[test]
    fn a_settings_file_named_by_the_user_has_to_exist() {
        let named = |name: &str| (name == place::VARIABLE).then(|| "/nowhere/c.toml".into());
        let config = Config::read(named);
        assert!(
            config.problems[0].contains("/nowhere/c.toml"),
            "{:?}",
            config.problems
        );
        let of_home = |name: &str| (name == "HOME").then(|| "/nowhere".into());
        assert_eq!(Config::read(of_home).problems, Vec::<String>::new());
    }
}
