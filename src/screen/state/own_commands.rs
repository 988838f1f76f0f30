//! Commands of the user's settings, with the keys that they have on screen.

use attnscope_system::config::{Command, Config};
use crossterm::event::KeyEvent;

use super::chord::{Chord, name_of, parse};
use super::keymap::{Keymap, action_name, chord_of};
use super::keys::BINDINGS;

/// A command with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCommand {
    pub command: Command,
    pub chord: Option<Chord>,
}

impl OwnCommand {
    /// Its key as text; empty if it has none.
    pub fn shown(&self) -> String {
        self.chord.map_or_else(String::new, name_of)
    }

    /// What it does: in the user's words, or the command line.
    pub fn about(&self) -> String {
        if self.command.about.is_empty() {
            format!("run {}", self.command.words.join(" "))
        } else {
            self.command.about.clone()
        }
    }
}

impl Keymap {
    /// The keys of the settings: the table with their changes, and their commands.
    ///
    /// # Errors
    /// Every change or key of a command that is unknown, or would have two meanings.
    pub fn of(config: &Config) -> Result<Self, Vec<String>> {
        let (mut keymap, mut problems) = match Self::with(&config.keys) {
            Ok(keymap) => (keymap, Vec::new()),
            Err(problems) => (Self::default(), problems),
        };
        for command in &config.commands {
            let key = command.key.as_deref().map(parse).transpose();
            let (chord, problem) = match key {
                Ok(chord) => {
                    let meant = chord.and_then(|chord| keymap.meaning_of(chord));
                    let problem = meant.zip(chord).map(|(meant, chord)| {
                        format!(": {} means {meant} already", name_of(chord))
                    });
                    (chord, problem)
                }
                Err(e) => (None, Some(format!(": {e}"))),
            };
            if let Some(problem) = problem {
                let (origin, name) = (&command.origin, &command.name);
                problems.push(format!("{origin}: commands.{name}.key{problem}"));
            }
            let command = command.clone();
            keymap.commands.push(OwnCommand { command, chord });
        }
        if problems.is_empty() {
            Ok(keymap)
        } else {
            Err(problems)
        }
    }

    /// What a chord means anywhere.
    fn meaning_of(&self, chord: Chord) -> Option<String> {
        let mut rows = BINDINGS.iter().zip(&self.rows);
        let row = rows.find(|(_, row)| row.chords.contains(&chord));
        let action = row.map(|(binding, _)| action_name(binding.action));
        let mut own = self.commands.iter();
        let own = own.find(|own| own.chord == Some(chord));
        action.or_else(|| own.map(|own| format!("the command {}", own.command.name)))
    }

    /// The index of the command that a key runs.
    pub fn command_of(&self, event: KeyEvent) -> Option<usize> {
        let chord = chord_of(event);
        let is_it = |own: &OwnCommand| own.chord == Some(chord);
        self.commands.iter().position(is_it)
    }

    /// The commands of the settings.
    pub fn commands(&self) -> &[OwnCommand] {
        &self.commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_takes_a_free_key_and_no_other() {
        let of = |text: &str| {
            let config = Config::of_text("c.toml".as_ref(), text);
            assert_eq!(config.problems, Vec::<String>::new());
            Keymap::of(&config)
        };
        let keymap = of("[commands]\na = { run = \"x\", key = \"Alt-x\" }\nb = \"y\"\n");
        let keymap = keymap.expect("a free key");
        let pressed = KeyEvent::new(
            crossterm::event::KeyCode::Char('x'),
            crossterm::event::KeyModifiers::ALT,
        );
        assert_eq!(keymap.command_of(pressed), Some(0));
        for (text, said) in [
            (
                "a = { run = \"x\", key = \"m\" }",
                "c.toml:2: commands.a.key: m means pick-statistic already",
            ),
            (
                "a = { run = \"x\", key = \"Kaboom\" }",
                "commands.a.key: expected a key",
            ),
            (
                "a = { run = \"x\", key = \"Alt-x\" }\nb = { run = \"y\", key = \"Alt-x\" }",
                "c.toml:3: commands.b.key: Alt-X means the command a already",
            ),
        ] {
            let problems = of(&format!("[commands]\n{text}\n")).expect_err(text);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(
                problems[0].to_lowercase().contains(&said.to_lowercase()),
                "{problems:?}"
            );
        }
    }
}
