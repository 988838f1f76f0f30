//! Opens regular files. Pipes and devices are refused, since reading one may never end.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use attnscope_compute::error::Error;

use super::nearest::path_meant;

/// Opens a regular file, or a link to one, for reading. Never waits for another process.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Opening some devices has side effects, so they are refused before.
    check_regular(path.metadata()?.is_file())?;
    // The file may have been replaced since: opening a pipe must not wait for a writer.
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(without_waiting)
        .open(path)?;
    check_regular(file.metadata()?.is_file())?;
    Ok(file)
}

/// Describes why a file cannot be opened; a missing one is followed by the name that was probably meant.
pub fn cannot_open(path: &Path, e: &io::Error) -> Error {
    let problem = match e.kind() {
        ErrorKind::NotFound => format!("cannot be opened: no such file{}", path_meant(path)),
        _ => format!("cannot be opened ({e})"),
    };
    Error::file(path, problem)
}

fn check_regular(is_file: bool) -> io::Result<()> {
    if is_file {
        Ok(())
    } else {
        let problem = "expected a file, found a directory, a pipe or a device";
        Err(io::Error::new(ErrorKind::InvalidInput, problem))
    }
}

/// Reads a regular file of at most `most` bytes.
///
/// # Errors
/// When it cannot be opened or read, is not a regular file, or is longer.
pub fn read_regular(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let n_asked = (most as u64).saturating_add(1);
    open_regular(path)?.take(n_asked).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        let problem = format!("expected at most {most} bytes, found more");
        return Err(io::Error::new(ErrorKind::InvalidData, problem));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_devices_and_long_files_are_refused_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo runs").success());
        let zero = directory.path().join("zero");
        std::os::unix::fs::symlink("/dev/zero", &zero).expect("links");
        for path in [pipe.as_path(), zero.as_path(), directory.path()] {
            let said = read_regular(path, 10).expect_err("refused").to_string();
            assert!(said.contains("expected a file"), "{said}");
        }
        let file = directory.path().join("file");
        std::fs::write(&file, "text").expect("writes");
        assert_eq!(read_regular(&file, 4).expect("reads"), b"text");
        assert!(read_regular(&file, 3).is_err());
    }
}
