//! The file of `--log`: lines are appended to a log of this program, and no other file is changed.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use attnscope_checkpoint::{was_read, will_read};

/// Start of the first line of a log, by which a log is recognised.
const MARK: &str = "attnscope log";

/// Starts logging to a file.
///
/// # Errors
/// When it cannot be written, or holds something that is not a log of this program.
pub fn begin(path: &Path) -> Result<()> {
    let file = open(path)?;
    // The command must not replace the log by its output.
    will_read(path);
    env_logger::Builder::new()
        .filter_level(log::LevelFilter::Debug)
        .target(env_logger::Target::Pipe(Box::new(file)))
        .format(|line, record| {
            let time = time_of_day(SystemTime::now());
            let (level, said) = (record.level(), record.args());
            if level < log::Level::Debug {
                return writeln!(line, "{time} [{level}] {said}");
            }
            // Details name the module they come from.
            writeln!(line, "{time} [{level}] {}: {said}", record.target())
        })
        .try_init()?;
    Ok(())
}

/// Formats a time as `hh:mm:ss` in UTC.
fn time_of_day(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (hours, minutes, seconds) = (since / 3600 % 24, since / 60 % 60, since % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}")
}

fn open(path: &Path) -> Result<File> {
    let said = || format!("--log {}", path.display());
    let cannot = || format!("{}: cannot be written", said());
    // Write to a pipe or a device directly; opening a pipe to read would wait for its other end.
    if path.metadata().is_ok_and(|about| !about.is_file()) {
        let mut file = File::options()
            .append(true)
            .open(path)
            .with_context(cannot)?;
        // Later lines that cannot be written are dropped: let the first one fail instead.
        begin_lines(&mut file).with_context(cannot)?;
        return Ok(file);
    }
    let mut options = File::options();
    let mut file = options
        .create(true)
        .read(true)
        .append(true)
        .open(path)
        .with_context(cannot)?;
    let mut beginning = Vec::new();
    (&file)
        .take(MARK.len() as u64)
        .read_to_end(&mut beginning)
        .with_context(cannot)?;
    if was_read(path) || !(beginning.is_empty() || beginning == MARK.as_bytes()) {
        bail!(
            "{}: expected a new file or a log that this program began, found another file",
            said()
        );
    }
    file.seek(std::io::SeekFrom::End(0)).with_context(cannot)?;
    begin_lines(&mut file).with_context(cannot)?;
    Ok(file)
}

fn begin_lines(file: &mut File) -> std::io::Result<()> {
    writeln!(file, "{MARK}, version {}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn times_are_shown_as_time_of_day_in_utc() {
        // 2001-09-09T01:46:40Z is a billion seconds after the epoch.
        let at = |seconds| time_of_day(UNIX_EPOCH + std::time::Duration::from_secs(seconds));
        assert_eq!(at(0), "00:00:00");
        assert_eq!(at(1_000_000_000), "01:46:40");
        assert_eq!(at(86_399), "23:59:59");
    }

    #[test]
    fn a_log_is_appended_to_and_another_file_is_left_unchanged() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("run.log");
        drop(open(&path).expect("begins"));
        let mut file = open(&path).expect("goes on");
        writeln!(file, "a line").expect("writes");
        let text = fs::read_to_string(&path).expect("reads");
        assert_eq!(text.matches(MARK).count(), 2, "{text}");
        assert!(text.ends_with("\na line\n"), "{text}");
        let weights = directory.path().join("model.safetensors");
        fs::write(&weights, b"\x08\0\0\0\0\0\0\0{}      ").expect("writes");
        let link = directory.path().join("link.log");
        std::os::unix::fs::symlink(&weights, &link).expect("links");
        let before = fs::read(&weights).expect("reads");
        for path in [&weights, &link] {
            let said = open(path).expect_err("refused").to_string();
            assert!(said.contains("found another file"), "{said}");
        }
        assert_eq!(fs::read(&weights).expect("reads"), before);
        let said = format!("{:#}", open(directory.path()).expect_err("refused"));
        assert!(said.starts_with("--log "), "{said}");
    }
}
