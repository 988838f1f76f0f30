//! Runs of a live subject that are on screen before their checks have run.

use std::sync::Arc;
use std::time::Instant;

use attnscope_compute::error::Result;
use attnscope_compute::pace::Pace;
use attnscope_run::{Recorded, Trace, Unaudited, is_shown_otherwise, read_unaudited, renumbered};

use super::event::Event;
use super::lane::lock;
use super::live::judge;
use super::run_id::RunId;
use super::runner::Runner;
use super::told::{reason, tell_of_change};

/// A finished run of which nothing was checked yet.
pub(super) struct Unchecked {
    pub run: RunId,
    pub recorded: Arc<Recorded>,
    /// What was read of its trace; `None` if that is not kept any more.
    pub read: Option<Unaudited>,
}

impl Runner {
    /// Checks the runs on screen that were not checked yet, the newest first. A newer job stops that, and checks what is still on
    /// screen after it.
    pub(super) fn check_shown(&mut self, pace: &dyn Pace) {
        loop {
            let is_shown = |of: &Unchecked| lock(&self.context).of_run(of.run).is_some();
            self.unchecked.retain(is_shown);
            let Some(newest) = self.unchecked.last() else {
                return;
            };
            let (run, begun) = (newest.run, Instant::now());
            match self.audited(newest, pace) {
                Ok(trace) => {
                    self.tell_checked(newest, &trace);
                    log::debug!("run {run}: audits and checks in {:?}", begun.elapsed());
                }
                Err(error) => {
                    tell_of_change(&self.sink, &error);
                    let reason = reason(&error);
                    (self.sink)(Event::Unjudged { run, reason });
                    if pace.stops() {
                        return;
                    }
                }
            }
            self.unchecked.pop();
        }
    }

    fn audited(&self, of: &Unchecked, pace: &dyn Pace) -> Result<Trace> {
        let captured = &of.recorded.captured;
        match &of.read {
            Some(read) => read.audited(captured, pace),
            None => {
                let live = lock(&self.context).live.clone();
                let declared = live.map(|live| live.declared.clone()).unwrap_or_default();
                read_unaudited(captured, &declared)?.audited(captured, pace)
            }
        }
    }

    /// Sends the layers that audits changed, and the verdicts.
    fn tell_checked(&self, of: &Unchecked, trace: &Trace) {
        let run = of.run;
        for (before, after) in of.recorded.layers.iter().zip(renumbered(&trace.layers)) {
            if is_shown_otherwise(before, &after) {
                (self.sink)(Event::Layer { run, report: after });
            }
        }
        let thresholds = &self.terms.thresholds;
        judge((&self.sink, run), &of.recorded, trace, None, thresholds);
    }
}
