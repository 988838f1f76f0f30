//! Messages of commands on standard error: notes for the user, printed once each, and progress.
//!
//! Progress is one line on a terminal. It appears once a command has worked for a second, is redrawn during the work, and
//! disappears at the end. There is no such line if standard error is not a terminal.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_report::{one_line, time_left};
use attnscope_run::{Options, Progress, Step, work_of};
use attnscope_spec::Model;
use indicatif::{ProgressBar, ProgressStyle};

/// Shortest work for which progress is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two redraws of the line.
const REDRAWN_EVERY: Duration = Duration::from_millis(100);

/// Steps of the progress bar.
const WHOLE: u64 = 1000;

/// Whether only errors are printed.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Notes already printed.
static NOTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Start of the command.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Time of the next redraw, in milliseconds after the start.
static DUE: AtomicU64 = AtomicU64::new(PATIENCE.as_millis() as u64);

static LINE: Mutex<Line> = Mutex::new(Line {
    tasks: Vec::new(),
    bar: None,
});

/// Nested tasks: the whole first, then the current part of it, and so on.
struct Line {
    tasks: Vec<Arc<State>>,
    /// The bar, once it was drawn.
    bar: Option<ProgressBar>,
}

/// Progress of one task.
#[derive(Default)]
struct State {
    what: Mutex<String>,
    n_done: AtomicU64,
    n: AtomicU64,
    /// When it began, of a task whose parts are equal amounts of work.
    timed_from: Option<Instant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A task whose progress is shown until it is dropped. A task begun during another one is part of it.
pub struct Task(Option<Arc<State>>);

impl Task {
    /// Begins a task of `n` parts; 0 if the number is unknown.
    pub fn begin(what: &str, n: u64) -> Self {
        Self::begin_timed(what, n, None)
    }

    fn begin_timed(what: &str, n: u64, timed_from: Option<Instant>) -> Self {
        let is_shown = stderr().is_terminal() && !is_quiet();
        let state = is_shown.then(|| {
            let state = Arc::new(State {
                what: Mutex::new(what.to_owned()),
                n_done: AtomicU64::new(0),
                n: AtomicU64::new(n),
                timed_from,
            });
            lock(&LINE).tasks.push(Arc::clone(&state));
            if !what.is_empty() {
                draw_if_due();
            }
            state
        });
        Self(state)
    }

    /// Sets the description of the current work.
    pub fn say(&self, what: &str) {
        if let Some(state) = &self.0 {
            what.clone_into(&mut lock(&state.what));
            draw_if_due();
        }
    }

    /// Sets how much is done.
    pub fn at(&self, n_done: usize, n: usize) {
        if let Some(state) = &self.0 {
            state.n_done.store(n_done as u64, Ordering::Relaxed);
            state.n.store(n as u64, Ordering::Relaxed);
            draw_if_due();
        }
    }

    /// Adds to how much is done.
    pub fn add(&self, n: u64) {
        if let Some(state) = &self.0 {
            state.n_done.fetch_add(n, Ordering::Relaxed);
            draw_if_due();
        }
    }

    /// Shows the current step of a judgement.
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
                // The result may follow on the same terminal.
                line.clear();
            }
        }
    }
}

/// Draws the line if the command has worked long enough and the last redraw was not just now.
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
        let left = self.left();
        let bar = self
            .bar
            .get_or_insert_with(|| ProgressBar::new(WHOLE).with_elapsed(passed));
        let template = match share {
            Some(_) if left.is_some() => {
                "{wide_msg} [{bar:20}] {percent:>3} % {elapsed} · {prefix}"
            }
            Some(_) => "{wide_msg} [{bar:20}] {percent:>3} % {elapsed}",
            None => "{wide_msg} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(left.unwrap_or_default());
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

    /// Returns how long the work goes on, if one task that is measured by its arithmetic is the whole of it.
    fn left(&self) -> Option<String> {
        let mut sized = self
            .tasks
            .iter()
            .filter(|task| task.n.load(Ordering::Relaxed) > 0);
        let (task, None) = (sized.next()?, sized.next()) else {
            return None;
        };
        time_left(task.timed_from?.elapsed(), self.share()?)
    }

    /// Returns the finished share of the whole; `None` if its size is unknown.
    fn share(&self) -> Option<f64> {
        let parts = self.tasks.iter().map(|state| {
            let n = state.n.load(Ordering::Relaxed);
            (state.n_done.load(Ordering::Relaxed), n)
        });
        share_of(parts.collect())
    }
}

/// Returns the finished share of nested tasks, each a part of the one before.
fn share_of(parts: Vec<(u64, u64)>) -> Option<f64> {
    let known = parts.into_iter().filter(|(_, n)| *n > 0);
    let known: Vec<(u64, u64)> = known.collect();
    let share = known.iter().rev().fold(0.0, |inner: f64, (n_done, n)| {
        ((*n_done as f64 + inner) / *n as f64).min(1.0)
    });
    (!known.is_empty()).then_some(share)
}

/// Measures the progress of a run by its arithmetic operations.
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
            task: Task::begin_timed("", work_of(model, inputs, options), Some(Instant::now())),
            n_layers: model.spec.n_layers_to_run(),
            until: None,
        }
    }

    /// Stops the run at a time limit.
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

/// The file being downloaded.
#[cfg(feature = "hub")]
static FETCHING: Mutex<Option<(String, Task)>> = Mutex::new(None);

/// Shows the progress of a download from the hub.
#[cfg(feature = "hub")]
pub fn fetched(fetched: attnscope_system::fetch::Fetched<'_>) {
    let mut fetching = lock(&FETCHING);
    let is_known = fetching
        .as_ref()
        .is_some_and(|(file, _)| file == fetched.file);
    if !is_known {
        // End the previous download's task first.
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

/// Records the start of the command, for the delay before progress is shown.
pub fn begin() {
    LazyLock::force(&BEGUN);
}

/// Prints an error in the same form as the one that ends the program.
pub fn failed(reason: &str) {
    say(&format!("attnscope: {reason}"));
}

/// Prints a note about the result, once: all checkpoints of a training give the same notes.
pub fn note(line: &str) {
    if !is_quiet() && lock(&NOTED).insert(line.to_owned()) {
        say(line);
    }
}

/// Prints an event in something that is watched, each time.
pub fn happened(line: &str) {
    if !is_quiet() {
        say(line);
    }
}

/// Prints only errors from here on: for `--quiet`.
pub fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Prints one line to standard error. A closed pipe is ignored.
fn say(line: &str) {
    let write = || {
        // The line may contain names from files.
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
    fn a_part_counts_as_a_share_of_the_whole() {
        assert_eq!(share_of(vec![]), None);
        assert_eq!(share_of(vec![(0, 0)]), None);
        assert_eq!(share_of(vec![(1, 4)]), Some(0.25));
        // In the second of four parts, half done.
        assert_eq!(share_of(vec![(1, 4), (5, 10)]), Some(0.375));
        // A part of unknown size adds nothing; one that exceeds its size counts as complete.
        assert_eq!(share_of(vec![(1, 4), (7, 0)]), Some(0.25));
        assert_eq!(share_of(vec![(1, 4), (12, 10)]), Some(0.5));
        assert_eq!(share_of(vec![(4, 4), (1, 2)]), Some(1.0));
    }
}
