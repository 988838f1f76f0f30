//! Files that are read whole: configurations, vocabularies, prompts. Pipes, devices and overlong files are refused.

use std::path::Path;

use attnscope_compute::error::{Error, Result};

use super::data_file::DataFile;

/// Limit on the bytes of a configuration.
pub const CONFIGURATION: usize = 16 << 20;
/// Limit on the bytes of a vocabulary: a million tokens with their merges.
pub const VOCABULARY: usize = 256 << 20;
/// Limit on the bytes of a set of prompts or a report.
pub const DOCUMENT: usize = 1 << 30;

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// When it is not a regular file, is longer, cannot be read, or is written to in the meantime.
pub fn read_whole(path: &Path, most: usize) -> Result<Vec<u8>> {
    let file = DataFile::open_as(path, "a file")?;
    if file.len() > most {
        let problem = format!("expected at most {most} bytes, found {}", file.len());
        return Err(Error::file(path, problem));
    }
    file.read(0..file.len()).map(|bytes| bytes.into_owned())
}

/// Reads a text file of at most `most` bytes.
///
/// # Errors
/// As for [`read_whole`], and when it is not UTF-8.
pub fn read_text(path: &Path, most: usize) -> Result<String> {
    let bytes = read_whole(path, most)?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::file(
            path,
            format!("cannot be read as text (byte {at} is not UTF-8)"),
        )
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_kinds_of_files_and_long_ones_are_refused_without_being_opened() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("text");
        std::fs::write(&path, "a text").expect("writes");
        assert_eq!(read_text(&path, 6).expect("reads"), "a text");
        let says = |path: &Path, most, words: &str| {
            let said = read_text(path, most).expect_err("refused").to_string();
            assert!(said.contains(words), "{said}");
        };
        says(&path, 5, "at most 5 bytes, found 6");
        says(directory.path(), 5, "found a directory");
        says(Path::new("/dev/zero"), 5, "found a pipe or a device");
        says(&directory.path().join("none"), 5, "cannot be opened");
        std::fs::write(&path, b"a\xff").expect("writes");
        says(&path, 5, "byte 1 is not UTF-8");
    }
}
