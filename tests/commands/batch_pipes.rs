//! What is no file among the parts of a batch: neither a worker nor a merge waits for it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use super::batch_command::Runs;

/// Puts a pipe, a device or a directory in the place of a file.
fn puts_in_the_way(path: &Path, kind: &str) {
    fs::remove_file(path).expect("removes");
    match kind {
        "pipe" => {
            let made = Command::new("mkfifo").arg(path).status();
            assert!(made.expect("mkfifo runs").success());
        }
        "directory" => fs::create_dir(path).expect("makes"),
        device => std::os::unix::fs::symlink(device, path).expect("links"),
    }
}

#[test]
fn what_is_no_file_among_parts_and_weights_is_never_waited_for() {
    for (among, ending) in [("parts", "json"), ("parts", "parquet"), ("weights", "json")] {
        for kind in ["pipe", "/dev/zero", "directory"] {
            let other = Runs::new(&[10], 3);
            other.ran(&[], 0);
            let entries = fs::read_dir(other.at("batch").join(among)).expect("lists");
            let paths = entries.map(|entry| entry.expect("an entry").path());
            let found = paths
                .filter(|path| path.extension().is_some_and(|found| found == ending))
                .collect::<Vec<_>>();
            assert!(!found.is_empty(), "no {ending} in {among}");
            puts_in_the_way(&found[0], kind);
            let batch = other.at("batch");
            for words in [
                vec!["merge".to_owned(), batch.display().to_string()],
                other
                    .batch(&[])
                    .get_args()
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect(),
            ] {
                let mut child = Command::new(testing::program())
                    .args(&words)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .expect("starts");
                let mut n_waits = 0;
                while child.try_wait().expect("is there").is_none() {
                    n_waits += 1;
                    if n_waits > 600 {
                        child.kill().expect("ends");
                        panic!("{words:?} waits for a {kind} in {among}");
                    }
                    thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }
}
