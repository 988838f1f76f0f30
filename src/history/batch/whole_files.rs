//! Small files of a batch, each written completely or not at all, and the removal of what killed workers leave.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use attnscope_compute::error::{Error, Result};
use attnscope_system::signals::{Owner, Temporary, is_live, owner_of};

/// Age at which temporary files are removed if it is unknown whether their worker still runs.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 3600);

/// Writes a small file completely or not at all, and creates its directory.
///
/// # Errors
/// When it cannot be written.
pub(super) fn put(directory: &Path, name: &str, content: &[u8]) -> Result<()> {
    let target = directory.join(name);
    fs::create_dir_all(directory)
        .map_err(|e| Error::file(directory, format!("cannot be written ({e})")))?;
    persist(temporary(directory, content)?, &target)
}

/// Writes content to a temporary file and flushes it to disk.
pub(super) fn temporary(directory: &Path, content: &[u8]) -> Result<Temporary> {
    let write = || {
        let mut temporary = Temporary::new_in(directory)?;
        temporary.as_file_mut().write_all(content)?;
        temporary.as_file().sync_data()?;
        Ok(temporary)
    };
    write().map_err(|e: io::Error| Error::file(directory, format!("cannot be written ({e})")))
}

/// Gives a temporary file its name, and replaces what has it.
pub(super) fn persist(temporary: Temporary, target: &Path) -> Result<()> {
    let kept = temporary.persist(target, true);
    kept.map_err(|e| Error::file(target, format!("cannot be written ({e})")))
}

/// Removes temporary files of workers that are gone: processes on this machine that have ended, and old files whose process
/// cannot be checked from here. Files being written on another machine are not old yet.
pub(super) fn remove_left_behind(directory: &Path) {
    let now = SystemTime::now();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(".tmp") || is_live(&entry.path()) {
            continue;
        }
        let written = entry.metadata().and_then(|about| about.modified());
        let is_old = || {
            written.is_ok_and(|written| {
                now.duration_since(written)
                    .is_ok_and(|age| age > LEFT_BEHIND)
            })
        };
        let is_left_behind = match owner_of(&name) {
            Owner::Ended => true,
            Owner::Alive | Owner::Unknown => is_old(),
        };
        if is_left_behind {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parts::{Layout, Parts};
    use super::super::parts::{PLANS, WEIGHTS};
    use super::*;
    use attnscope_system::signals::{knows_owners, prefix_of};
    use std::ffi::OsStr;

    #[test]
    fn temporary_files_of_killed_workers_are_removed_and_those_of_live_ones_kept() {
        let batch = tempfile::tempdir().expect("a directory");
        let parts = batch.path().join("parts");
        let directories = [
            &parts,
            &batch.path().join(PLANS),
            &batch.path().join(WEIGHTS),
        ];
        let day = LEFT_BEHIND + Duration::from_secs(60);
        let old = SystemTime::now() - day;
        // A process of this machine that has ended. Where processes cannot be checked, its files stay until they are old.
        let mut child = std::process::Command::new("true").spawn().expect("starts");
        child.wait().expect("ends");
        let ended = format!("{}a", prefix_of(child.id()));
        let mut alive = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("starts");
        let of_here = format!("{}b", prefix_of(alive.id()));
        let elsewhere = ".tmp-0123456789abcdef-17-c".to_owned();
        for directory in directories {
            fs::create_dir_all(directory).expect("made");
            for (name, is_old) in [
                (ended.as_str(), false),
                (&of_here, false),
                (&elsewhere, false),
                (".tmpAbCdEf", false),
                (".tmp-0123456789abcdef-17-d", true),
                (".tmpGhIjKl", true),
                ("unit.json", true),
            ] {
                let file = fs::File::create(directory.join(name)).expect("made");
                if is_old {
                    file.set_modified(old).expect("dated");
                }
            }
        }
        let kept = Temporary::new_in(&parts).expect("opens");
        Parts::open(batch.path(), Layout::Files).expect("opens");
        for directory in directories {
            let entries = fs::read_dir(directory).expect("lists").flatten();
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            let mut names: Vec<String> = names.collect();
            names.sort();
            let own = names
                .iter()
                .position(|name| kept.path().file_name() == Some(OsStr::new(name)));
            assert_eq!(own.is_some(), *directory == parts);
            if let Some(own) = own {
                names.remove(own);
            }
            let mut expected = vec![of_here.as_str(), &elsewhere, ".tmpAbCdEf", "unit.json"];
            if !knows_owners() {
                expected.push(&ended);
            }
            expected.sort_unstable();
            assert_eq!(names, expected, "{}", directory.display());
        }
        alive.kill().expect("ends");
        alive.wait().expect("ends");
    }
}
