//! The open training: its history as it arrives, the selected step, and how a step is opened.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use attnscope_checkpoint::counted::counted;
use attnscope_checkpoint::{Bundle, Opening};
use attnscope_checks::stats::STATISTICS;
use attnscope_checks::{Severity, Thresholds};
use attnscope_compute::error::Result;
use attnscope_history::{
    Event, Finding, History, Judge, Origin, Record, RereadQueue, Sink, State, Trend, Update,
    beginning, events, on_its_way,
};
use attnscope_spec::Place;

/// Reads a training on its own thread and sends updates to a sink.
pub type HistoryReader = Box<dyn FnOnce(&mut Sink<'_>) -> Result<()> + Send>;

/// While steps still arrive, findings are recomputed only after this many times the duration of the last computation.
const LOOKING: u32 = 20;

/// Number of last steps searched for a statistic.
const ASKED: usize = 64;

/// Identity of a step, which keeps when its index changes: path and step number.
type Key = (Option<PathBuf>, Option<u64>);

/// How a step is opened.
#[derive(Debug, Clone)]
pub enum Steps {
    /// From its files, as the user opened them; `RereadQueue` requests that a step is read again.
    Files(Box<Opening>, RereadQueue),
    /// From bundles compiled into the program.
    Bundled(Vec<(u64, &'static Bundle)>),
}

/// Progress of reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// There is more to read.
    Going,
    /// Everything present was read; new steps are read as they appear.
    Watching,
    /// Nothing more will come; the text is the error, if there was one.
    Over(Option<String>),
}

/// State of the training on screen.
#[derive(Debug)]
pub struct HistoryView {
    pub history: History,
    pub judge: Judge,
    pub reading: Reading,
    /// Seconds since the last update.
    pub age: Option<u64>,
    /// The selected record.
    pub at: usize,
    /// The onset that was jumped to, until another record is selected.
    pub onset: Option<usize>,
    news: Option<Instant>,
    /// When findings were last computed, and how long that took.
    looked: Option<(Instant, Duration)>,
    steps: Steps,
    marked: Option<Key>,
    /// The step that was requested last, and the step that was opened last.
    asked: Option<Key>,
    opened: Option<Key>,
    /// Whether to stop opening the newest step automatically.
    opens_no_more: bool,
}

/// A line of the list of onsets.
#[derive(Debug)]
pub enum Onset<'a> {
    /// A finding, and other heads of its layer in which it begins at the same step.
    Begins(&'a Finding, Vec<Place>),
    OnItsWay(&'a Trend),
}

impl Onset<'_> {
    /// Record, cell and statistic of the onset.
    pub fn at(&self) -> (usize, usize, &'static str) {
        match self {
            Self::Begins(finding, _) => (finding.begin, finding.cell, finding.statistic),
            Self::OnItsWay(trend) => (trend.at, trend.cell, trend.statistic),
        }
    }

    /// Description in one line.
    pub fn told(&self, history: &History) -> String {
        match self {
            Self::Begins(finding, others) => beginning(history, finding, others),
            Self::OnItsWay(trend) => on_its_way(history, trend),
        }
    }
}

fn key_of(record: &Record) -> Key {
    (record.path.clone(), record.step)
}

impl HistoryView {
    /// Replaces the default thresholds.
    #[must_use]
    pub fn judged_by(mut self, thresholds: Thresholds) -> Self {
        self.judge = Judge::new(thresholds);
        self
    }

    /// A training that is still to be read.
    pub fn new(history: History, steps: Steps) -> Self {
        Self {
            at: history.records().len().saturating_sub(1),
            history,
            judge: Judge::new(Thresholds::default()),
            reading: Reading::Going,
            age: None,
            onset: None,
            news: None,
            looked: None,
            steps,
            marked: None,
            asked: None,
            opened: None,
            opens_no_more: false,
        }
    }

    /// A training that has been read completely.
    pub fn whole(history: History, judge: Judge, steps: Steps) -> Self {
        Self {
            judge,
            reading: Reading::Over(None),
            ..Self::new(history, steps)
        }
    }

    /// Marks a step as already open.
    pub fn is_opened_at(&mut self, step: u64) {
        let mut records = self.history.records().iter();
        let found = records.position(|record| record.step == Some(step));
        if let Some(idx) = found {
            self.opened = Some(key_of(&self.history.records()[idx]));
            self.opens_no_more = true;
            self.at = idx;
        }
    }

    /// Applies updates, and recomputes findings if that is quick.
    pub fn take(&mut self, updates: Vec<Update>, now: Instant) {
        let was_last = self.at + 1 >= self.history.records().len();
        let here = self.record().map(key_of);
        let n_before = self.history.records().len();
        let (mut is_news, mut is_caught_up) = (false, false);
        let mut is_renumbered = false;
        for update in updates {
            is_caught_up |= matches!(update, Update::CaughtUp);
            is_news |= !matches!(update, Update::CaughtUp | Update::Found(_));
            // Steps were inserted or removed, and findings refer to steps by index.
            let renumbers = matches!(update, Update::Found(_) | Update::Log(_));
            let epoch = self.history.epoch();
            self.history.apply(update);
            is_renumbered |= renumbers && self.history.epoch() != epoch;
        }
        is_news |= self.history.records().len() != n_before;
        if is_news {
            self.news = Some(now);
        }
        self.age = self
            .news
            .map(|news| now.saturating_duration_since(news).as_secs());
        let is_reading = self.n_waiting() > 0;
        self.reading = if is_caught_up || !is_reading && self.reading == Reading::Watching {
            Reading::Watching
        } else if is_news {
            Reading::Going
        } else {
            self.reading.clone()
        };
        self.at = match here.and_then(|key| self.position(&key)) {
            Some(idx) if !was_last => idx,
            _ => self.history.records().len().saturating_sub(1),
        };
        self.look(is_caught_up || is_renumbered);
    }

    fn look(&mut self, must: bool) {
        let is_due = must
            || self
                .looked
                .is_none_or(|(when, took)| when.elapsed() > took * LOOKING);
        if is_due {
            let begun = Instant::now();
            self.judge.look(&self.history);
            self.looked = Some((Instant::now(), begun.elapsed()));
        }
    }

    /// Marks reading as finished.
    pub fn end(&mut self, outcome: Result<()>) {
        self.judge.look(&self.history);
        self.reading = Reading::Over(outcome.err().map(|e| e.to_string()));
    }

    /// Number of steps found and not read yet.
    pub fn n_waiting(&self) -> usize {
        let waits = |record: &&Record| matches!(record.state, State::Waiting | State::Reading);
        self.history.records().iter().filter(waits).count()
    }

    pub fn record(&self) -> Option<&Record> {
        self.history.records().get(self.at)
    }

    fn position(&self, key: &Key) -> Option<usize> {
        let mut records = self.history.records().iter();
        records.position(|record| key_of(record) == *key)
    }

    /// Whether any of the last steps has a statistic.
    pub fn knows(&self, statistic_idx: usize) -> bool {
        let history = &self.history;
        // Statistics of tokens are not recorded per head.
        let statistic = STATISTICS.get(statistic_idx);
        let Some(column) = statistic.and_then(|statistic| history.column(statistic.id)) else {
            return false;
        };
        let read = (0..history.records().len()).rev();
        let read = read.filter(|idx| history.records()[*idx].numbers.is_some());
        let n_cells = history.grid().n_cells();
        read.take(ASKED)
            .any(|idx| (0..n_cells).any(|cell| !history.value(idx, column, cell).is_nan()))
    }

    /// How to open the selected step.
    ///
    /// # Errors
    /// When it cannot be opened, with the reason in one line.
    pub fn opening(&self) -> std::result::Result<Opening, String> {
        let Some(record) = self.record() else {
            return Err("there is no step yet".to_owned());
        };
        let label = record.label();
        match (&record.state, &record.path, &self.steps) {
            (State::Gone, ..) => Err(format!(
                "{label}: its files were deleted; only its statistics are left"
            )),
            (State::Incomplete(why), ..) => Err(format!("{label} is still being written: {why}")),
            (_, Some(path), Steps::Files(usual, _)) => Ok(Opening {
                path: Some(path.clone()),
                ..(**usual).clone()
            }),
            (_, _, Steps::Bundled(bundles)) => {
                let own = bundles.iter().find(|(step, _)| Some(*step) == record.step);
                let Some((_, bundle)) = own else {
                    let steps = bundles.iter().map(|(step, _)| step.to_string());
                    let steps: Vec<String> = steps.collect();
                    return Err(format!(
                        "{label} has no checkpoint (there are {})",
                        steps.join(", ")
                    ));
                };
                Ok(Opening {
                    bundle: Some(bundle),
                    ..Opening::default()
                })
            }
            (_, None, Steps::Files(..)) => Err(match self.history.origin {
                Origin::Log => format!(
                    "a monitor log holds statistics and no weights: open the checkpoint of {label} itself"
                ),
                Origin::Checkpoints => format!("{label}: its files now hold another step"),
            }),
        }
    }

    /// What happens in the training, the worst and earliest first.
    pub fn events(&self) -> Vec<Event<'_>> {
        events(self.judge.findings())
    }

    /// Onsets in the order of their events, then trends.
    pub fn onsets(&self) -> Vec<Onset<'_>> {
        let groups = self.events().into_iter().flat_map(|event| event.groups);
        let begins = groups.map(|(finding, others)| Onset::Begins(finding, others));
        let trends = self.judge.trends().iter().map(Onset::OnItsWay);
        begins.chain(trends).collect()
    }

    /// Number of events of a severity.
    pub fn n_begin(&self, severity: Severity) -> usize {
        let events = self.events();
        let of = events.iter().filter(|event| event.severity() == severity);
        of.count()
    }

    /// Events counted by severity, and trends; empty if there are none.
    pub fn counts(&self) -> Vec<String> {
        let counts = [
            (self.n_begin(Severity::Error), "error"),
            (self.n_begin(Severity::Warning), "warning"),
            (self.n_begin(Severity::Info), "note"),
            (self.judge.trends().len(), "trend"),
        ];
        let counts = counts.into_iter().filter(|(n, _)| *n > 0);
        counts.map(|(n, word)| counted(n, word)).collect()
    }

    /// Why the strip and the curves of a statistic are empty; `None` if records have it.
    pub fn why_without(&self, statistic_idx: usize) -> Option<String> {
        let Some(statistic) = STATISTICS.get(statistic_idx) else {
            return Some("it depends on the selected tokens: no step records it".to_owned());
        };
        let is_known = self.history.column(statistic.id).is_some();
        (!is_known).then(|| format!("{} does not record it", self.history.name))
    }

    /// Requests the statistics of the selected step again, from its files; returns a notice.
    pub fn read_again(&self) -> String {
        let Some(record) = self.record() else {
            return "there is no step yet".to_owned();
        };
        let label = record.label();
        match (&self.steps, &record.path) {
            (Steps::Files(_, again), Some(path)) if record.state != State::Gone => {
                again.ask(path.clone());
                format!("{label} is read again")
            }
            (Steps::Files(..), Some(_)) => {
                format!("{label}: its files were deleted; only its statistics are left")
            }
            (Steps::Files(..), None) if self.history.origin == Origin::Log => {
                "a log is read by itself as it grows".to_owned()
            }
            (Steps::Files(..), None) => format!("{label}: its files now hold another step"),
            (Steps::Bundled(_), _) => {
                "this training is part of the program: there is nothing to read again".to_owned()
            }
        }
    }

    /// The newest checkpoint, once its statistics are there: it is opened automatically, once.
    pub fn newest_to_open(&mut self) -> Option<usize> {
        if self.opens_no_more || !matches!(self.steps, Steps::Files(..)) {
            return None;
        }
        let mut newest_first = self.history.records().iter().enumerate().rev();
        let (idx, record) = newest_first.find(|(_, record)| {
            let cannot = matches!(
                record.state,
                State::Gone | State::Incomplete(_) | State::Failed(_)
            );
            !cannot && record.path.is_some()
        })?;
        let is_read = record.state == State::Done;
        self.opens_no_more = is_read;
        is_read.then_some(idx)
    }

    /// Why no checkpoint of this training can be opened; `None` if some may be.
    pub fn lacks_weights(&self) -> Option<String> {
        let is_log = self.history.origin == Origin::Log && matches!(self.steps, Steps::Files(..));
        is_log.then(|| {
            format!(
                "{} is a monitor's log: it holds statistics and no weights, so nothing can run here. Open a checkpoint, or the directory with all of them.",
                self.history.name
            )
        })
    }

    /// Records that the selected step was requested.
    pub fn asks(&mut self) {
        self.opens_no_more = true;
        self.asked = self.record().map(key_of);
    }

    /// Records that the requested step was opened, or that it failed.
    pub fn answered(&mut self, is_open: bool) {
        if let Some(asked) = self.asked.take().filter(|_| is_open) {
            self.opened = Some(asked);
        }
    }

    /// The record open in the other panels.
    pub fn opened(&self) -> Option<usize> {
        self.position(self.opened.as_ref()?)
    }

    /// Marks the selected step for comparison.
    pub fn mark(&mut self) {
        self.opens_no_more = true;
        self.marked = self.record().map(key_of);
    }

    pub fn unmark(&mut self) {
        self.marked = None;
    }

    /// The record marked for comparison.
    pub fn marked(&self) -> Option<usize> {
        self.position(self.marked.as_ref()?)
    }
}
