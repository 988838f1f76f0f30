//! The training that is open: its history as it arrives, the step that is selected, and how a step is opened.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use attnscope_checkpoint::counted::counted;
use attnscope_checkpoint::{Bundle, Opening};
use attnscope_checks::stats::STATISTICS;
use attnscope_checks::{Severity, Thresholds};
use attnscope_compute::error::Result;
use attnscope_history::{
    Finding, History, Judge, Origin, Record, RereadQueue, Sink, State, Trend, Update, beginning,
    grouped, on_its_way,
};
use attnscope_spec::Place;

/// Reads a training and hands what it finds to a sink, on a thread of its own.
pub type HistoryReader = Box<dyn FnOnce(&mut Sink<'_>) -> Result<()> + Send>;

/// A look at all findings may take this share of the time between two of them while steps still arrive.
const LOOKING: u32 = 20;

/// Steps that are asked whether they have a statistic, the last ones first.
const ASKED: usize = 64;

/// Which step something is of: steps move when others come between them.
type Key = (Option<PathBuf>, Option<u64>);

/// How a step is opened.
#[derive(Debug, Clone)]
pub enum Steps {
    /// By its files, read as a person said; what reads them also reads a step again.
    Files(Box<Opening>, RereadQueue),
    /// Some steps are compiled in.
    Bundled(Vec<(u64, &'static Bundle)>),
}

/// How far reading is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// There is more to read.
    Going,
    /// Everything that is there was read; what comes is read too.
    Watching,
    /// Nothing more will come; why, where that is a fault.
    Over(Option<String>),
}

/// A training on screen.
#[derive(Debug)]
pub struct HistoryView {
    pub history: History,
    pub judge: Judge,
    pub reading: Reading,
    /// Seconds since something new came.
    pub age: Option<u64>,
    /// The selected record.
    pub at: usize,
    /// The line of what begins that was gone to, until another record is selected.
    pub onset: Option<usize>,
    news: Option<Instant>,
    /// When findings were looked for, and how long that took.
    looked: Option<(Instant, Duration)>,
    steps: Steps,
    marked: Option<Key>,
    /// What was asked to be opened, and what was opened last.
    asked: Option<Key>,
    opened: Option<Key>,
    /// Whether a step was opened that nobody asked for, or need not be.
    opens_no_more: bool,
}

/// A line of what begins.
#[derive(Debug)]
pub enum Onset<'a> {
    /// A finding, and other heads of its layer in which it begins at the same step.
    Begins(&'a Finding, Vec<Place>),
    OnItsWay(&'a Trend),
}

impl Onset<'_> {
    /// The record, the cell and the statistic that it is about.
    pub fn at(&self) -> (usize, usize, &'static str) {
        match self {
            Self::Begins(finding, _) => (finding.begin, finding.cell, finding.statistic),
            Self::OnItsWay(trend) => (trend.at, trend.cell, trend.statistic),
        }
    }

    /// In one line.
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
    /// The same, judged by other thresholds than the defaults.
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

    /// A training that is known as a whole.
    pub fn whole(history: History, judge: Judge, steps: Steps) -> Self {
        Self {
            judge,
            reading: Reading::Over(None),
            ..Self::new(history, steps)
        }
    }

    /// Says which step is open already.
    pub fn is_opened_at(&mut self, step: u64) {
        let mut records = self.history.records().iter();
        let found = records.position(|record| record.step == Some(step));
        if let Some(idx) = found {
            self.opened = Some(key_of(&self.history.records()[idx]));
            self.opens_no_more = true;
            self.at = idx;
        }
    }

    /// Takes what was read since, and looks for what begins where that does not take long.
    pub fn take(&mut self, updates: Vec<Update>, now: Instant) {
        let was_last = self.at + 1 >= self.history.records().len();
        let here = self.record().map(key_of);
        let n_before = self.history.records().len();
        let (mut is_news, mut is_caught_up) = (false, false);
        let mut is_renumbered = false;
        for update in updates {
            is_caught_up |= matches!(update, Update::CaughtUp);
            is_news |= !matches!(update, Update::CaughtUp | Update::Found(_));
            // Steps come between others, or go: what begins is told by their numbers.
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

    /// Nothing more will come.
    pub fn end(&mut self, outcome: Result<()>) {
        self.judge.look(&self.history);
        self.reading = Reading::Over(outcome.err().map(|e| e.to_string()));
    }

    /// Steps that are there and not read yet.
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
        // Statistics of tokens are none of heads.
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

    /// How the selected step is opened.
    ///
    /// # Errors
    /// When it cannot be: why, in one line.
    pub fn opening(&self) -> std::result::Result<Opening, String> {
        let Some(record) = self.record() else {
            return Err("there is no step yet".to_owned());
        };
        let label = record.label();
        match (&record.state, &record.path, &self.steps) {
            (State::Gone, ..) => Err(format!(
                "{label}: its files were deleted; its statistics are all there is"
            )),
            (State::Incomplete(why), ..) => Err(format!("{label} is still being written: {why}")),
            (_, Some(path), Steps::Files(usual, _)) => Ok(Opening {
                path: Some(path.clone()),
                ..(**usual).clone()
            }),
            (_, _, Steps::Bundled(bundles)) => {
                let own = bundles.iter().find(|(step, _)| Some(*step) == record.step);
                let steps: Vec<String> = bundles.iter().map(|(step, _)| step.to_string()).collect();
                let Some((_, bundle)) = own else {
                    return Err(format!(
                        "of {label} there are statistics alone; checkpoints are there of steps {}",
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
                Origin::Checkpoints => format!("{label}: its files hold another step now"),
            }),
        }
    }

    /// What begins, the worst and earliest first, then what is on its way.
    pub fn onsets(&self) -> Vec<Onset<'_>> {
        let mut groups = grouped(self.judge.findings());
        groups.sort_by_key(|(finding, _)| (std::cmp::Reverse(finding.severity), finding.begin));
        let begins = groups.into_iter();
        let begins = begins.map(|(finding, others)| Onset::Begins(finding, others));
        let trends = self.judge.trends().iter().map(Onset::OnItsWay);
        begins.chain(trends).collect()
    }

    /// How many lines of what begins are of a severity: what every count of them counts.
    pub fn n_begin(&self, severity: Severity) -> usize {
        let groups = grouped(self.judge.findings());
        let of = groups
            .iter()
            .filter(|(finding, _)| finding.severity == severity);
        of.count()
    }

    /// What begins, by how bad it is, and what is on its way; empty where nothing is.
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

    /// Why the strip and the curves of a statistic are empty; `None` where records have it.
    pub fn why_without(&self, statistic_idx: usize) -> Option<String> {
        let Some(statistic) = STATISTICS.get(statistic_idx) else {
            return Some("it depends on the selected tokens: no step records it".to_owned());
        };
        let is_known = self.history.column(statistic.id).is_some();
        (!is_known).then(|| format!("{} does not record it", self.history.name))
    }

    /// Asks for the statistics of the selected step once more, from its files: what is said of it.
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
                format!("{label}: its files were deleted; its statistics are all there is")
            }
            (Steps::Files(..), None) if self.history.origin == Origin::Log => {
                "a log is read by itself as it grows".to_owned()
            }
            (Steps::Files(..), None) => format!("{label}: its files hold another step now"),
            (Steps::Bundled(_), _) => "this training is recorded: nothing in it changes".to_owned(),
        }
    }

    /// The newest checkpoint, once its statistics are there: it is opened without being asked for, once.
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

    /// Why no checkpoint of this training can be opened; `None` where some may be.
    pub fn lacks_weights(&self) -> Option<String> {
        let is_log = self.history.origin == Origin::Log && matches!(self.steps, Steps::Files(..));
        is_log.then(|| {
            format!(
                "{} is a monitor's log: it holds statistics and no weights, so nothing can run here. Open a checkpoint, or the directory with all of them.",
                self.history.name
            )
        })
    }

    /// The selected step was asked to be opened.
    pub fn asks(&mut self) {
        self.opens_no_more = true;
        self.asked = self.record().map(key_of);
    }

    /// What was asked is open, or could not be.
    pub fn answered(&mut self, is_open: bool) {
        if let Some(asked) = self.asked.take().filter(|_| is_open) {
            self.opened = Some(asked);
        }
    }

    /// The record that is open in the other panels.
    pub fn opened(&self) -> Option<usize> {
        self.position(self.opened.as_ref()?)
    }

    /// Marks the selected step for comparing.
    pub fn mark(&mut self) {
        self.opens_no_more = true;
        self.marked = self.record().map(key_of);
    }

    pub fn unmark(&mut self) {
        self.marked = None;
    }

    /// The record that is marked for comparing.
    pub fn marked(&self) -> Option<usize> {
        self.position(self.marked.as_ref()?)
    }
}
