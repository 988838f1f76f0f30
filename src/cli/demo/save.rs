//! `attnscope demo NAME --save DIR`: the files of a demo, so that every command can be tried on them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use attnscope_checkpoint::Bundle;
use attnscope_report::Output;

use super::ALIGNMENT;
use crate::bundles::{
    self, COLLAPSING_LOG, PROMPTS, STEADY_LOG, TABLES, WATCHED_LOG, WATCHED_TWIN_LOG,
};

/// A file and its place below the directory.
type Saved = (PathBuf, &'static [u8]);

/// The bundles of a demo, and the directories that they are saved in.
fn directories(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "collapse" | "healed" => &[
            ("unscaled", "unscaled-translator"),
            ("scaled", "scaled-translator"),
        ],
        "degenerate" => &[("degenerate", "degenerate"), ("healthy", "healthy")],
        "history" => &[
            ("checkpoints/step-150", "history-step-150"),
            ("checkpoints/step-250", "history-step-250"),
            ("checkpoints/step-400", "history-step-400"),
        ],
        _ => &[("model", "induction-demo")],
    }
}

fn of_bundle(directory: &str, bundle: &'static Bundle) -> Vec<Saved> {
    let texts = [
        ("config.json", Some(bundle.config)),
        ("tokenizer.json", Some(bundle.tokenizer)),
        ("tokenizer_target.json", bundle.tokenizer_target),
    ];
    let texts = texts
        .into_iter()
        .filter_map(|(name, text)| Some((name, text?.as_bytes())));
    let files = texts.chain([("model.safetensors", bundle.weights)]);
    files
        .map(|(name, bytes)| (Path::new(directory).join(name), bytes))
        .collect()
}

/// Every file of a demo.
fn files(name: &str) -> Result<Vec<Saved>> {
    if name == ALIGNMENT.0 {
        let tables = TABLES.iter();
        return Ok(tables
            .map(|(name, bytes)| (PathBuf::from(name), *bytes))
            .collect());
    }
    let mut files = Vec::new();
    for (directory, bundle) in directories(name) {
        let bundle = bundles::named(bundle).context("a bundle of the program")?;
        files.extend(of_bundle(directory, bundle));
    }
    match name {
        "history" => files.extend([
            ("run.jsonl".into(), COLLAPSING_LOG.as_bytes()),
            ("steady.jsonl".into(), STEADY_LOG.as_bytes()),
        ]),
        "degenerate" => files.extend([
            ("prompts.jsonl".into(), PROMPTS.as_bytes()),
            ("run.jsonl".into(), WATCHED_LOG.as_bytes()),
            ("healthy_run.jsonl".into(), WATCHED_TWIN_LOG.as_bytes()),
        ]),
        _ => {}
    }
    Ok(files)
}

/// Writes every file of a demo below `directory`, and returns what to print: the path of each and its size.
///
/// # Errors
/// When the demo has no files, when one of them exists already, and when one cannot be written.
pub fn save(name: &str, directory: &Path) -> Result<String> {
    let files = files(name)?;
    let paths = files.iter().map(|(path, _)| directory.join(path));
    let paths: Vec<PathBuf> = paths.collect();
    if let Some(path) = paths.iter().find(|path| path.exists()) {
        bail!(
            "--save: {} exists; choose a directory without it",
            path.display()
        );
    }
    let mut told = String::new();
    for ((_, bytes), path) in files.iter().zip(&paths) {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("--save: {}", parent.display()))?;
        }
        Output::open_new(path)?.write(bytes)?;
        told.push_str(&format!("{}  {} bytes\n", path.display(), bytes.len()));
    }
    Ok(told)
}
