//! Where the loggers of a training leave their files: beside its checkpoints, and in directories that are named after what they hold.

use std::path::{Path, PathBuf};

use super::framed::Framing;

/// Names of directories in which files of loggers are looked for, wherever checkpoints are.
const LOGS: [&str; 8] = [
    "runs",
    "logs",
    "log",
    "tb",
    "tensorboard",
    "tb_logs",
    "lightning_logs",
    "wandb",
];
/// Names of directories of checkpoints whose files of loggers are one directory further up.
const CHECKPOINTS: [&str; 5] = ["checkpoints", "checkpoint", "ckpts", "ckpt", "weights"];
/// Most levels of directories below such a directory.
const DEEPEST: usize = 3;
/// Most directories that are looked into, and most files that are read.
const MOST_DIRECTORIES: usize = 512;
const MOST_FILES: usize = 256;

/// Returns the directories that may hold files of loggers: from the one that holds all checkpoints up to the one that was given.
pub(super) fn run_directories(roots: &[PathBuf], checkpoints: &[PathBuf]) -> Vec<PathBuf> {
    let shared = checkpoints
        .iter()
        .map(|path| path.parent().unwrap_or(Path::new("")))
        .reduce(|shared, parent| {
            let mut above = shared.ancestors();
            above
                .find(|above| parent.starts_with(above))
                .unwrap_or(Path::new(""))
        });
    let root = match roots {
        [root] if !checkpoints.contains(root) => Some(root.as_path()),
        _ => None,
    };
    let mut directories: Vec<PathBuf> = match (shared, root) {
        (Some(shared), Some(root)) => {
            let upwards = shared
                .ancestors()
                .take_while(|above| above.starts_with(root));
            upwards.map(Path::to_path_buf).collect()
        }
        (Some(only), None) | (None, Some(only)) => vec![only.to_path_buf()],
        (None, None) => Vec::new(),
    };
    if let Some(last) = directories.last()
        && let Some(name) = last.file_name()
        && CHECKPOINTS
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
    {
        let above = last.parent().unwrap_or(Path::new("")).to_path_buf();
        directories.push(above);
    }
    for directory in &mut directories {
        if directory.as_os_str().is_empty() {
            *directory = PathBuf::from(".");
        }
    }
    directories
}

/// Returns the files of loggers of the first directory that has any.
pub(super) fn logged_in(directories: &[PathBuf]) -> Vec<(PathBuf, Framing)> {
    let mut found = Vec::new();
    for directory in directories {
        let mut n_directories = 0;
        look(directory, 0, &mut n_directories, &mut found);
        if !found.is_empty() {
            break;
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found
}

/// Looks into a directory, and into those below it: at the top only those whose names say that they hold files of loggers.
fn look(
    directory: &Path,
    depth: usize,
    n_directories: &mut usize,
    found: &mut Vec<(PathBuf, Framing)>,
) {
    *n_directories += 1;
    if *n_directories > MOST_DIRECTORIES {
        return;
    }
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut below = Vec::new();
    for entry in entries {
        // A link may form a cycle, and `latest-run` is a second name of a run.
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if kind.is_dir() {
            let is_named = || LOGS.iter().any(|known| name.eq_ignore_ascii_case(known));
            if depth > 0 || is_named() {
                below.push(entry.path());
            }
        } else if kind.is_file()
            && found.len() < MOST_FILES
            && let Some(framing) = framing_of(&name)
        {
            found.push((entry.path(), framing));
        }
    }
    below.sort();
    for inside in below.into_iter().filter(|_| depth < DEEPEST) {
        look(&inside, depth + 1, n_directories, found);
    }
}

fn framing_of(name: &str) -> Option<Framing> {
    if name.contains("tfevents") && !name.ends_with(".profile-empty") {
        Some(Framing::Events)
    } else if name.starts_with("run-") && name.ends_with(".wandb") {
        Some(Framing::Wandb)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directories(roots: &[&str], checkpoints: &[&str]) -> Vec<String> {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        run_directories(&paths(roots), &paths(checkpoints))
            .into_iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn files_are_looked_for_from_the_checkpoints_up_to_the_given_directory() {
        assert_eq!(
            directories(&["out"], &["out/step-1", "out/step-2"]),
            ["out"]
        );
        assert_eq!(
            directories(&["out"], &["out/a/b/step-1.pt", "out/a/b/step-2.pt"]),
            ["out/a/b", "out/a", "out"]
        );
        assert_eq!(
            directories(&["out"], &["out/step-1/model", "out/step-2/model"]),
            ["out"]
        );
        assert_eq!(directories(&["out"], &[]), ["out"]);
    }

    #[test]
    fn single_checkpoints_have_theirs_in_the_directory_of_all() {
        let given = ["runs/a/step-1", "runs/a/step-2"];
        assert_eq!(directories(&given, &given), ["runs/a"]);
        assert_eq!(directories(&["step-1"], &["step-1"]), ["."]);
    }

    #[test]
    fn a_directory_of_checkpoints_has_them_above() {
        let given = ["a/checkpoints"];
        let found = directories(&given, &["a/checkpoints/step-1"]);
        assert_eq!(found, ["a/checkpoints", "a"]);
        assert_eq!(directories(&["a/other"], &["a/other/step-1"]), ["a/other"]);
    }

    #[test]
    fn only_directories_of_logs_are_looked_into() {
        let run = tempfile::tempdir().expect("a directory");
        let put = |path: &str| {
            let path = run.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("makes");
            std::fs::write(path, "").expect("writes");
        };
        put("other/events.out.tfevents.1.host");
        put("runs/day/events.out.tfevents.1.host");
        put("lightning_logs/version_0/events.out.tfevents.2.host");
        put("wandb/offline-run-1/run-1.wandb");
        put("wandb/offline-run-1/files/output.log");
        put("runs/a/b/c/d/events.out.tfevents.1.host");
        let link = run.path().join("wandb/latest-run");
        std::os::unix::fs::symlink("offline-run-1", link).expect("links");
        let found = logged_in(&[run.path().to_path_buf()]);
        let names: Vec<_> = found
            .iter()
            .map(|(path, _)| path.strip_prefix(run.path()).expect("inside").to_owned())
            .collect();
        let expected = [
            "lightning_logs/version_0/events.out.tfevents.2.host",
            "runs/day/events.out.tfevents.1.host",
            "wandb/offline-run-1/run-1.wandb",
        ];
        assert_eq!(names, expected.map(PathBuf::from));
    }
}
