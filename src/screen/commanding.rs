//! Runs commands of the user's settings: fills in places and texts, and says how each ended.

use std::path::{Path, PathBuf};

use attnscope_run::Subject;

use super::state::app::App;
use super::state::editor::as_text;
use super::state::find::{Item, Target};
use super::state::keys::Action;
use super::state::msg::{Effect, ReadyCommand};
use super::state::views::Axis;

impl App {
    /// Runs a command with what is on screen.
    pub(super) fn run_command(&mut self, nth: usize, effects: &mut Vec<Effect>) {
        let Some(own) = self.keys.commands().get(nth) else {
            return;
        };
        let command = &own.command;
        let name = command.name.clone();
        if self.commands_running.contains(&nth) {
            self.notice = Some(format!("{name} still runs"));
            return;
        }
        match command.filled(|placeholder| self.value_of(placeholder)) {
            Ok(words) => {
                let has_terminal = command.has_terminal;
                if !has_terminal {
                    self.commands_running.push(nth);
                    self.written = Some(format!("{name} runs …"));
                }
                effects.push(Effect::Command(ReadyCommand {
                    nth,
                    words,
                    has_terminal,
                }));
            }
            Err(e) => self.notice = Some(format!("{name}: {e}")),
        }
    }

    /// What stands for a placeholder now.
    fn value_of(&self, placeholder: &str) -> Result<String, String> {
        let lacks = |what: &str| format!("there is no {{{placeholder}}}: {what}");
        let run = self.scene().run();
        match placeholder {
            "checkpoint" => {
                let path = self.checkpoint_path();
                let path = path.ok_or_else(|| lacks("what is open is no file"))?;
                Ok(path.display().to_string())
            }
            "layer" => Ok(self.selection.layer_idx.to_string()),
            "head" => Ok(self.selection.head_idx.to_string()),
            "token" if run.is_some() => {
                let (query_idx, _) = self.scene().crosshair();
                Ok(self.scene().raw_token(Axis::Query, query_idx).to_owned())
            }
            _ => {
                let run = run.ok_or_else(|| lacks("nothing has run yet"))?;
                Ok(as_text(&run.source))
            }
        }
    }

    /// The file or the directory of the checkpoint or the trace on screen.
    pub(super) fn checkpoint_path(&self) -> Option<PathBuf> {
        let path = match self.scene().subject()? {
            Subject::Model(model) => {
                let files = model.checkpoint.files();
                match files.as_slice() {
                    [] => None,
                    [file] => Some(file.to_path_buf()),
                    [first, ..] => first.parent().map(Path::to_path_buf),
                }
            }
            Subject::Trace(recorded) if recorded.live.is_none() => {
                Some(recorded.captured.path.clone())
            }
            Subject::Trace(_) | Subject::Alignment(_) => {
                self.target.as_ref()?.first().map(PathBuf::from)
            }
        };
        path.filter(|path| path.exists())
    }

    /// Says how a command ended.
    pub(super) fn take_command(&mut self, nth: usize, ended: Result<String, String>) {
        self.commands_running.retain(|running| *running != nth);
        let Some(own) = self.keys.commands().get(nth) else {
            return;
        };
        let name = &own.command.name;
        match ended {
            Ok(line) if line.is_empty() => self.written = Some(format!("{name} is done")),
            Ok(line) => self.written = Some(format!("{name}: {line}")),
            Err(e) => self.notice = Some(format!("{name}: {e}")),
        }
    }

    /// The commands, for the palette.
    pub(super) fn command_items(&self) -> Vec<Item> {
        let own = self.keys.commands().iter().enumerate();
        own.map(|(nth, own)| {
            let key = own.shown();
            let about = own.about();
            Item {
                also: about.clone(),
                about: if key.is_empty() {
                    about
                } else {
                    format!("{key} · {about}")
                },
                ..Item::new(
                    own.command.name.clone(),
                    "command",
                    Target::Action(Action::Command(nth)),
                )
            }
        })
        .collect()
    }
}
