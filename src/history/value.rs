//! A history as a value: runs of one training in order of steps, which takes updates as they arrive and can be drawn at any time.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attnscope_checks::stats::{STATISTICS, index_of};
use attnscope_report::record::natural;

use super::grid::Grid;
use super::layout::{Layout, joined};
use super::log::{Batch, Header, Item, Logged};
use super::read::Reading;
use super::record::{Numbers, Record, State, is_unknown};

/// Where the records of a history come from.
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

/// Something that happened to a history.
#[derive(Debug)]
pub enum Update {
    /// Checkpoints that are there now, with their steps; those that are known already stay as they are.
    Found(Vec<(PathBuf, String, Option<u64>)>),
    /// How far reading a checkpoint is, when it is not read.
    State(PathBuf, State),
    /// Statistics of a checkpoint.
    Read(PathBuf, Box<Reading>),
    /// What was read from a log.
    Log(Batch),
    /// A line for a person.
    Note(String),
    /// Everything that is there was read: what is concluded now does not rest on half of it.
    CaughtUp,
}

/// Runs of one training in order of steps.
///
/// A screen keeps one, gives it every [`Update`] that has arrived ([`History::apply`] neither reads nor computes for long), and
/// draws from [`History::records`], [`History::series`] and [`super::Judge`].
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// What the training is called: the directory, or the log.
    pub name: String,
    pub origin: Origin,
    grid: Grid,
    /// Statistics that records have, by their place in the registry.
    statistics: Vec<usize>,
    records: Vec<Record>,
    /// Lines for a person: log lines that could not be used, a log that was replaced.
    pub notes: Vec<String>,
    /// Rows that a log's monitor samples from each head; `None` for checkpoints.
    pub sampled_rows: Option<u64>,
    /// Whether a segment of a log begins with the next record, and what it records where that is something else than before.
    begins_segment: bool,
    next: Option<Box<Header>>,
    /// Where the values of the present segment lie in rows; `None` where they are rows already.
    layout: Option<Layout>,
    /// Counts changes: a screen draws again when it differs.
    revision: u64,
    /// Records before this one are as they were when the revision was lower, unless `epoch` differs.
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
            notes: Vec::new(),
            sampled_rows: None,
            begins_segment: false,
            next: None,
            layout: None,
            revision: 0,
            epoch: 0,
        }
    }

    /// All steps, in their order, whether or not they were read.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The heads and layers of the model; empty until the first step was read.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The statistics that records have, by their place in the registry.
    pub fn statistics(&self) -> &[usize] {
        &self.statistics
    }

    /// Changes whenever anything did.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Changes when a record changed, came or went that was not the last one; what was concluded from the records holds no more.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A statistic of a cell at one record; NaN where it is not known.
    pub fn at(&self, record_idx: usize, statistic: &str, cell: usize) -> f64 {
        let column = self.column(statistic);
        column.map_or(f64::NAN, |column| self.value(record_idx, column, cell))
    }

    /// The column of a statistic in the records' values.
    pub fn column(&self, statistic: &str) -> Option<usize> {
        let idx = index_of(statistic)?;
        self.statistics.iter().position(|known| *known == idx)
    }

    /// A value by its column; NaN where it is not known.
    pub fn value(&self, record_idx: usize, column: usize, cell: usize) -> f64 {
        let numbers = self.records[record_idx].numbers.as_ref();
        let n_cells = self.grid.n_cells();
        let value = numbers.and_then(|numbers| numbers.values.get(column * n_cells + cell));
        value.map_or(f64::NAN, |value| f64::from(*value))
    }

    /// A value by its column; `None` where the record does not have it, which a value that is not finite is something else than.
    pub fn known(&self, record_idx: usize, column: usize, cell: usize) -> Option<f64> {
        let numbers = self.records[record_idx].numbers.as_ref()?;
        let value = numbers.values.get(column * self.grid.n_cells() + cell)?;
        (!is_unknown(*value)).then(|| f64::from(*value))
    }

    /// A statistic of a cell at every record, NaN where it is not known: what a strip or a curve shows.
    pub fn series(&self, statistic: &str, cell: usize) -> Vec<f64> {
        let column = self.column(statistic);
        let at = |idx| column.map_or(f64::NAN, |column| self.value(idx, column, cell));
        (0..self.records.len()).map(at).collect()
    }

    /// Where a record stands on the axis of steps: its step, or its position where steps are not known.
    pub fn x(&self, record_idx: usize) -> f64 {
        match self.records[record_idx].step {
            Some(step) if self.has_steps() => step as f64,
            _ => record_idx as f64,
        }
    }

    /// Whether every record tells its step. Those without one come first.
    pub fn has_steps(&self) -> bool {
        let first = self.records.first();
        first.is_some_and(|record| record.step.is_some())
    }

    /// The record of a checkpoint.
    pub fn position(&self, path: &Path) -> Option<usize> {
        self.records
            .iter()
            .position(|record| record.path.as_deref() == Some(path))
    }

    /// How many records have statistics, and how many there are.
    pub fn progress(&self) -> (usize, usize) {
        let n_read = self
            .records
            .iter()
            .filter(|record| record.numbers.is_some());
        (n_read.count(), self.records.len())
    }

    /// Takes what happened.
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
            Update::Log(batch) => self.logged(batch),
            Update::Note(note) => self.note(note),
            Update::CaughtUp => {}
        }
    }

    fn note(&mut self, note: String) {
        /// Notes that are kept: a log of another program would have one for each line.
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
                // A checkpoint of that name is there again.
                Some(idx) if self.records[idx].state == State::Gone => {
                    self.records[idx].state = match self.records[idx].numbers {
                        Some(_) => State::Changed,
                        None => State::Waiting,
                    };
                    if self.move_to_step(idx, step) {
                        positions = self.positions();
                    }
                }
                // Rewritten under one name, as `latest` is: what was read stays at its step.
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

    /// The record of each path.
    fn positions(&self) -> BTreeMap<PathBuf, usize> {
        let paths = self.records.iter().enumerate();
        let paths = paths.filter_map(|(idx, record)| Some((record.path.clone()?, idx)));
        paths.collect()
    }

    /// A checkpoint that was not read yet tells its step only now. Returns whether records moved.
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
        if !header.unknown.is_empty() {
            self.note(format!(
                "{}: statistics that this version does not know are left out: {}",
                self.name,
                header.unknown.join(", ")
            ));
        }
    }

    /// From here on a log records other statistics or other layers: rows become as wide as both need.
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
            // The training went back to this step: what it did beyond is no part of it any more.
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
        let values = match &self.layout {
            Some(layout) => layout.laid(&logged.values),
            None => logged.values,
        };
        let record = Record {
            name: self.name.clone(),
            path: None,
            step: Some(step),
            time: logged.time,
            state: State::Done,
            numbers: Some(Numbers {
                loss: logged.loss,
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

/// By step; checkpoints without a step by their names, before the others.
fn in_order(a: &Record, b: &Record) -> Ordering {
    a.step
        .cmp(&b.step)
        .then_with(|| natural(&a.name, &b.name))
        .then_with(|| a.path.cmp(&b.path))
}
