//! What commands say on standard error: notes that a person must see, once each, and how far the work is.
//!
//! How far the work is is one line on a terminal. It appears once a command has worked for a second, is rewritten as the work goes
//! on, and is gone when the work ends. Where standard error is no terminal there is no such line.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_report::one_line;
use attnscope_run::{Options, Progress, Step, work_of};
use attnscope_spec::Model;
use indicatif::{ProgressBar, ProgressStyle};

/// Work that is over sooner is not spoken of.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between two looks of the line.
const REDRAWN_EVERY: Duration = Duration::from_millis(100);

/// Parts of the bar.
const WHOLE: u64 = 1000;

/// Whether a person asked for errors alone.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Notes that were told.
static NOTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// When the command began.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Milliseconds after the beginning at which the line is drawn next.
static DUE: AtomicU64 = AtomicU64::new(PATIENCE.as_millis() as u64);

static LINE: Mutex<Line> = Mutex::new(Line {
    tasks: Vec::new(),
    bar: None,
});

/// Work that is under way, the whole first, then the part of it that is being done, and so on.
struct Line {
    tasks: Vec<Arc<State>>,
    /// There once the line was drawn.
    bar: Option<ProgressBar>,
}

/// How far one task is.
#[derive(Default)]
struct State {
    what: Mutex<String>,
    n_done: AtomicU64,
    n: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A piece of work whose progress is shown until it is dropped. One that begins while another is under way is a part of it.
pub struct Task(Option<Arc<State>>);

impl Task {
    /// Begins work of `n` parts; 0 where nobody knows how many.
    pub fn begin(what: &str, n: u64) -> Self {
        let is_shown = stderr().is_terminal() && !is_quiet();
        let state = is_shown.then(|| {
            let state = Arc::new(State {
                what: Mutex::new(what.to_owned()),
                n_done: AtomicU64::new(0),
                n: AtomicU64::new(n),
            });
            lock(&LINE).tasks.push(Arc::clone(&state));
            if !what.is_empty() {
                draw_if_due();
            }
            state
        });
        Self(state)
    }

    /// Says what is being done now.
    pub fn say(&self, what: &str) {
        if let Some(state) = &self.0 {
            what.clone_into(&mut lock(&state.what));
            draw_if_due();
        }
    }

    /// Says how much is done.
    pub fn at(&self, n_done: usize, n: usize) {
        if let Some(state) = &self.0 {
            state.n_done.store(n_done as u64, Ordering::Relaxed);
            state.n.store(n as u64, Ordering::Relaxed);
            draw_if_due();
        }
    }

    /// Says that more is done.
    pub fn add(&self, n: u64) {
        if let Some(state) = &self.0 {
            state.n_done.fetch_add(n, Ordering::Relaxed);
            draw_if_due();
        }
    }

    /// Says at which step a judgement is.
    pub fn step(&self, step: &Step) {
        if self.0.is_some() {
            self.say(&step.what);
            self.at(step.n_done, step.n);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(state) = &self.0 {
            let mut line = lock(&LINE);
            line.tasks.retain(|known| !Arc::ptr_eq(known, state));
            if line.tasks.is_empty() {
                // What comes next may be the result, on the same terminal.
                line.clear();
            }
        }
    }
}

/// Draws the line if the command has worked for long enough, and it was not drawn a moment ago.
fn draw_if_due() {
    let passed = BEGUN.elapsed();
    let now = passed.as_millis() as u64;
    if now < DUE.load(Ordering::Relaxed) {
        return;
    }
    let mut line = lock(&LINE);
    DUE.store(now + REDRAWN_EVERY.as_millis() as u64, Ordering::Relaxed);
    line.draw(passed);
}

impl Line {
    fn draw(&mut self, passed: Duration) {
        let (what, share) = (self.what(), self.share());
        let bar = self
            .bar
            .get_or_insert_with(|| ProgressBar::new(WHOLE).with_elapsed(passed));
        let template = match share {
            Some(_) => "{wide_msg} [{bar:20}] {percent:>3} % {elapsed}",
            None => "{wide_msg} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(one_line(&what).into_owned());
        bar.set_position((share.unwrap_or(0.0) * WHOLE as f64) as u64);
        bar.tick();
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn what(&self) -> String {
        let said = self.tasks.iter().map(|state| lock(&state.what).clone());
        let said: Vec<String> = said.filter(|what| !what.is_empty()).collect();
        said.join(" · ")
    }

    /// What share of the whole is done; `None` where the whole has no known size.
    fn share(&self) -> Option<f64> {
        let parts = self.tasks.iter().map(|state| {
            let n = state.n.load(Ordering::Relaxed);
            (state.n_done.load(Ordering::Relaxed), n)
        });
        share_of(parts.collect())
    }
}

/// What share is done of tasks of which each but the first is a part of the one before it.
fn share_of(parts: Vec<(u64, u64)>) -> Option<f64> {
    let known = parts.into_iter().filter(|(_, n)| *n > 0);
    let known: Vec<(u64, u64)> = known.collect();
    let share = known.iter().rev().fold(0.0, |inner: f64, (n_done, n)| {
        ((*n_done as f64 + inner) / *n as f64).min(1.0)
    });
    (!known.is_empty()).then_some(share)
}

/// How far a run is, by the arithmetic that is done.
pub struct Meter {
    task: Task,
    n_layers: usize,
    until: Option<Instant>,
}

impl Pace for Meter {
    fn stops(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    fn did(&self, multiply_adds: u64) {
        self.task.add(multiply_adds);
    }
}

impl Meter {
    pub fn of(model: &Model, inputs: &[Input], options: Options) -> Self {
        Self {
            task: Task::begin("", work_of(model, inputs, options)),
            n_layers: model.spec.n_layers_to_run(),
            until: None,
        }
    }

    /// Stops the run when its time is over.
    pub fn until(self, until: Option<Instant>) -> Self {
        Self { until, ..self }
    }

    pub fn show(&self, progress: Progress) {
        match progress {
            Progress::Embedding => self.task.say("embedding"),
            Progress::Layer {
                stack,
                layer_idx,
                n_done,
            } => {
                let of = self.n_layers;
                let stack = stack
                    .label()
                    .map_or(String::new(), |label| format!("{label} "));
                self.task
                    .say(&format!("{stack}layer {layer_idx} ({n_done} of {of} done)"));
            }
            Progress::Predictions => self.task.say("predictions"),
        }
    }
}

/// The file that is being fetched.
#[cfg(any(feature = "hub", feature = "s3"))]
static FETCHING: Mutex<Option<(String, Task)>> = Mutex::new(None);

/// Shows how far a file of the hub or of an object store has come.
#[cfg(any(feature = "hub", feature = "s3"))]
pub fn fetched(fetched: attnscope_system::fetch::Fetched<'_>) {
    let mut fetching = lock(&FETCHING);
    let is_known = fetching
        .as_ref()
        .is_some_and(|(file, _)| file == fetched.file);
    if !is_known {
        // The one before has ended first.
        drop(fetching.take());
        let task = Task::begin(&format!("fetching {}", fetched.file), 0);
        *fetching = Some((fetched.file.to_owned(), task));
    }
    if let Some((_, task)) = fetching.as_ref() {
        task.at(
            fetched.n_bytes as usize,
            fetched.n_all.unwrap_or(0) as usize,
        );
    }
    if fetched.n_all == Some(fetched.n_bytes) {
        fetching.take();
    }
}

/// Notes when the command began, from where the second is counted after which progress is shown.
pub fn begin() {
    LazyLock::force(&BEGUN);
}

/// Tells that something failed, in the form in which the program tells why it ends.
pub fn failed(reason: &str) {
    say(&format!("attnscope: {reason}"));
}

/// Tells what a person must know of the result, once: checkpoints of a training are read alike.
pub fn note(line: &str) {
    if !is_quiet() && lock(&NOTED).insert(line.to_owned()) {
        say(line);
    }
}

/// Tells what has happened to something that is watched, each time that it does.
pub fn happened(line: &str) {
    if !is_quiet() {
        say(line);
    }
}

/// Lets only errors be told from here on: for `--quiet`.
pub fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// One line to standard error. A reader that has gone away does not matter.
fn say(line: &str) {
    let write = || {
        // Names of files and tensors are in it.
        let _ = writeln!(stderr(), "{}", one_line(line));
    };
    match &lock(&LINE).bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

#[cfg(test)]
mod tests {
    use super::share_of;

    #[test]
    fn a_part_counts_within_the_whole() {
        assert_eq!(share_of(vec![]), None);
        assert_eq!(share_of(vec![(0, 0)]), None);
        assert_eq!(share_of(vec![(1, 4)]), Some(0.25));
        // The second of four, half done.
        assert_eq!(share_of(vec![(1, 4), (5, 10)]), Some(0.375));
        // A part whose size nobody knows adds nothing, and one that does more than it said is whole.
        assert_eq!(share_of(vec![(1, 4), (7, 0)]), Some(0.25));
        assert_eq!(share_of(vec![(1, 4), (12, 10)]), Some(0.5));
        assert_eq!(share_of(vec![(4, 4), (1, 2)]), Some(1.0));
    }
}
