//! The active keys: the key table with the changes of the user's settings.

use std::borrow::Cow;
use std::fmt::Write as _;

use attnscope_checkpoint::nearest::did_you_mean;
use attnscope_system::config::KeyChange;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::chord::{Chord, name_of, parse};
use super::keys::{Action, BINDINGS, Binding, Group, Need};
use super::own_commands::OwnCommand;
use super::panel::Panel;

/// The keys of one row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) chords: Vec<Chord>,
    shown: Cow<'static, str>,
}

/// The active keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keymap {
    /// One for each row of the table.
    pub(super) rows: Vec<Row>,
    /// Commands of the user's own.
    pub(super) commands: Vec<OwnCommand>,
}

impl Default for Keymap {
    fn default() -> Self {
        let row = |binding: &Binding| Row {
            chords: binding.chords.to_vec(),
            shown: Cow::Borrowed(binding.shown),
        };
        Self {
            rows: BINDINGS.iter().map(row).collect(),
            commands: Vec::new(),
        }
    }
}

impl Keymap {
    /// Applies changes to the table.
    ///
    /// # Errors
    /// Every change that names an unknown action or key, and every key that would have two actions in one panel.
    pub fn with(changes: &[KeyChange]) -> Result<Self, Vec<String>> {
        let mut keymap = Self::default();
        if changes.is_empty() {
            return Ok(keymap);
        }
        let mut problems = Vec::new();
        // The change applied to each row, if any.
        let mut changed: Vec<Option<&KeyChange>> = vec![None; BINDINGS.len()];
        for change in changes {
            let at = format!("{}: keys.{}", change.origin, change.action);
            let rows = rows_of(&change.action);
            if rows.is_empty() {
                let names = action_names();
                let meant = did_you_mean(&change.action, names.iter().map(String::as_str));
                problems.push(format!(
                    "{at} is not known{meant}; docs/keys.md and the help (?) list the actions"
                ));
                continue;
            }
            let chords: Result<Vec<Chord>, String> =
                change.keys.iter().map(|key| parse(key)).collect();
            match chords {
                Ok(chords) => keymap.change(&rows, &chords),
                Err(e) => problems.push(format!("{at}: {e}")),
            }
            rows.iter().for_each(|row| changed[*row] = Some(change));
        }
        for (first, second, chord, panel) in keymap.conflicts() {
            let Some(change) = changed[second].or(changed[first]) else {
                continue;
            };
            let [first, second] = [first, second].map(|row| action_name(BINDINGS[row].action));
            let problem = format!(
                "{}: {} means {first} and {second} in {}: give one of them another key",
                change.origin,
                name_of(chord),
                panel.title()
            );
            // Report a conflict once, not for every panel.
            let said = format!("means {first} and {second} in");
            if !problems.iter().any(|known| known.contains(&said)) {
                problems.push(problem);
            }
        }
        if problems.is_empty() {
            Ok(keymap)
        } else {
            Err(problems)
        }
    }

    /// Replaces the keys of an action: all go to its first row, none to the others.
    fn change(&mut self, rows: &[usize], chords: &[Chord]) {
        let names: Vec<String> = chords.iter().map(|chord| name_of(*chord)).collect();
        for (nth, row) in rows.iter().enumerate() {
            self.rows[*row] = if nth == 0 || is_elsewhere(rows, *row) {
                Row {
                    chords: chords.to_vec(),
                    shown: Cow::Owned(names.join(" ")),
                }
            } else {
                Row {
                    chords: Vec::new(),
                    shown: Cow::Borrowed(""),
                }
            };
        }
    }

    /// Pairs of rows that share a key in some panel.
    fn conflicts(&self) -> Vec<(usize, usize, Chord, Panel)> {
        let mut found = Vec::new();
        for panel in Panel::ALL {
            let here: Vec<usize> = (0..BINDINGS.len())
                .filter(|row| BINDINGS[*row].is_in(panel))
                .collect();
            for (idx, first) in here.iter().enumerate() {
                for second in &here[idx + 1..] {
                    let others = &self.rows[*second].chords;
                    let shared = self.rows[*first]
                        .chords
                        .iter()
                        .find(|chord| others.contains(chord));
                    // Two rows of the same action do not conflict, nor do keys that come before others for a while.
                    let [one, other] = [*first, *second].map(|row| &BINDINGS[row]);
                    let is_same = one.action == other.action
                        || (one.needs == Need::Match) != (other.needs == Need::Match);
                    if let Some(chord) = shared.filter(|_| !is_same) {
                        found.push((*first, *second, *chord, panel));
                    }
                }
            }
        }
        found
    }

    /// The row that a key selects in a panel.
    pub fn binding_of(&self, event: KeyEvent, panel: Panel) -> Option<&'static Binding> {
        self.find(event, |binding| {
            binding.needs != Need::Match && binding.is_in(panel)
        })
    }

    /// The row that a key selects while a list is filtered or something was found, if it means a match.
    pub fn match_binding_of(&self, event: KeyEvent) -> Option<&'static Binding> {
        self.find(event, |binding| binding.needs == Need::Match)
    }

    fn find(
        &self,
        event: KeyEvent,
        is_meant: impl Fn(&Binding) -> bool,
    ) -> Option<&'static Binding> {
        let chord = chord_of(event);
        let rows = BINDINGS.iter().zip(&self.rows);
        let matches = |(binding, row): &(&'static Binding, &Row)| {
            is_meant(binding) && row.chords.contains(&chord)
        };
        rows.into_iter().find(matches).map(|(binding, _)| binding)
    }

    /// The keys of a row as text; empty if it has none.
    pub fn shown(&self, binding: &Binding) -> &str {
        let row = BINDINGS.iter().position(|row| std::ptr::eq(row, binding));
        row.map_or("", |row| &self.rows[row].shown)
    }

    /// The first key of an action as text, for sentences that name one key.
    pub fn key(&self, action: Action) -> String {
        let rows = BINDINGS.iter().zip(&self.rows);
        let mut chords = rows
            .filter(|(binding, _)| binding.action == action)
            .filter_map(|(_, row)| row.chords.first());
        // An action without a key is reached from the palette.
        chords
            .next()
            .map_or_else(|| ":".to_owned(), |chord| name_of(*chord))
    }

    /// Whether settings gave an action other keys.
    pub fn is_changed(&self, action: Action) -> bool {
        let rows = BINDINGS.iter().zip(&self.rows);
        let mut own = rows.filter(|(binding, _)| binding.action == action);
        own.any(|(binding, row)| binding.chords != row.chords.as_slice())
    }

    /// Whether these are the table's keys with the given changes.
    pub fn is_of(&self, changes: &[KeyChange]) -> bool {
        Self::with(changes).is_ok_and(|other| other.rows == self.rows)
    }

    /// Rows for the footer of a panel, the panel's own first.
    pub fn footer_of(&self, panel: Panel) -> impl Iterator<Item = (&'static Binding, &str)> {
        let labelled = move |own: bool| {
            BINDINGS
                .iter()
                .zip(&self.rows)
                .filter(move |(binding, row)| {
                    !binding.label.is_empty()
                        && !row.chords.is_empty()
                        && binding.panels.is_empty() != own
                        && binding.is_in(panel)
                })
        };
        let rows = labelled(true).chain(labelled(false));
        rows.map(|(binding, row)| (binding, row.shown.as_ref()))
    }

    /// Every row of a group, with its keys.
    pub fn of_group(&self, group: Group) -> impl Iterator<Item = (&'static Binding, &str)> {
        let rows = BINDINGS.iter().zip(&self.rows);
        rows.filter(move |(binding, _)| binding.group == group)
            .map(|(binding, row)| (binding, row.shown.as_ref()))
    }
}

/// The chord of an event.
pub(super) fn chord_of(event: KeyEvent) -> Chord {
    // Shift is part of the character, and terminals differ in whether they report it.
    let modifiers = match event.code {
        KeyCode::Char(_) | KeyCode::BackTab => event.modifiers - KeyModifiers::SHIFT,
        _ => event.modifiers,
    };
    (event.code, modifiers)
}

/// Whether a row applies only in panels where the action's first row does not.
fn is_elsewhere(rows: &[usize], row: usize) -> bool {
    let first = &BINDINGS[rows[0]];
    let is_in_first = |panel: &Panel| first.is_in(*panel);
    !BINDINGS[row].panels.is_empty() && !BINDINGS[row].panels.iter().any(is_in_first)
}

/// The rows of a named action.
fn rows_of(name: &str) -> Vec<usize> {
    let rows = BINDINGS.iter().enumerate();
    let own = rows.filter(|(_, binding)| action_name(binding.action) == name);
    own.map(|(row, _)| row).collect()
}

fn action_names() -> Vec<String> {
    BINDINGS
        .iter()
        .map(|binding| action_name(binding.action))
        .collect()
}

/// The name of an action in settings: `open-head`, `go-overview`.
pub fn action_name(action: Action) -> String {
    let mut name = String::new();
    for c in format!("{action:?}").chars() {
        match c {
            '(' => name.push('-'),
            ')' => {}
            c if c.is_uppercase() => {
                if !name.is_empty() && !name.ends_with('-') {
                    name.push('-');
                }
                name.extend(c.to_lowercase());
            }
            c => name.push(c),
        }
    }
    name
}

/// Every action by name, with its keys.
pub fn keys_in_force(keymap: &Keymap) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for (binding, row) in BINDINGS.iter().zip(&keymap.rows) {
        let name = action_name(binding.action);
        let keys = row.chords.iter().map(|chord| name_of(*chord));
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => known.extend(keys),
            None => all.push((name, keys.collect())),
        }
    }
    for (_, keys) in &mut all {
        let mut seen = Vec::new();
        keys.retain(|key| {
            !seen.contains(key) && {
                seen.push(key.clone());
                true
            }
        });
    }
    all
}

/// Every row of the table with keys, and every command of the settings: its keys, its action, the panels in which it applies, and what it does.
pub fn key_rows(keymap: &Keymap) -> Vec<[String; 4]> {
    let rows = BINDINGS.iter().zip(&keymap.rows);
    let with_keys = rows.filter(|(_, row)| !row.chords.is_empty());
    let of = |(binding, row): (&Binding, &Row)| {
        let names: Vec<String> = row.chords.iter().map(|chord| name_of(*chord)).collect();
        let panels: Vec<&str> = binding.panels.iter().map(|panel| panel.title()).collect();
        let panels = match panels.as_slice() {
            [] => "everywhere".to_owned(),
            few if few.len() <= 4 => few.join(", "),
            many => format!("{} panels", many.len()),
        };
        [
            names.join(" "),
            action_name(binding.action),
            panels,
            binding.help.to_owned(),
        ]
    };
    let own = keymap.commands.iter().map(|own| {
        let name = format!("commands.{}", own.command.name);
        [own.shown(), name, "everywhere".to_owned(), own.about()]
    });
    with_keys.map(of).chain(own).collect()
}

/// Generates the page of keys in the docs.
pub fn keys_page() -> String {
    let mut page = "# Keys and settings\n\nAfter this page you can look up every key, and set once what you would otherwise say in every session: \
                    colours, keys, thresholds, limits.\nGenerated from the tables of the program. The help overlay (`?`) shows the \
                    keys too, with those that your settings change.\nThe last column is what [settings](#settings) call the action. \
                    The mouse works too: click tabs, key hints, findings, heads, cells, bars, statistics, tokens and tensors; the wheel moves and zooms; \
                    resting on a cell shows its value.\n"
        .to_owned();
    for group in Group::ALL {
        let _ = write!(
            page,
            "\n## {}\n\n| keys | what they do | action |\n|---|---|---|\n",
            group.title()
        );
        for binding in BINDINGS.iter().filter(|b| b.group == group) {
            let (shown, help) = (binding.shown, binding.help);
            let _ = writeln!(
                page,
                "| `{shown}` | {help} | `{}` |",
                action_name(binding.action)
            );
        }
    }
    page
}

/// Chords that have two actions in one panel.
pub fn key_problems() -> Vec<String> {
    let conflicts = Keymap::default().conflicts();
    let problem = |(first, second, chord, panel): &(usize, usize, Chord, Panel)| {
        let [first, second] = [*first, *second].map(|row| BINDINGS[row].action);
        format!("{chord:?} means {first:?} and {second:?} in {panel:?}")
    };
    conflicts.iter().map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_system::config::Config;

    fn of(lines: &str) -> Result<Keymap, Vec<String>> {
        let config = Config::of_text("c.toml".as_ref(), &format!("[keys]\n{lines}"));
        assert_eq!(config.problems, Vec::<String>::new());
        Keymap::with(&config.keys)
    }

    fn pressed(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    #[test]
    fn no_chord_has_two_actions_in_one_panel() {
        assert_eq!(key_problems(), Vec::<String>::new());
    }

    #[test]
    fn every_panel_opens_with_the_key_that_its_tab_shows() {
        let keymap = Keymap::default();
        for panel in Panel::ALL {
            let event = pressed(KeyCode::Char(panel.key()), KeyModifiers::NONE);
            for shown in Panel::ALL {
                let found = keymap.binding_of(event, shown).map(|b| b.action);
                assert_eq!(found, Some(Action::Go(panel)), "{panel:?} from {shown:?}");
            }
        }
    }

    #[test]
    fn capital_letters_match_whether_or_not_the_terminal_reports_shift() {
        let keymap = Keymap::default();
        for modifiers in [KeyModifiers::NONE, KeyModifiers::SHIFT] {
            let found = keymap.binding_of(pressed(KeyCode::Char('L'), modifiers), Panel::Head);
            assert_eq!(found.map(|b| b.action), Some(Action::ToggleLog));
        }
        let elsewhere = pressed(KeyCode::Char('L'), KeyModifiers::NONE);
        assert!(keymap.binding_of(elsewhere, Panel::Tokens).is_none());
    }

    #[test]
    fn an_action_has_the_keys_that_settings_give_it_and_no_others() {
        let keymap = of("find = [\"Ctrl-f\", \"F3\"]\nopen-head = \"O\"\nprobe = []\n")
            .expect("no conflict");
        let action = |code, modifiers, panel| {
            let found = keymap.binding_of(pressed(code, modifiers), panel);
            found.map(|binding| binding.action)
        };
        let (none, ctrl) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        assert_eq!(
            action(KeyCode::Char('f'), ctrl, Panel::Model),
            Some(Action::Find)
        );
        assert_eq!(
            action(KeyCode::F(3), none, Panel::Model),
            Some(Action::Find)
        );
        assert_eq!(action(KeyCode::Char('/'), none, Panel::Model), None);
        assert_eq!(
            action(KeyCode::Char('O'), none, Panel::Overview),
            Some(Action::OpenHead)
        );
        assert_eq!(action(KeyCode::Enter, none, Panel::Overview), None);
        assert_eq!(
            action(KeyCode::Enter, none, Panel::Checks),
            Some(Action::OpenFinding)
        );
        assert_eq!(action(KeyCode::Char('p'), none, Panel::Checks), None);
        assert_eq!(keymap.key(Action::Find), "Ctrl-F");
        let footer: Vec<&str> = keymap
            .footer_of(Panel::Overview)
            .map(|(_, shown)| shown)
            .collect();
        assert!(
            footer.contains(&"O") && footer.contains(&"Ctrl-F F3"),
            "{footer:?}"
        );
    }

    #[test]
    fn keys_that_would_have_two_actions_are_refused_with_both_names() {
        for (lines, said) in [
            (
                "quit = \"m\"",
                &["c.toml:2", "m means pick-statistic and quit in Overview"][..],
            ),
            ("copy = \"j\"", &["c.toml:2", "down", "copy"]),
            ("find = \"Y\"\ncopy = \"Y\"", &["Y means", "find", "copy"]),
            (
                "qiut = \"Q\"",
                &["c.toml:2", "keys.qiut", "did you mean quit?"],
            ),
            (
                "quit = \"Kaboom\"",
                &["c.toml:2", "keys.quit", "\"Kaboom\""],
            ),
            ("quit = \"\"", &["keys.quit", "expected a key"]),
            ("find = \"Ctrl-C\"", &["Ctrl-C always quits"]),
            ("find = \"ctrl+z\"", &["Ctrl-Z always suspends"]),
            ("find = \"F13\"", &["\"F13\""]),
        ] {
            let problems = of(lines).expect_err(lines);
            for part in said {
                assert!(problems[0].contains(part), "{lines}: {problems:?}");
            }
            // Every conflict is reported at its line.
            let is_placed = |problem: &String| problem.starts_with("c.toml:");
            assert!(problems.iter().all(is_placed), "{problems:?}");
        }
    }

    #[test]
    fn one_key_may_have_different_actions_in_two_panels() {
        assert!(of("probe = \"z\"").is_ok());
    }
}
