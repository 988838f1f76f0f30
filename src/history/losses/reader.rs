//! Reads the losses of a training, and what is added to them while it runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use attnscope_checkpoint::open_regular;

use super::curve::{Curve, Losses};
use super::framed::Framing;
use super::names::{EVALUATION, Kind, TRAINING, loss_named};
use super::trainer_state::{self, TrainerState};
use super::{events, places, wandb};
use crate::sources::Found;

/// Bytes read of all files together before the caller is asked again.
const BUDGET: u64 = 1 << 20;
/// Number of checkpoints, the newest first, in which a trainer's state is looked for: the newest may not be written yet.
const STATES: usize = 3;

/// What a read found.
#[derive(Debug, Default)]
pub struct LossNews {
    /// The losses, if they changed.
    pub losses: Option<Arc<Losses>>,
    /// Files that are damaged or cannot be read, each told once.
    pub notes: Vec<String>,
    /// Whether there is more to read immediately.
    pub has_more: bool,
}

/// Reads the files of a training's loggers in pieces.
#[derive(Debug, Default)]
pub struct LossReader {
    files: BTreeMap<PathBuf, Logged>,
    states: Vec<State>,
    /// Whether something was read since the losses were put together.
    is_stale: bool,
    /// Files whose damage was told.
    told: Vec<PathBuf>,
    last: Option<Arc<Losses>>,
}

/// Values under one name, as they were logged.
type Points = Vec<(u64, f64)>;

/// A file of a logger, and what was read of it.
#[derive(Debug)]
struct Logged {
    framing: Framing,
    identity: u64,
    /// Length when it was last read, and offset of the first record that was not read.
    len: u64,
    offset: u64,
    /// Time of its first record: a training that is started again begins another file.
    begun: Option<f64>,
    /// By kind of loss and place of its name in the list of names: the name, and its values.
    curves: [BTreeMap<usize, (String, Points)>; 2],
}

/// A trainer's state, and the file as it was when it was read.
#[derive(Debug)]
struct State {
    file: (PathBuf, u64, Option<SystemTime>),
    content: TrainerState,
}

impl LossReader {
    /// Reads what is new in the files beside some checkpoints, which are in order; `roots` are the places that were given.
    pub fn poll(&mut self, roots: &[PathBuf], found: &[Found]) -> LossNews {
        let mut news = LossNews::default();
        let checkpoints: Vec<PathBuf> = found.iter().map(|found| found.path.clone()).collect();
        let directories = places::run_directories(roots, &checkpoints);
        self.is_stale |= self.read_states(&directories, &checkpoints, &mut news);
        let logged = places::logged_in(&directories);
        let n_before = self.files.len();
        self.files
            .retain(|path, _| logged.iter().any(|(known, _)| known == path));
        self.is_stale |= self.files.len() != n_before;
        let mut budget = BUDGET;
        for (path, framing) in logged {
            self.is_stale |= self.read_file(path, framing, &mut budget, &mut news);
        }
        if self.is_stale && !news.has_more {
            self.is_stale = false;
            let losses = Arc::new(self.losses());
            if self.last.as_ref() != Some(&losses) {
                self.last = Some(losses.clone());
                news.losses = Some(losses);
            }
        }
        news
    }

    /// Reads all that is in the files beside some checkpoints, which are in order, once.
    pub fn read_all(found: &[Found]) -> LossNews {
        let (mut reader, mut all) = (Self::default(), LossNews::default());
        loop {
            let news = reader.poll(&[], found);
            all.notes.extend(news.notes);
            all.losses = news.losses.or(all.losses);
            if !news.has_more {
                return all;
            }
        }
    }

    /// Reads the states of the trainer that are new. Returns whether any came, went or changed.
    fn read_states(
        &mut self,
        directories: &[PathBuf],
        checkpoints: &[PathBuf],
        news: &mut LossNews,
    ) -> bool {
        let newest = checkpoints.iter().rev().take(STATES);
        let paths = newest.chain(directories.first());
        let files = paths.filter_map(|directory| {
            let path = directory.join(trainer_state::NAME);
            let about = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some((path, about.len(), about.modified().ok()))
        });
        let files: Vec<_> = files.collect();
        let n_before = self.states.len();
        self.states.retain(|state| files.contains(&state.file));
        let mut is_new = self.states.len() != n_before;
        for file in files {
            if self.states.iter().any(|state| state.file == file) {
                continue;
            }
            is_new = true;
            let content = TrainerState::read(&file.0).unwrap_or_else(|e| {
                self.tell(&file.0, format!("{e}; its losses are left out"), news);
                TrainerState::default()
            });
            self.states.push(State { file, content });
        }
        is_new
    }

    /// Adds a note on a file, once.
    fn tell(&mut self, path: &Path, note: String, news: &mut LossNews) {
        if !self.told.iter().any(|told| told == path) {
            self.told.push(path.to_path_buf());
            news.notes.push(note);
        }
    }

    /// Reads what is new in a file. Returns whether that was anything.
    fn read_file(
        &mut self,
        path: PathBuf,
        framing: Framing,
        budget: &mut u64,
        news: &mut LossNews,
    ) -> bool {
        let Ok(about) = path.metadata() else {
            return false;
        };
        let (identity, len) = (identity(&about), about.len());
        let mut is_new = false;
        let known = self.files.get(&path);
        if known.is_none_or(|known| known.identity != identity || len < known.len) {
            is_new = known.is_some();
            self.files
                .insert(path.clone(), Logged::new(framing, identity));
        }
        let Some(logged) = self.files.get_mut(&path) else {
            return false;
        };
        if logged.len == len {
            return is_new;
        }
        if *budget == 0 {
            news.has_more = true;
            return is_new;
        }
        let n_before = logged.n_values();
        let before = logged.offset;
        match logged.read(&path, len, *budget) {
            Ok((damage, has_more)) => {
                *budget = budget.saturating_sub(logged.offset - before);
                news.has_more |= has_more;
                is_new |= logged.n_values() != n_before;
                if let Some(damage) = damage {
                    self.tell(&path, format!("{}: {damage}", path.display()), news);
                }
            }
            Err(e) => {
                let note = format!("{}: cannot be read ({e})", path.display());
                self.tell(&path, note, news);
            }
        }
        is_new
    }

    /// Puts together what was read: each loss from the trainer's state, and otherwise by its preferred name.
    fn losses(&self) -> Losses {
        let of = |kind: Kind| self.of_state(kind).or_else(|| self.of_files(kind));
        Losses {
            training: of(Kind::Training),
            evaluation: of(Kind::Evaluation),
        }
    }

    fn of_state(&self, kind: Kind) -> Option<Curve> {
        let newest = self
            .states
            .iter()
            .max_by_key(|state| state.content.global_step);
        let content = &newest?.content;
        let (name, points) = match kind {
            Kind::Training => ("loss", &content.training),
            Kind::Evaluation => ("eval_loss", &content.evaluation),
        };
        let points = points.iter().copied();
        let curve = Curve::new(name.to_owned(), trainer_state::NAME, points);
        (!curve.is_empty()).then_some(curve)
    }

    /// Joins the values of the preferred name from all files of the logger that has it, in the order in which the files begin.
    fn of_files(&self, kind: Kind) -> Option<Curve> {
        let files = self.files.values();
        let named = files.filter_map(|file| {
            let place = file.curves[kind as usize].keys().next()?;
            Some((*place, file.framing))
        });
        let (place, framing) = named.min()?;
        let files = self.files.values().filter(|file| file.framing == framing);
        let curves = files.filter_map(|file| {
            let begun = file.begun.unwrap_or(f64::INFINITY);
            Some((begun, file.curves[kind as usize].get(&place)?))
        });
        let mut curves: Vec<(f64, &(String, Points))> = curves.collect();
        curves.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (_, (name, _)) = curves.first()?;
        let logger = match framing {
            Framing::Events => "TensorBoard",
            Framing::Wandb => "W&B",
        };
        let points = curves
            .iter()
            .flat_map(|(_, (_, points))| points.iter().copied());
        Some(Curve::new(name.clone(), logger, points))
    }
}

impl Logged {
    fn new(framing: Framing, identity: u64) -> Self {
        Self {
            framing,
            identity,
            len: 0,
            offset: 0,
            begun: None,
            curves: Default::default(),
        }
    }

    fn n_values(&self) -> usize {
        let curves = self.curves.iter().flat_map(BTreeMap::values);
        curves.map(|(_, points)| points.len()).sum()
    }

    /// Reads up to `len` bytes of the file. Returns the first damage, and whether there is more to read.
    fn read(
        &mut self,
        path: &Path,
        len: u64,
        budget: u64,
    ) -> std::io::Result<(Option<String>, bool)> {
        let file = open_regular(path)?;
        let scalars = match self.framing {
            Framing::Events => events::scalars,
            Framing::Wandb => wandb::scalars,
        };
        let (curves, begun) = (&mut self.curves, &mut self.begun);
        let mut take = |name: &str, step: u64, value: f64| {
            if let Some((kind, place)) = loss_named(name) {
                debug_assert!(place < TRAINING.len().max(EVALUATION.len()));
                let new = || (name.to_owned(), Points::new());
                let (_, points) = curves[kind as usize].entry(place).or_insert_with(new);
                points.push((step, value));
            }
        };
        let reached =
            self.framing
                .read(file, self.offset, len, budget, &mut |record: &[u8]| {
                    let time = scalars(record, &mut take);
                    *begun = begun.or(time);
                })?;
        self.offset = reached.offset;
        if !reached.has_more {
            self.len = len;
        }
        Ok((reached.damage, reached.has_more))
    }
}

#[cfg(unix)]
fn identity(about: &std::fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    about.ino()
}

#[cfg(not(unix))]
fn identity(_: &std::fs::Metadata) -> u64 {
    0
}
