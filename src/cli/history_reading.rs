//! Functions shared by `history`, `watch` and `check`: finding steps, and reading one checkpoint.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_checkpoint::nearest::path_meant;
use attnscope_checkpoint::{DOCUMENT, other_directory, read_whole};
use attnscope_compute::error::Error;
use attnscope_history::cache::{Cache, directory};
use attnscope_history::log::is_monitor_log;
use attnscope_history::{Found, History, Origin, Reading, Sources, list};
use attnscope_report::ModelRecord;
use attnscope_run::Options;

use super::prompts::InputsArgs;
use super::session::{Opened, Session};
use super::targets::training_in;
use super::{PromptArgs, RunArgs, WhatIfArgs, names};

/// Only statistics are needed.
const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: true,
};

/// Returns the checkpoints or the log at some targets. With `waits`, a log need not exist yet.
pub fn sources_of(targets: &[PathBuf], waits: bool) -> Result<Sources> {
    let mut logs = Vec::new();
    for target in targets {
        names::check_is_no_bucket(target)?;
        logs.extend(log_at(target, waits)?);
        if !target.exists() && logs.is_empty() {
            bail!(
                "{}: there is no such file or directory{}",
                target.display(),
                path_meant(target)
            );
        }
    }
    match (logs.len(), targets.len()) {
        (0, _) => Ok(Sources::Checkpoints(targets.to_vec())),
        (1, 1) => Ok(Sources::Log(logs.remove(0))),
        (n, all) => {
            bail!(
                "expected one monitor log, or checkpoints; found {n} logs among {all} targets (report LOG LOG --format csv puts several in one table, check LOG LOG judges each)"
            )
        }
    }
}

/// Whether a log may have this name.
fn is_log_name(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default();
    ["jsonl", "ndjson", "log"]
        .iter()
        .any(|known| ending.eq_ignore_ascii_case(known))
}

/// Returns the log at a target, or in a directory without checkpoints. With `waits`, it need not exist yet.
///
/// # Errors
/// When a directory cannot be listed, or holds several trainings.
pub fn log_at(path: &Path, waits: bool) -> Result<Option<PathBuf>> {
    if path.is_file() {
        let is_log = is_log_name(path) || is_monitor_log(path);
        return Ok(is_log.then(|| path.to_path_buf()));
    }
    if !path.exists() {
        return Ok((waits && is_log_name(path)).then(|| path.to_path_buf()));
    }
    if training_in(path)?.is_some() {
        return Ok(None);
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut logs: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| is_log_name(path) && is_monitor_log(path))
        .collect();
    Ok(logs.pop().filter(|_| logs.is_empty()))
}

/// Returns an empty history.
pub fn history_of(sources: &Sources) -> History {
    let name = |path: &Path| {
        let whole = path.canonicalize();
        let named = |path: &Path| {
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        };
        named(path).or_else(|| whole.ok().as_deref().and_then(named))
    };
    match sources {
        Sources::Log(path) => {
            let stem = path
                .file_stem()
                .map(|stem| stem.to_string_lossy().into_owned());
            History::new(stem.unwrap_or_default(), Origin::Log)
        }
        Sources::Checkpoints(roots) => {
            let only = match roots.as_slice() {
                [only] => name(only),
                _ => roots
                    .first()
                    .and_then(|first| first.parent())
                    .and_then(name),
            };
            History::new(
                only.unwrap_or_else(|| "checkpoints".to_owned()),
                Origin::Checkpoints,
            )
        }
    }
}

/// Checks that there is something to read.
///
/// # Errors
/// When there is no checkpoint in any target.
pub fn check_not_empty(sources: &Sources) -> Result<()> {
    if let Sources::Checkpoints(roots) = sources
        && list(roots)?.is_empty()
    {
        let names: Vec<String> = roots
            .iter()
            .map(|root| root.display().to_string())
            .collect();
        if let Some((root, is)) = roots
            .iter()
            .find_map(|root| Some((root, other_directory(root)?)))
        {
            bail!("{}: {is}", root.display());
        }
        bail!(
            "{}: expected checkpoints (checkpoint-500, step_500, …) or a monitor log, found none",
            names.join(", ")
        );
    }
    Ok(())
}

/// The request for every checkpoint, from the flags.
#[derive(Debug, Clone)]
pub struct Asked {
    pub prompt: PromptArgs,
    pub inputs: InputsArgs,
    pub what_if: WhatIfArgs,
    pub run: RunArgs,
}

impl Asked {
    /// Returns the cache for the request; `None` if there is none, or if the prompts cannot be identified.
    pub fn cache(&self) -> Option<Cache> {
        let inputs = match self.inputs.file() {
            Some(path) if path == Path::new("-") => return None,
            Some(path) => read_whole(path, DOCUMENT).ok()?,
            None => Vec::new(),
        };
        let text = match self.prompt.file() {
            Some(path) => read_whole(path, DOCUMENT).ok()?,
            None => Vec::new(),
        };
        let flags = format!(
            "{:?}\n{:?}\n{}\n{:?}\n{:?}\n",
            self.prompt,
            self.what_if.words(),
            self.run.device,
            self.run.set,
            self.run.weights
        );
        let mut request = flags.into_bytes();
        for part in [text, inputs] {
            request.extend((part.len() as u64).to_le_bytes());
            request.extend(part);
        }
        let most_mib =
            super::settings::config().get(&attnscope_system::config::setting::CACHE_MOST_MIB);
        Some(Cache::new(directory()?, &request, (most_mib as u64) << 20))
    }

    /// # Errors
    /// When the device is not available, or the set of prompts cannot be read.
    pub fn session(&self) -> Result<Session<'_>> {
        Session::begin(&self.run, &self.what_if, self.prompt.clone(), &self.inputs)
    }
}

/// Runs the prompts through one checkpoint.
///
/// # Errors
/// When it cannot be read, or cannot run a prompt.
pub fn read(session: &Session<'_>, found: &Found) -> Result<Reading, Error> {
    read_opened(session, found, session.open(&found.path))
}

/// Runs the prompts of an opened checkpoint.
///
/// # Errors
/// When it could not be opened, or cannot run a prompt.
pub fn read_opened(
    session: &Session<'_>,
    found: &Found,
    opened: Result<Opened>,
) -> Result<Reading, Error> {
    let ran = || -> Result<Reading> {
        let mut opened = opened?;
        session.ready(&mut opened, OPTIONS, 0)?;
        let ran = session.run(&opened.model, &opened.named, OPTIONS, false)?;
        opened.model.checkpoint.unchanged()?;
        let records: Vec<_> = ran.into_iter().map(|ran| ran.record).collect();
        let mut model = ModelRecord::of(&opened.model);
        model.name.clone_from(&found.name);
        Ok(Reading::of(&model, found.step, &records))
    };
    ran().map_err(|e| match e.downcast::<Error>() {
        Ok(error) => error,
        Err(other) => Error::Prompt(format!("{other:#}")),
    })
}
