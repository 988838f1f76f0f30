//! A figure and its data: two files that appear together, or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use attnscope_compute::error::Result;
use attnscope_system::signals::undisturbed;

use super::Output;

/// Two open targets.
#[derive(Debug)]
pub struct Pair {
    first: Output,
    second: Output,
    /// Whether the first file is new, so that it is removed if the second fails.
    is_new: bool,
}

impl Pair {
    /// Opens both before the long run. Existing files are replaced only if `replaces` is set.
    ///
    /// # Errors
    /// When one of them cannot be written.
    pub fn open([first, second]: [&Path; 2], replaces: bool) -> Result<Self> {
        let open = if replaces {
            Output::replace
        } else {
            Output::open_new
        };
        Ok(Self {
            first: open(first)?,
            second: open(second)?,
            is_new: first.symlink_metadata().is_err(),
        })
    }

    /// Writes both files, then renames both to their targets.
    ///
    /// # Errors
    /// When one cannot be written or renamed; then neither exists, unless it did before.
    pub fn write(mut self, [first, second]: [&[u8]; 2]) -> Result<()> {
        self.first.put(first)?;
        self.second.put(second)?;
        let named = match &self.first {
            Output::File { target, .. } => Some(target.clone()),
            Output::Stdout | Output::Special { .. } => None,
        };
        let Self {
            first,
            second,
            is_new,
        } = self;
        // A signal between the two renames would leave a figure without its data.
        undisturbed(|| name_both(first, second, is_new.then_some(named).flatten()))
    }
}

/// Renames both; removes the first again if it is new and the second cannot be renamed.
fn name_both(first: Output, second: Output, new: Option<PathBuf>) -> Result<()> {
    first.close()?;
    let closed = second.close();
    if let (Err(_), Some(first)) = (&closed, new) {
        // We have just made this file. If it cannot be removed either, the reason is the same.
        let _ = fs::remove_file(first);
    }
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("lists");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn both_files_appear_or_neither_does() {
        let directory = tempfile::tempdir().expect("a directory");
        let [svg, csv] = ["a.svg", "a.csv"].map(|name| directory.path().join(name));
        let pair = Pair::open([&svg, &csv], false).expect("opens");
        // During the run, somebody else takes the second name.
        fs::write(&csv, "another's").expect("writes");
        pair.write([b"picture", b"data"]).expect_err("refused");
        assert_eq!(names(directory.path()), ["a.csv"]);
        assert_eq!(fs::read(&csv).expect("reads"), b"another's");
        fs::remove_file(&csv).expect("removes");
        let pair = Pair::open([&svg, &csv], false).expect("opens");
        assert_eq!(names(directory.path()).len(), 2, "temporary ones");
        pair.write([b"picture", b"data"]).expect("writes");
        assert_eq!(names(directory.path()), ["a.csv", "a.svg"]);
        Pair::open([&svg, &csv], false).expect_err("both are there");
        let pair = Pair::open([&svg, &csv], true).expect("opens");
        pair.write([b"newer", b"data"]).expect("writes");
        assert_eq!(fs::read(&svg).expect("reads"), b"newer");
    }
}
