//! Directories with one step of a training, where the files that describe all steps are further up.

use std::path::{Path, PathBuf};

use super::pytorch::METADATA;

/// Files that affect how weights are read.
const DESCRIBING: [&str; 15] = [
    "added_tokens.json",
    "attnscope.toml",
    "config.json",
    "merges.txt",
    "meta.pkl",
    "model_config.yaml",
    "params.json",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
];

/// Lists the directories above a step's that describe it too, nearest first: DeepSpeed (`global_step500`) and Megatron
/// (`iter_0000500/mp_rank_00`) keep one configuration and tokenizer for all steps, and so do directories with the index of a
/// distributed checkpoint.
pub fn above_step(directory: &Path) -> Vec<PathBuf> {
    let mut above = Vec::new();
    // A directory given as `.` has a name too.
    let mut at = match directory.file_name() {
        Some(_) => directory.to_path_buf(),
        None => match directory.canonicalize() {
            Ok(whole) => whole,
            Err(_) => return above,
        },
    };
    let mut is_inside_step = false;
    while is_of_step(&at) || is_distributed(&at) || is_inside_step && is_step_of_trainer(&at) {
        is_inside_step = is_distributed(&at);
        let Some(parent) = at.parent() else { break };
        at = if parent.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            parent.to_path_buf()
        };
        above.push(at.clone());
    }
    above
}

/// Lists the files above a step's directory that affect how the step is read.
pub fn described_above(directory: &Path) -> Vec<PathBuf> {
    let above = above_step(directory).into_iter();
    let files = above.flat_map(|above| DESCRIBING.map(|name| above.join(name)));
    files.filter(|file| file.is_file()).collect()
}

/// Whether a directory holds a step, or a rank of one, by its name.
fn is_of_step(directory: &Path) -> bool {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let is_numbered = |word: &str| {
        name.strip_prefix(word).is_some_and(|rest| {
            let rest = rest.trim_start_matches('_');
            !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit() || b == b'_')
        })
    };
    ["global_step", "iter_", "mp_rank_", "tp_rank_"]
        .into_iter()
        .any(is_numbered)
}

/// Whether a directory holds a distributed checkpoint, which never has a configuration of its own.
fn is_distributed(directory: &Path) -> bool {
    directory.join(METADATA).is_file()
}

/// Whether a directory is by its name a step that a trainer keeps weights in a directory of.
fn is_step_of_trainer(directory: &Path) -> bool {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    ["checkpoint-", "step"]
        .iter()
        .any(|word| name.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::above_step;
    use std::path::{Path, PathBuf};

    #[test]
    fn only_steps_and_ranks_are_described_by_directories_above() {
        let above = |path: &str| above_step(Path::new(path));
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(above("runs/a/global_step500"), paths(&["runs/a"]));
        assert_eq!(
            above("runs/iter_0000500/mp_rank_00"),
            paths(&["runs/iter_0000500", "runs"])
        );
        assert_eq!(above("iter_0000500/mp_rank_00_001").len(), 2);
        assert_eq!(above("global_step500"), paths(&["."]));
        for other in [
            "runs/a",
            "checkpoint-500",
            "iter_x",
            "global_step",
            "mp_rank_",
            "/",
        ] {
            assert!(above(other).is_empty(), "{other}");
        }
    }
}
