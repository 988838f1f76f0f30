//! Chooses the tokenizer of a checkpoint: the user's, that of `attnscope.toml`, the files beside the weights or above them, or a table
//! that is stored with the weights.

use std::path::{Path, PathBuf};

use attnscope_compute::error::Result;

use super::open::with_settings;
use super::settings::Settings;
use super::step_directory::above_step;
use super::tokenizer_file::{BYTES, CHARACTERS_OF, TokenizerFile};
use super::{Checkpoint, characters};

/// # Errors
/// When a named tokenizer does not exist, or is of no known format.
pub(super) fn choose(
    checkpoint: &mut Checkpoint,
    given: Option<&Path>,
    (directory, file): (&Path, &Path),
    settings: &Settings,
) -> Result<()> {
    let model_type = checkpoint.config.get("model_type").and_then(|v| v.as_str());
    if let Some(given) = given {
        checkpoint.tokenizer = TokenizerFile::named(given, model_type)?;
        return Ok(());
    }
    if let Some(word) = &settings.tokenizer {
        let beside = |name: &str| with_settings(directory).join(name);
        let file = match word.strip_prefix(CHARACTERS_OF) {
            _ if word == BYTES => PathBuf::from(BYTES),
            Some(text) => PathBuf::from(format!("{CHARACTERS_OF}{}", beside(text).display())),
            None => beside(word),
        };
        checkpoint.tokenizer = TokenizerFile::named(&file, None)?;
        return Ok(());
    }
    if matches!(checkpoint.tokenizer, TokenizerFile::Missing) {
        let mut above = above_step(directory).into_iter();
        let found = above.find_map(|above| match TokenizerFile::find(&above, model_type) {
            TokenizerFile::Missing => None,
            found => Some(found),
        });
        let inside = || {
            let table = characters::stored(&checkpoint.plain_values)?;
            Some(TokenizerFile::Inside(file.to_path_buf(), Box::new(table)))
        };
        checkpoint.tokenizer = found.or_else(inside).unwrap_or(TokenizerFile::Missing);
    }
    Ok(())
}
