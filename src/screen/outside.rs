//! Lends the terminal to another program: the user's own editor, or a command of the settings.

use attnscope_compute::error::{Error, Result};

use super::hearing::Ears;

/// Edits a text in `$VISUAL`, `$EDITOR` or vi, and returns what the editor left. The caller takes the terminal again.
///
/// # Errors
/// When there is no such editor, it fails, or what it leaves is not text.
#[cfg(unix)]
pub fn edit_outside(text: &str, ears: &Ears) -> Result<String> {
    let directory = tempfile::Builder::new().prefix("attnscope-").tempdir();
    let directory =
        directory.map_err(|e| unusable(&format!("no file can be made for it ({e})")))?;
    let path = directory.path().join("prompt.txt");
    std::fs::write(&path, format!("{text}\n")).map_err(|e| Error::file(&path, e.to_string()))?;
    let editor = editor();
    // The variable may hold options too, so a shell splits it.
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(&path);
    match lend_to(command, ears).map_err(|e| unusable(&e))? {
        Ok(status) if status.success() => {
            let text = super::state::editor::text_of(&path).map_err(Error::Prompt)?;
            Ok(text)
        }
        Ok(status) => Err(unusable(&format!(
            "{editor} failed ({status}), and the text is as it was; $VISUAL or $EDITOR names another"
        ))),
        Err(e) => Err(unusable(&format!("no shell can start {editor} ({e})"))),
    }
}

/// Runs a program that gets the terminal. The caller takes it again.
///
/// # Errors
/// When it cannot be started, or fails.
#[cfg(unix)]
pub fn run_outside(words: &[String], ears: &Ears) -> std::result::Result<String, String> {
    let Some((program, arguments)) = words.split_first() else {
        return Err("there is no program to run".to_owned());
    };
    let mut command = std::process::Command::new(program);
    command.args(arguments);
    match lend_to(command, ears)? {
        Ok(status) if status.success() => Ok(String::new()),
        Ok(status) => Err(format!("{program} failed ({status})")),
        Err(e) => Err(format!("{program} cannot be started ({e})")),
    }
}

/// Lends the terminal to a program until it ends.
#[cfg(unix)]
fn lend_to(
    mut command: std::process::Command,
    ears: &Ears,
) -> std::result::Result<std::io::Result<std::process::ExitStatus>, String> {
    let _held = ears
        .hold
        .hold()
        .map_err(|e| format!("keys cannot be left to it ({e})"))?;
    let _lent = attnscope_system::signals::lend();
    attnscope_terminal::guard::restore();
    Ok(command.status())
}

#[cfg(not(unix))]
pub fn edit_outside(_: &str, _: &Ears) -> Result<String> {
    Err(unusable("the terminal cannot be left to it on this system"))
}

#[cfg(not(unix))]
pub fn run_outside(_: &[String], _: &Ears) -> std::result::Result<String, String> {
    Err("the terminal cannot be left to it on this system".to_owned())
}

/// The command that edits a text.
#[cfg(unix)]
fn editor() -> String {
    let named = ["VISUAL", "EDITOR"].into_iter().find_map(|name| {
        let value = std::env::var(name).ok();
        value.filter(|value| !value.trim().is_empty())
    });
    named.unwrap_or_else(|| "vi".to_owned())
}

fn unusable(problem: &str) -> Error {
    Error::Prompt(format!("your editor: {problem}"))
}
