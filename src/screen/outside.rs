//! Lends the terminal to the user's own editor, to edit a text in it.

use attnscope_compute::error::{Error, Result};

use super::hearing::Ears;

/// Edits a text in `$VISUAL`, `$EDITOR` or vi, and returns what the editor left. The caller takes the terminal again.
///
/// # Errors
/// When there is no such editor, it fails, or what it leaves is not text.
#[cfg(unix)]
pub fn edit_outside(text: &str, ears: &Ears) -> Result<String> {
    use attnscope_terminal::guard::restore;

    let directory = tempfile::Builder::new().prefix("attnscope-").tempdir();
    let directory =
        directory.map_err(|e| unusable(&format!("no file can be made for it ({e})")))?;
    let path = directory.path().join("prompt.txt");
    std::fs::write(&path, format!("{text}\n")).map_err(|e| Error::file(&path, e.to_string()))?;
    let editor = editor();
    let status = {
        let _held = ears
            .hold
            .hold()
            .map_err(|e| unusable(&format!("keys cannot be left to it ({e})")))?;
        let _lent = attnscope_system::signals::lend();
        restore();
        // The variable may hold options too, so a shell splits it.
        std::process::Command::new("sh")
            .args(["-c", &format!("{editor} \"$1\""), "sh"])
            .arg(&path)
            .status()
    };
    match status {
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

#[cfg(not(unix))]
pub fn edit_outside(_: &str, _: &Ears) -> Result<String> {
    Err(unusable("the terminal cannot be left to it on this system"))
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
