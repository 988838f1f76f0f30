//! The targets of a command: paths of checkpoints, directories of checkpoints, and possibly a text after them.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use attnscope_history::{Found, directly_in, is_checkpoint};
use attnscope_live::LiveTarget;
use attnscope_prompt::{Source, is_picture, is_sound};
use attnscope_report::record::natural;

use super::names;
use super::progress::{Task, note};

/// Extensions of targets: a name with one of them is a path, even if the file does not exist.
const ENDINGS: [&str; 12] = [
    "safetensors",
    "bin",
    "pt",
    "pth",
    "ckpt",
    "gguf",
    "npz",
    "npy",
    "json",
    "jsonl",
    "parquet",
    "csv",
];
/// Targets, and a text after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets {
    /// As given, or in natural order if a shell sorted them; directories of checkpoints are replaced by their content.
    pub targets: Vec<PathBuf>,
    pub prompt: Option<String>,
}

/// Arguments without a flag, for commands that take several targets.
#[derive(Debug, Clone, clap::Args)]
pub struct TargetArgs {
    /// Checkpoint directories or weight files, or directories of checkpoints; after them a text to run
    #[arg(value_name = "TARGET", required = true)]
    positional: Vec<OsString>,
}

impl Targets {
    /// Returns the targets one after another, and shows progress if there are several.
    pub fn told(&self) -> impl Iterator<Item = &Path> {
        let n = self.targets.len();
        let task = (n > 1).then(|| Task::begin("", n as u64));
        self.targets.iter().enumerate().map(move |(idx, target)| {
            if let Some(task) = &task {
                let name = target.file_name().unwrap_or(target.as_os_str());
                task.say(&format!("{} ({} of {n})", name.to_string_lossy(), idx + 1));
                task.at(idx, n);
            }
            target.as_path()
        })
    }

    /// Notes that a word is run as a text: otherwise a mistyped name would be run without notice.
    pub fn tell(&self) {
        let word = self.prompt.as_ref().filter(|text| {
            !text.contains(char::is_whitespace) && !names_picture(text) && !is_sound(text)
        });
        if let Some(word) = word {
            note(&format!("no file is called {word:?}: it is run as a text"));
        }
    }
}

impl TargetArgs {
    /// Returns the paths as given, and the text after them.
    pub fn split(&self) -> (Vec<PathBuf>, Option<String>) {
        let mut targets: Vec<PathBuf> = self.positional.iter().map(PathBuf::from).collect();
        let prompt = match self.positional.as_slice() {
            [_, .., last] => last.to_str().filter(|last| !is_path(last)),
            _ => None,
        };
        if prompt.is_some() {
            targets.pop();
        }
        (targets, prompt.map(str::to_owned))
    }

    /// Separates targets from the text. The last argument is a text if it is not the only one, names nothing that exists, and
    /// does not look like a path.
    ///
    /// # Errors
    /// When a directory of checkpoints cannot be listed, or a target is an address of an object store.
    pub fn resolve(&self) -> Result<Targets> {
        let (targets, prompt) = self.split();
        let mut resolved = Vec::new();
        for target in targets {
            names::check_is_no_bucket(&target)?;
            names::refuse_demo(&target)?;
            match checkpoints_in(&target)? {
                Some(mut inside) => {
                    inside.sort_by(|a, b| in_order(a, b));
                    resolved.extend(inside);
                }
                None => resolved.push(target),
            }
        }
        // A shell expands `step-*` in character order, with 450 before 50. Any other order is the user's own.
        if resolved.is_sorted_by_key(|target| target.as_os_str()) {
            resolved.sort_by(|a, b| in_order(a, b));
        }
        resolved.dedup();
        Ok(Targets {
            targets: resolved,
            prompt,
        })
    }
}

fn in_order(a: &Path, b: &Path) -> Ordering {
    natural(&a.to_string_lossy(), &b.to_string_lossy())
}

impl Targets {
    /// Expands a directory with one configuration and files of weights named by their step to the steps of the training.
    ///
    /// # Errors
    /// When a directory cannot be listed.
    pub fn with_steps(mut self) -> Result<Self> {
        let mut targets = Vec::new();
        for target in self.targets {
            let inside = if target.is_dir() && !attnscope_run::is_dump(&target) {
                directly_in(&target)?
            } else {
                Vec::new()
            };
            let are_steps = inside.len() > 1 && inside.iter().all(|found| found.path.is_file());
            if are_steps {
                targets.extend(inside.into_iter().map(|found| found.path));
            } else {
                targets.push(target);
            }
        }
        self.targets = targets;
        Ok(self)
    }
}

/// Whether an argument is a path rather than a text.
pub(super) fn is_path(argument: &str) -> bool {
    // A sound is a prompt, like a text.
    if names_picture(argument) || is_sound(argument) {
        return false;
    }
    let path = Path::new(argument);
    let is_part = attnscope_checkpoint::part_of(path).1.is_some();
    if path.symlink_metadata().is_ok() || is_part || LiveTarget::parse(path).is_some() {
        return true;
    }
    let ends_as_file = Path::new(argument).extension().is_some_and(|ending| {
        ENDINGS
            .iter()
            .any(|known| ending.eq_ignore_ascii_case(known))
    });
    let is_one_word = !argument.contains(char::is_whitespace);
    is_one_word
        && (ends_as_file
            || argument.contains('/')
            || argument.starts_with('~')
            || names::is_model(argument))
}

/// Whether an argument names a picture, which is a prompt: an existing file, or one word with a picture's extension.
pub(super) fn names_picture(argument: &str) -> bool {
    let path = Path::new(argument);
    is_picture(path) && (path.is_file() || !argument.contains(char::is_whitespace))
}

/// Makes a prompt of one word or text.
pub(super) fn source_of(argument: &str) -> Source {
    if names_picture(argument) {
        Source::picture(argument)
    } else {
        Source::Text(argument.to_owned())
    }
}

/// Returns the checkpoints of the training in a directory; `None` if it is one checkpoint, or a dump, whose files end as weights do.
///
/// # Errors
/// When the directory cannot be listed, or holds several trainings.
pub(super) fn training_in(
    directory: &Path,
) -> attnscope_compute::error::Result<Option<Vec<Found>>> {
    if attnscope_run::is_dump(directory) {
        return Ok(None);
    }
    attnscope_history::training_in(directory)
}

/// Returns the checkpoints in a directory that is not one itself; `None` for anything else.
fn checkpoints_in(directory: &Path) -> Result<Option<Vec<PathBuf>>> {
    if !directory.is_dir() || is_checkpoint(directory) || attnscope_run::is_dump(directory) {
        return Ok(None);
    }
    let inside: Vec<PathBuf> = directly_in(directory)?
        .into_iter()
        .map(|found| found.path)
        .collect();
    Ok((!inside.is_empty()).then_some(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(arguments: &[&Path], text: &[&str]) -> Targets {
        let paths = arguments.iter().map(|path| path.as_os_str().to_owned());
        let positional = paths.chain(text.iter().map(OsString::from)).collect();
        TargetArgs { positional }.resolve().expect("resolves")
    }

    fn directory_with(names: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for name in names {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("makes");
            std::fs::write(path, "").expect("writes");
        }
        directory
    }

    #[test]
    fn the_last_argument_is_a_text_unless_it_exists_or_looks_like_a_path() {
        let directory = directory_with(&["a/config.json", "word/config.json"]);
        let a = directory.path().join("a");
        for text in ["some text", "and/or else", "word", "..."] {
            let found = resolved(&[&a], &[text]);
            assert_eq!(found.prompt.as_deref(), Some(text));
            assert_eq!(found.targets, std::slice::from_ref(&a));
        }
        for path in ["b/c", "./b", "~/b", "b.safetensors", "B.PT"] {
            let found = resolved(&[&a], &[path]);
            assert_eq!(found.prompt, None, "{path}");
            assert_eq!(found.targets.len(), 2, "{path}");
        }
        let word = directory.path().join("word");
        assert_eq!(resolved(&[&a, &word], &[]).prompt, None);
        // A single word can only be a missing target.
        assert_eq!(resolved(&[], &["word"]).targets, [PathBuf::from("word")]);
    }

    #[test]
    fn a_directory_of_checkpoints_is_replaced_by_them_in_natural_order() {
        let directory = directory_with(&[
            "step-450/config.json",
            "step-50/config.json",
            "step-50/model.safetensors",
            "logs/events",
            "notes.txt",
        ]);
        let at = |name: &str| directory.path().join(name);
        let found = resolved(&[directory.path()], &[]);
        assert_eq!(found.targets, [at("step-50"), at("step-450")]);
        let both = [at("step-450"), at("step-50")];
        assert_eq!(
            resolved(&[&both[0], &both[1]], &[]).targets,
            [at("step-50"), at("step-450")]
        );
    }

    #[test]
    fn loose_weight_files_are_separate_checkpoints_and_shards_are_one() {
        let loose = directory_with(&["step-9.pt", "step-10.pt"]);
        let at = |name: &str| loose.path().join(name);
        assert_eq!(
            resolved(&[loose.path()], &[]).targets,
            [at("step-9.pt"), at("step-10.pt")]
        );
        let shards = directory_with(&[
            "m-00001-of-00002.safetensors",
            "m-00002-of-00002.safetensors",
        ]);
        let one = directory_with(&["ckpt.pt", "meta.pkl"]);
        let empty = directory_with(&["notes.txt"]);
        for directory in [&shards, &one, &empty] {
            assert_eq!(
                resolved(&[directory.path()], &[]).targets,
                [directory.path()]
            );
        }
    }
}
