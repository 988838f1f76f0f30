//! Progress of a batch run on standard error: a bar on a terminal, plain lines elsewhere.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::one_line;
use attnscope_engine::analysis::{Options, Progress, Step, work_of};
use attnscope_engine::model::{Input, Model};
use attnscope_engine::pace::Pace;

static IS_QUIET: AtomicBool = AtomicBool::new(false);
/// Whether a person asked for errors alone.
static IS_ASKED_QUIET: AtomicBool = AtomicBool::new(false);
/// Remarks that were told.
static REMARKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Shows how far a run is: a bar of the arithmetic that is done.
pub struct Meter {
    bar: Option<ProgressBar>,
    n_layers: usize,
    until: Option<Instant>,
}

impl Pace for Meter {
    fn stops(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    fn did(&self, multiply_adds: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(multiply_adds);
        }
    }
}

impl Meter {
    pub fn of(model: &Model, inputs: &[Input], options: Options) -> Self {
        let n_layers = model.spec.n_layers_to_run();
        let bar = shows_bars().then(|| {
            let bar = ProgressBar::new(work_of(model, inputs, options));
            if let Ok(style) =
                ProgressStyle::with_template("{msg:>30} [{bar:30}] {percent:>3} % {elapsed}")
            {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            n_layers,
            until: None,
        }
    }

    /// Stops the run when its time is over.
    pub fn until(self, until: Option<Instant>) -> Self {
        Self { until, ..self }
    }

    pub fn show(&self, progress: Progress) {
        let message = match progress {
            Progress::Embedding => "embedding".to_owned(),
            Progress::Layer {
                stack,
                layer_idx,
                n_done,
            } => {
                let of = self.n_layers;
                let stack = stack
                    .label()
                    .map_or(String::new(), |label| format!("{label} "));
                format!("{stack}layer {layer_idx} ({n_done} of {of} done)")
            }
            Progress::Predictions => "predictions".to_owned(),
        };
        match &self.bar {
            Some(bar) => {
                bar.set_message(message);
            }
            None => note(&message),
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Shows how far a decoder is that writes its own target.
pub struct WritingMeter(Option<ProgressBar>);

impl WritingMeter {
    pub fn of(prompt_id: &str, n_most: usize) -> Self {
        let what = format!("{prompt_id}: no target given, writing one of up to {n_most} tokens");
        if !shows_bars() {
            note(&what);
            return Self(None);
        }
        let bar = ProgressBar::new(n_most as u64);
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(one_line(&what).into_owned());
        Self(Some(bar))
    }

    pub fn wrote_one(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Shows what share of a run is done, where somebody looks.
pub struct RunMeter(Option<ProgressBar>);

impl RunMeter {
    pub fn new() -> Self {
        const STEPS: u64 = 1000;
        let bar = shows_bars().then(|| {
            let bar = ProgressBar::new(STEPS);
            if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {percent:>3} % {elapsed}") {
                bar.set_style(style);
            }
            bar
        });
        Self(bar)
    }

    pub fn show(&self, share: f32) {
        if let Some(bar) = &self.0 {
            let n = bar.length().unwrap_or_default();
            bar.set_position((share * n as f32) as u64);
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// Shows what a judgement is doing.
pub struct StepMeter(Option<ProgressBar>, std::cell::RefCell<String>);

impl StepMeter {
    pub fn new() -> Self {
        let bar = shows_bars().then(|| {
            let bar = ProgressBar::new(1);
            if let Ok(style) =
                ProgressStyle::with_template("{msg:>30} [{bar:30}] {pos}/{len} {elapsed}")
            {
                bar.set_style(style);
            }
            bar
        });
        Self(bar, std::cell::RefCell::default())
    }

    pub fn show(&self, step: &Step) {
        if let Some(bar) = &self.0 {
            bar.set_length(step.n as u64);
            bar.set_position(step.n_done as u64);
            bar.set_message(step.what.clone());
        } else if *self.1.borrow() != step.what {
            note(&step.what);
            self.1.borrow_mut().clone_from(&step.what);
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// The file that is being fetched, and its bar.
#[cfg(feature = "hub")]
static FETCHING: Mutex<Option<(String, Option<ProgressBar>)>> = Mutex::new(None);

/// Shows how far a file of the hub has come: a bar on a terminal, a line for each file elsewhere.
#[cfg(any(feature = "hub", feature = "s3"))]
pub fn fetched(fetched: crate::fetch::Fetched<'_>) {
    if is_quiet() {
        return;
    }
    let mut fetching = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
    let is_known = fetching
        .as_ref()
        .is_some_and(|(file, _)| file == fetched.file);
    if !is_known {
        let bar = shows_bars().then(|| {
            let bar = ProgressBar::new(fetched.n_all.unwrap_or(0));
            let template = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(one_line(fetched.file).into_owned());
            bar
        });
        if bar.is_none() {
            say(&format!("fetching {}", fetched.file));
        }
        *fetching = Some((fetched.file.to_owned(), bar));
    }
    if let Some((_, Some(bar))) = fetching.as_ref() {
        bar.set_position(fetched.n_bytes);
        if fetched.n_all == Some(fetched.n_bytes) {
            bar.finish_and_clear();
        }
    }
}

/// Tells that one of several targets failed, in the form in which the program tells why it ends.
pub fn failed(reason: &str) {
    say(&format!("attnscope: {reason}"));
}

/// One line to standard error. A reader that has gone away does not matter.
pub fn note(line: &str) {
    if !is_quiet() {
        say(line);
    }
}

/// One line to standard error that a command without bars tells its progress by: also after [`be_quiet`], which such a command
/// calls so that single runs stay silent.
pub fn tell(line: &str) {
    say(line);
}

/// One line to standard error of how a checkpoint is read, told once: the checkpoints of a training are read alike.
pub fn remark(line: &str) {
    let mut told = REMARKED.lock().unwrap_or_else(PoisonError::into_inner);
    if !IS_ASKED_QUIET.load(Ordering::Relaxed) && told.insert(line.to_owned()) {
        say(line);
    }
}

/// Lets neither notes nor progress of single runs be told from here on.
pub fn be_quiet() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Lets only errors be told from here on: for `--quiet`.
pub fn ask_quiet() {
    IS_ASKED_QUIET.store(true, Ordering::Relaxed);
    be_quiet();
}

fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Whether bars are shown.
fn shows_bars() -> bool {
    stderr().is_terminal() && !is_quiet()
}

fn say(line: &str) {
    // Names of files and tensors are in it.
    let _ = writeln!(stderr(), "{}", one_line(line));
}
