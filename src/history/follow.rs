//! Follows a training: finds checkpoints, waits for those still being written, reads one after another, and
//! notices when they change or disappear; or follows a log.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use attnscope_checkpoint::Opening;
use attnscope_compute::error::{Error, Result};

use super::cache::Cache;
use super::complete::missing;
use super::fingerprint::Fingerprint;
use super::log::LogReader;
use super::losses::LossReader;
use super::order;
use super::read::Reading;
use super::record::State;
use super::sources::{self, Found};
use super::value::Update;
use super::wake::Wake;

/// Time between two scans for new checkpoints, unless the system reports a change sooner.
const EVERY: Duration = Duration::from_secs(1);
/// Scanning takes at most one part in this many of the time.
const RESTING: u32 = 10;
/// Time between two reads of a growing log.
const LOG_EVERY: Duration = Duration::from_millis(200);

/// Source of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sources {
    /// Checkpoints, directories of checkpoints, or both.
    Checkpoints(Vec<PathBuf>),
    /// The log of a monitor.
    Log(PathBuf),
}

/// Checkpoints that the user wants read again; requested on one thread, read on another.
#[derive(Debug, Clone, Default)]
pub struct RereadQueue(Arc<Mutex<Vec<PathBuf>>>);

impl RereadQueue {
    pub fn ask(&self, path: PathBuf) {
        self.asked().push(path);
    }

    fn take(&self) -> Vec<PathBuf> {
        std::mem::take(&mut *self.asked())
    }

    fn asked(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        // A list of paths stays valid even if a thread panicked while holding the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settings for reading a training.
#[derive(Debug, Clone)]
pub struct Following {
    pub sources: Sources,
    /// Whether to continue after everything has been read.
    pub watches: bool,
    /// Whether to read a changed checkpoint again; otherwise it is marked by [`Update::State`].
    pub rereads: bool,
    pub cache: Option<Cache>,
    pub again: RereadQueue,
    /// How checkpoints are opened, which determines where their files are.
    pub opening: Opening,
}

/// Reads one checkpoint.
pub type Read<'a> = dyn FnMut(&Found) -> Result<Reading> + 'a;
/// Receives updates; returns whether to stop.
pub type Sink<'a> = dyn FnMut(Vec<Update>) -> ControlFlow<()> + 'a;

impl Following {
    /// Reads everything, or for ever if `watches` is set, until the sink says to stop. While there is nothing to read, the sink
    /// is called a few times per second with an empty list, so that it can stop.
    ///
    /// # Errors
    /// When the sources cannot be listed or the log cannot be read. A checkpoint that cannot be read is an [`Update`].
    pub fn run(&self, read: &mut Read<'_>, sink: &mut Sink<'_>) -> Result<()> {
        match &self.sources {
            Sources::Log(path) => self.log(path, sink),
            Sources::Checkpoints(roots) => self.checkpoints(roots, read, sink),
        }
    }

    fn log(&self, path: &Path, sink: &mut Sink<'_>) -> Result<()> {
        let mut reader = LogReader::new(path);
        let wake = self.watches.then(|| Wake::on(&[path.to_path_buf()]));
        loop {
            // Wait for a log that does not exist yet.
            let waits = self.watches && !path.exists() && reader.header().is_none();
            let mut has_more = false;
            let mut updates = Vec::new();
            if !waits {
                let batch = reader.poll()?;
                has_more = batch.has_more;
                let is_news = batch.restarted.is_some()
                    || batch.header.is_some()
                    || !batch.items.is_empty()
                    || !batch.bad.is_empty();
                if is_news {
                    updates.push(Update::Log(batch));
                    updates.extend((!has_more).then_some(Update::CaughtUp));
                }
            }
            if sink(updates).is_break() {
                return Ok(());
            }
            if has_more {
                continue;
            }
            let Some(wake) = &wake else {
                break;
            };
            wake.wait(Duration::ZERO, LOG_EVERY);
        }
        if reader.header().is_none() {
            return Err(Error::file(
                path,
                "expected a monitor log, found no whole first line",
            ));
        }
        if let Some(line) = reader.unfinished() {
            let note = format!("{}: line {line} is not finished", path.display());
            let _ = sink(vec![Update::Note(note)]);
        }
        Ok(())
    }

    fn checkpoints(
        &self,
        roots: &[PathBuf],
        read: &mut Read<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let wake = self.watches.then(|| Wake::on(roots));
        let mut known = Known::default();
        let mut looked = Instant::now();
        // Duration of the last scan: a directory in which much is written must not be scanned all the time.
        let mut took = Duration::ZERO;
        let found = list(roots);
        let mut stop = sink(known.found(found?, self)).is_break();
        stop = stop || known.read_losses(roots, sink).is_break();
        let (mut n_read, mut n_told) = (0usize, 0usize);
        while !stop {
            if self.watches && looked.elapsed() > EVERY {
                stop = self.look(&mut known, roots, sink);
                looked = Instant::now();
                continue;
            }
            known.read_again(&self.again.take());
            match known.next() {
                Some(idx) => {
                    stop = self.read_one(&mut known, idx, read, sink).is_break();
                    n_read += 1;
                }
                None => {
                    let has_losses = std::mem::take(&mut known.has_new_losses) && n_read > 0;
                    if n_told < n_read || has_losses {
                        n_told = n_read;
                        if sink(vec![Update::CaughtUp]).is_break() {
                            break;
                        }
                    }
                    let Some(wake) = &wake else {
                        break;
                    };
                    wake.wait(took * RESTING, EVERY);
                    let begun = Instant::now();
                    stop = self.look(&mut known, roots, sink);
                    looked = Instant::now();
                    took = looked - begun;
                }
            }
        }
        if n_read > 0
            && let Some(cache) = &self.cache
        {
            cache.trim();
        }
        Ok(())
    }

    /// Scans for new checkpoints. A directory that cannot be listed is tried again later.
    fn look(&self, known: &mut Known, roots: &[PathBuf], sink: &mut Sink<'_>) -> bool {
        match list(roots) {
            Ok(found) => {
                let stop = sink(known.found(found, self)).is_break();
                stop || known.read_losses(roots, sink).is_break()
            }
            Err(e) => {
                ::log::debug!("{e}");
                sink(Vec::new()).is_break()
            }
        }
    }

    /// Returns the fingerprint of a checkpoint's files.
    fn fingerprint(&self, path: &Path) -> Option<Fingerprint> {
        let opening = Opening {
            path: Some(path.to_path_buf()),
            ..self.opening.clone()
        };
        Fingerprint::of(&opening.places())
    }

    fn read_one(
        &self,
        known: &mut Known,
        idx: usize,
        read: &mut Read<'_>,
        sink: &mut Sink<'_>,
    ) -> ControlFlow<()> {
        let found = known.steps[idx].found.clone();
        let path = found.path.clone();
        let before = self.fingerprint(&path);
        known.steps[idx].read.clone_from(&before);
        let state = |state| vec![Update::State(path.clone(), state)];
        let (Some(before), None) = (before, missing(&path)) else {
            known.steps[idx].phase = Phase::Settled;
            let lacks = missing(&path).unwrap_or_else(|| "there is nothing".to_owned());
            return sink(state(State::Incomplete(lacks)));
        };
        known.steps[idx].phase = Phase::Settled;
        let is_asked = std::mem::take(&mut known.steps[idx].is_asked);
        let cached = self
            .cache
            .as_ref()
            .filter(|_| !is_asked)
            .and_then(|cache| cache.get(&before, &found.name, found.step));
        if let Some(reading) = cached {
            known.steps[idx].is_done = true;
            return sink(vec![Update::Read(path, Box::new(reading))]);
        }
        sink(state(State::Reading))?;
        match read(&found) {
            Ok(reading) => {
                let is_same = self.fingerprint(&path).as_ref() == Some(&before);
                if let (true, Some(cache)) = (is_same, &self.cache) {
                    cache.put(&before, &reading);
                }
                known.steps[idx].is_done = true;
                sink(vec![Update::Read(path, Box::new(reading))])
            }
            Err(Error::Cancelled) => ControlFlow::Break(()),
            Err(_) if !path.exists() => sink(state(State::Gone)),
            // It changed while it was read: read it again once it no longer changes.
            Err(e @ Error::Changed { .. }) if self.watches => {
                known.steps[idx].read = None;
                sink(state(State::Incomplete(e.to_string())))
            }
            Err(e) => sink(state(State::Failed(e.to_string()))),
        }
    }
}

/// Lists the checkpoints in several places.
///
/// # Errors
/// When a place does not exist, or a directory cannot be listed.
pub fn list(roots: &[PathBuf]) -> Result<Vec<Found>> {
    let mut all: Vec<Found> = Vec::new();
    let mut known: BTreeSet<PathBuf> = BTreeSet::new();
    for root in roots {
        let found = match sources::training_in(root)? {
            Some(found) => found,
            // An empty directory: its first checkpoint does not exist yet.
            None if root.is_dir() && !sources::is_checkpoint(root) => Vec::new(),
            None if root.exists() => vec![sources::alone(root)],
            None => Vec::new(),
        };
        for found in found {
            if known.insert(found.path.clone()) {
                all.push(found);
            }
        }
    }
    Ok(all)
}

/// Next action for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    ToRead,
    /// Read, failed or incomplete: nothing to do until its files change.
    Settled,
    Gone,
}

#[derive(Debug)]
struct Step {
    found: Found,
    phase: Phase,
    /// Fingerprint of its files when it was last read.
    read: Option<Fingerprint>,
    /// Fingerprint at the last scan, if different: the step is read again only when the files have stopped changing.
    last: Option<Fingerprint>,
    /// Whether the user asked for it: then the cache is ignored.
    is_asked: bool,
    /// Whether its statistics are known: they stay until the user or the caller asks for others.
    is_done: bool,
}

/// The known checkpoints, in order of their steps.
#[derive(Debug, Default)]
struct Known {
    steps: Vec<Step>,
    /// Result of the last scan.
    listed: Vec<Found>,
    losses: LossReader,
    /// Whether the losses changed since everything was last read.
    has_new_losses: bool,
}

impl Known {
    fn next(&self) -> Option<usize> {
        let is_done: Vec<bool> = self
            .steps
            .iter()
            .map(|step| step.phase != Phase::ToRead)
            .collect();
        order::next(&is_done)
    }

    fn read_again(&mut self, paths: &[PathBuf]) {
        for step in &mut self.steps {
            if paths.contains(&step.found.path) && step.phase == Phase::Settled {
                step.phase = Phase::ToRead;
                step.is_asked = true;
            }
        }
    }

    /// Reads the losses beside the checkpoints that were listed.
    fn read_losses(&mut self, roots: &[PathBuf], sink: &mut Sink<'_>) -> ControlFlow<()> {
        loop {
            let news = self.losses.poll(roots, &self.listed);
            let mut updates: Vec<Update> = news.notes.into_iter().map(Update::Note).collect();
            if let Some(losses) = news.losses {
                self.has_new_losses = true;
                updates.push(Update::Losses(losses));
            }
            if !updates.is_empty() || news.has_more {
                sink(updates)?;
            }
            if !news.has_more {
                return ControlFlow::Continue(());
            }
        }
    }

    /// Takes a new listing: adds new steps, and marks removed and changed ones.
    fn found(&mut self, found: Vec<Found>, following: &Following) -> Vec<Update> {
        let mut updates = Vec::new();
        let is_another_list = found != self.listed;
        if is_another_list {
            self.listed.clone_from(&found);
        }
        let mut now: BTreeMap<PathBuf, Found> = found
            .into_iter()
            .map(|found| (found.path.clone(), found))
            .collect();
        if is_another_list {
            let all = now
                .values()
                .map(|found| (found.path.clone(), found.name.clone(), found.step));
            updates.push(Update::Found(all.collect()));
        }
        for step in &mut self.steps {
            let Some(found) = now.remove(&step.found.path) else {
                if step.phase != Phase::Gone {
                    step.phase = Phase::Gone;
                    step.read = None;
                    updates.push(Update::State(step.found.path.clone(), State::Gone));
                }
                continue;
            };
            let is_another = step.found.step != found.step;
            step.is_done &= !is_another;
            step.found = found;
            if step.phase == Phase::Gone {
                step.phase = Phase::ToRead;
                continue;
            }
            if step.phase == Phase::Settled {
                let files = following.fingerprint(&step.found.path);
                if files == step.read && !is_another {
                    continue;
                }
                let marks = step.is_done && !is_another;
                if following.rereads || !marks {
                    // It may still be written to: wait until two scans agree.
                    if files == step.last {
                        step.phase = Phase::ToRead;
                        step.last = None;
                    } else {
                        step.last = files;
                        if marks {
                            updates.push(Update::State(step.found.path.clone(), State::Changed));
                        }
                    }
                } else {
                    step.read = files;
                    updates.push(Update::State(step.found.path.clone(), State::Changed));
                }
            }
        }
        for (_, found) in now {
            self.steps.push(Step {
                found,
                phase: Phase::ToRead,
                read: None,
                last: None,
                is_asked: false,
                is_done: false,
            });
        }
        self.steps.sort_by(|a, b| {
            let key = |step: &Step| step.found.step;
            key(a)
                .cmp(&key(b))
                .then_with(|| attnscope_report::record::natural(&a.found.name, &b.found.name))
        });
        updates
    }
}
