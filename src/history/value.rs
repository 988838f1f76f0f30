//! A history as a value: runs of one training in order of steps. It takes updates as they arrive and can be drawn at any time.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use attnscope_checks::stats::{STATISTICS, index_of};
use attnscope_report::record::natural;

use super::grid::Grid;
use super::layout::{Layout, joined};
use super::log::{Batch, Header, Item, Logged};
use super::losses::Losses;
use super::read::Reading;
use super::record::{Numbers, Record, State, is_unknown};

/// Source of a history's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Checkpoints, each run on the same prompts.
    Checkpoints,
    /// The log of a monitor.
    Log,
}

impl Origin {
    pub fn label(self) -> &'static str {
        match self {
            Self::Checkpoints => "checkpoints",
            Self::Log => "log",
        }
    }
}

/// A change to a history.
#[derive(Debug)]
pub enum Update {
    /// Checkpoints that exist now, with their steps; known ones stay unchanged.
    Found(Vec<(PathBuf, String, Option<u64>)>),
    /// State of a checkpoint that is not read.
    State(PathBuf, State),
    /// Statistics of a checkpoint.
    Read(PathBuf, Box<Reading>),
    /// Losses that the training logged beside its checkpoints, all of them anew.
    Losses(Arc<Losses>),
    /// Records read from a log.
    Log(Batch),
    /// A message for the user.
    Note(String),
    /// Everything found so far has been read, so that conclusions are complete.
    CaughtUp,
}

/// Runs of one training in order of steps.
///
/// A screen keeps one, passes it every [`Update`] that has arrived ([`History::apply`] is fast and does no I/O), and
/// draws from [`History::records`], [`History::series`] and [`super::Judge`].
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Name of the training: the directory, or the log.
    pub name: String,
    pub origin: Origin,
    grid: Grid,
    /// Registry indices of the records' statistics.
    statistics: Vec<usize>,
    records: Vec<Record>,
    /// Losses that the training logged beside its checkpoints.
    losses: Arc<Losses>,
    /// Messages for the user: unusable log lines, a replaced log.
    pub notes: Vec<String>,
    /// Rows that a log's monitor samples per head; `None` for checkpoints.
    pub sampled_rows: Option<u64>,
    /// Whether a segment of a log begins with the next record, with its header if it records something else than before.
    begins_segment: bool,
    next: Option<Box<Header>>,
    /// Mapping of the current segment's values to rows; `None` if none is needed.
    layout: Option<Layout>,
    /// Change counter: a screen redraws when it differs.
    revision: u64,
    /// Counter of changes to earlier records; if it is unchanged, records were only appended or the last one changed.
    epoch: u64,
}

impl History {
    pub fn new(name: String, origin: Origin) -> Self {
        let statistics = match origin {
            Origin::Checkpoints => (0..STATISTICS.len()).collect(),
            Origin::Log => Vec::new(),
        };
        Self {
            name,
            origin,
            grid: Grid::default(),
            statistics,
            records: Vec::new(),
            losses: Arc::default(),
            notes: Vec::new(),
            sampled_rows: None,
            begins_segment: false,
            next: None,
            layout: None,
            revision: 0,
            epoch: 0,
        }
    }

    /// Returns all steps in order, read or not.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the heads and layers of the model; empty until the first step was read.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// Returns the registry indices of the records' statistics.
    pub fn statistics(&self) -> &[usize] {
        &self.statistics
    }

    /// Returns a counter that changes with every update.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns a counter that changes when any record but the last changed, came or went: earlier conclusions are then invalid.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns a statistic of a cell at one record; NaN if it is unknown.
    pub fn at(&self, record_idx: usize, statistic: &str, cell: usize) -> f64 {
        let column = self.column(statistic);
        column.map_or(f64::NAN, |column| self.value(record_idx, column, cell))
    }

    /// Returns the column of a statistic in the records' values.
    pub fn column(&self, statistic: &str) -> Option<usize> {
        let idx = index_of(statistic)?;
        self.statistics.iter().position(|known| *known == idx)
    }

    /// Returns a value by its column; NaN if it is unknown.
    pub fn value(&self, record_idx: usize, column: usize, cell: usize) -> f64 {
        let numbers = self.records[record_idx].numbers.as_ref();
        let n_cells = self.grid.n_cells();
        let value = numbers.and_then(|numbers| numbers.values.get(column * n_cells + cell));
        value.map_or(f64::NAN, |value| f64::from(*value))
    }

    /// Returns a value by its column; `None` if the record does not have it, which is different from a value that is not finite.
    pub fn known(&self, record_idx: usize, column: usize, cell: usize) -> Option<f64> {
        let numbers = self.records[record_idx].numbers.as_ref()?;
        let value = numbers.values.get(column * self.grid.n_cells() + cell)?;
        (!is_unknown(*value)).then(|| f64::from(*value))
    }

    /// Returns a statistic of a cell at every record, NaN where it is unknown, for a strip or a curve.
    pub fn series(&self, statistic: &str, cell: usize) -> Vec<f64> {
        let column = self.column(statistic);
        let at = |idx| column.map_or(f64::NAN, |column| self.value(idx, column, cell));
        (0..self.records.len()).map(at).collect()
    }

    /// Returns a record's position on the step axis: its step, or its index if steps are unknown.
    pub fn x(&self, record_idx: usize) -> f64 {
        match self.records[record_idx].step {
            Some(step) if self.has_steps() => step as f64,
            _ => record_idx as f64,
        }
    }

    /// Whether every record has a step. Records without one come first.
    pub fn has_steps(&self) -> bool {
        let first = self.records.first();
        first.is_some_and(|record| record.step.is_some())
    }

    /// Returns the losses that the training logged beside its checkpoints.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Returns the training loss at a record as the training logged it, `None` if it did not. It is another loss than that of a
    /// checkpoint on the prompt, [`Record::loss`].
    pub fn training_loss(&self, record_idx: usize) -> Option<f64> {
        let step = self.records[record_idx].step?;
        self.losses.training.as_ref()?.at(step)
    }

    /// Returns the evaluation loss at a record as the training logged it.
    pub fn evaluation_loss(&self, record_idx: usize) -> Option<f64> {
        let step = self.records[record_idx].step?;
        self.losses.evaluation.as_ref()?.at(step)
    }

    fn take_losses(&mut self, losses: Arc<Losses>) {
        let all = |history: &Self| {
            let at = |idx| history.training_loss(idx).map(f64::to_bits);
            (0..history.records.len()).map(at).collect::<Vec<_>>()
        };
        let before = all(self);
        self.losses = losses;
        if all(self) != before {
            self.epoch += 1;
        }
    }

    /// Returns the record of a checkpoint.
    pub fn position(&self, path: &Path) -> Option<usize> {
        self.records
            .iter()
            .position(|record| record.path.as_deref() == Some(path))
    }

    /// Returns how many records have statistics, and how many there are.
    pub fn progress(&self) -> (usize, usize) {
        let n_read = self
            .records
            .iter()
            .filter(|record| record.numbers.is_some());
        (n_read.count(), self.records.len())
    }

    /// Applies an update.
    pub fn apply(&mut self, update: Update) {
        self.revision += 1;
        match update {
            Update::Found(found) => self.found(found),
            Update::State(path, state) => {
                if let Some(idx) = self.position(&path) {
                    self.records[idx].state = state;
                }
            }
            Update::Read(path, reading) => self.read(&path, *reading),
            Update::Losses(losses) => self.take_losses(losses),
            Update::Log(batch) => self.logged(batch),
            Update::Note(note) => self.note(note),
            Update::CaughtUp => {}
        }
    }

    fn note(&mut self, note: String) {
        /// Most notes kept: a log of another program would give one per line.
        const MOST: usize = 1000;
        if self.notes.len() < MOST {
            self.notes.push(note);
        }
    }

    fn found(&mut self, found: Vec<(PathBuf, String, Option<u64>)>) {
        let mut is_new = false;
        let mut positions = self.positions();
        for (path, name, step) in found {
            match positions.get(&path).copied() {
                None => {
                    self.records.push(Record::waiting(name, path, step));
                    is_new = true;
                }
                // A checkpoint of this name exists again.
                Some(idx) if self.records[idx].state == State::Gone => {
                    self.records[idx].state = match self.records[idx].numbers {
                        Some(_) => State::Changed,
                        None => State::Waiting,
                    };
                    if self.move_to_step(idx, step) {
                        positions = self.positions();
                    }
                }
                // Rewritten under one name, such as `latest`: the old data stays at its step.
                Some(idx)
                    if step.is_some()
                        && self.records[idx].step != step
                        && self.records[idx].numbers.is_some() =>
                {
                    self.records[idx].path = None;
                    self.records[idx].state = State::Gone;
                    self.records.push(Record::waiting(name, path, step));
                    is_new = true;
                }
                Some(idx) => {
                    if self.move_to_step(idx, step) {
                        positions = self.positions();
                    }
                }
            }
        }
        if is_new {
            self.epoch += 1;
            self.records.sort_by(in_order);
        }
    }

    /// Returns the record index of each path.
    fn positions(&self) -> BTreeMap<PathBuf, usize> {
        let paths = self.records.iter().enumerate();
        let paths = paths.filter_map(|(idx, record)| Some((record.path.clone()?, idx)));
        paths.collect()
    }

    /// Sets the step of a checkpoint that was unknown before it was read. Returns whether records moved.
    fn move_to_step(&mut self, idx: usize, step: Option<u64>) -> bool {
        let is_told = self.records[idx].step != step && step.is_some();
        if is_told {
            self.records[idx].step = step;
            self.records.sort_by(in_order);
            self.epoch += 1;
        }
        is_told
    }

    fn read(&mut self, path: &Path, reading: Reading) {
        let Some(idx) = self.position(path) else {
            return;
        };
        if self.grid.layers().is_empty() {
            self.grid = reading.grid.clone();
        } else if self.grid != reading.grid {
            self.records[idx].state = State::Failed(format!(
                "is another model than the steps that were read before: {}, not {}",
                reading.grid.size(),
                self.grid.size()
            ));
            return;
        }
        let is_last = idx + 1 == self.records.len() && self.records[idx].numbers.is_none();
        if !is_last {
            self.epoch += 1;
        }
        let record = &mut self.records[idx];
        record.numbers = Some(reading.numbers);
        record.rows = reading.rows;
        record.state = State::Done;
    }

    fn logged(&mut self, batch: Batch) {
        if let Some(what) = batch.restarted {
            self.records.clear();
            self.grid = Grid::default();
            self.epoch += 1;
            self.begins_segment = false;
            self.next = None;
            self.note(format!(
                "{}: {what}; it is read from its beginning",
                self.name
            ));
        }
        if let Some(header) = batch.header {
            self.begin_log(header);
        }
        for bad in &batch.bad {
            self.note(format!(
                "{}: line {}: {}",
                self.name, bad.number, bad.problem
            ));
        }
        for item in batch.items {
            match item {
                Item::Segment(header) => {
                    self.begins_segment = true;
                    self.next = header.or_else(|| self.next.take());
                }
                Item::Record(logged) => self.record(logged),
            }
        }
    }

    fn begin_log(&mut self, header: Header) {
        self.grid = header.grid;
        self.statistics = header.statistics;
        self.sampled_rows = Some(header.rows);
        self.layout = None;
        if !header.unseen.is_empty() {
            let names = header.unseen.iter().take(3).cloned();
            let more = match header.unseen.len() {
                n if n > 3 => format!(" and {} more", n - 3),
                _ => String::new(),
            };
            self.note(format!(
                "{}: no attention was seen in {}{more}: the log does not have their heads",
                self.name,
                names.collect::<Vec<String>>().join(", ")
            ));
        }
        if !header.unknown.is_empty() {
            self.note(format!(
                "{}: statistics that this version does not know are left out: {}",
                self.name,
                header.unknown.join(", ")
            ));
        }
    }

    /// Continues with a new segment header: rows become wide enough for both shapes.
    fn go_on_with(&mut self, header: Header, step: u64) {
        let joined = joined(&self.grid, &header.grid).filter(|_| !self.records.is_empty());
        let Some(grid) = joined else {
            if !self.records.is_empty() {
                self.note(format!(
                    "{}: another model from step {step} on: {}, not {}; the steps before are left out",
                    self.name,
                    header.grid.size(),
                    self.grid.size()
                ));
            }
            self.records.clear();
            self.epoch += 1;
            self.begin_log(header);
            return;
        };
        let mut statistics = self.statistics.clone();
        let is_new = |idx: &&usize| !self.statistics.contains(idx);
        statistics.extend(header.statistics.iter().filter(is_new));
        let all = (statistics.as_slice(), &grid);
        if let Some(layout) = Layout::new((&self.statistics, &self.grid), all) {
            for record in &mut self.records {
                if let Some(numbers) = &mut record.numbers {
                    numbers.values = layout.laid(&numbers.values);
                    if let Some(batch) = &mut numbers.batch {
                        batch.lay(&layout);
                    }
                }
            }
            self.epoch += 1;
        }
        self.layout = Layout::new((&header.statistics, &header.grid), all);
        self.sampled_rows = Some(header.rows);
        (self.statistics, self.grid) = (statistics, grid);
    }

    fn record(&mut self, logged: Logged) {
        let step = logged.step;
        if std::mem::take(&mut self.begins_segment) {
            // The training went back to this step: drop the records after it.
            let n = self
                .records
                .partition_point(|known| known.step < Some(step));
            if n < self.records.len() {
                self.records.truncate(n);
                self.epoch += 1;
            }
        }
        if let Some(header) = self.next.take() {
            self.go_on_with(*header, step);
        }
        let (mut values, mut batch) = (logged.values, logged.batch);
        if let Some(layout) = &self.layout {
            values = layout.laid(&values);
            if let Some(batch) = &mut batch {
                batch.lay(layout);
            }
        }
        let record = Record {
            name: self.name.clone(),
            path: None,
            step: Some(step),
            time: logged.time,
            state: State::Done,
            numbers: Some(Numbers {
                loss: logged.loss,
                batch,
                values,
            }),
            rows: Vec::new(),
        };
        match self.records.last() {
            Some(last) if last.step >= Some(step) => {
                self.epoch += 1;
                match self
                    .records
                    .binary_search_by_key(&Some(step), |known| known.step)
                {
                    Ok(idx) => self.records[idx] = record,
                    Err(idx) => self.records.insert(idx, record),
                }
            }
            _ => self.records.push(record),
        }
    }
}

/// Orders by step; checkpoints without a step come first, by name.
fn in_order(a: &Record, b: &Record) -> Ordering {
    a.step
        .cmp(&b.step)
        .then_with(|| natural(&a.name, &b.name))
        .then_with(|| a.path.cmp(&b.path))
}
