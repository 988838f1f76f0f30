//! Tells what is known of a run that is over, and what went wrong.

use std::sync::Arc;
use std::time::Duration;

use attnscope_checks::stats::LayerReport;
use attnscope_checks::{Probes, Thresholds};
use attnscope_compute::error::Error;
use attnscope_prompt::Lost;
use attnscope_run::align::Aligned;
use attnscope_run::{Judgement, Outcome, Recorded, Trace};
use attnscope_spec::Model;

use super::event::{Event, Sink};
use super::run_id::RunId;

/// Why something did not run, in words; `stopped` where a person gave it up.
pub(super) fn reason(error: &Error) -> String {
    match error {
        Error::Cancelled => "stopped".to_owned(),
        other => other.to_string(),
    }
}

/// Tells where an error is that a file changed: whatever failed, there are numbers on screen that are no longer the file's.
pub(super) fn tell_of_change(sink: &Sink, error: &Error) {
    if matches!(error, Error::Changed { .. }) {
        sink(Event::Changed(error.to_string()));
    }
}

/// Tells what every check makes of a run, and of what probes saw where there were some.
pub(super) fn judged(
    sink: &Sink,
    run: RunId,
    model: &Model,
    (layers, outcome, lost): (&[Arc<LayerReport>], &Outcome, Lost),
    probes: Option<Probes>,
    thresholds: &Thresholds,
) {
    let is_probed = probes.is_some();
    let probes = probes.unwrap_or_else(|| attnscope_run::unasked("not run yet: p runs it"));
    let verdicts = attnscope_run::judge_layers(model, layers, outcome, &probes, thresholds, lost);
    let judgement = Arc::new(Judgement { verdicts, probes });
    sink(Event::Judged {
        run,
        judgement,
        is_probed,
    });
}

/// A trace as a run that is over.
pub(super) fn tell_trace(
    sink: &Sink,
    run: RunId,
    recorded: &Recorded,
    trace: &Trace,
    thresholds: &Thresholds,
) {
    for report in &recorded.layers {
        sink(Event::Layer {
            run,
            report: report.clone(),
        });
    }
    sink(Event::Finished {
        run,
        outcome: Arc::default(),
        labels: Arc::default(),
        took: Duration::ZERO,
    });
    let verdicts = attnscope_run::judge_trace(trace, &recorded.layers, thresholds);
    let probes = Probes::none("a trace holds one run");
    sink(Event::Judged {
        run,
        judgement: Arc::new(Judgement { verdicts, probes }),
        is_probed: true,
    });
}

/// An alignment as a run that is over.
pub(super) fn tell_aligned(sink: &Sink, run: RunId, aligned: &Aligned, thresholds: &Thresholds) {
    sink(Event::Layer {
        run,
        report: aligned.layer.clone(),
    });
    sink(Event::Finished {
        run,
        outcome: Arc::default(),
        labels: Arc::default(),
        took: Duration::ZERO,
    });
    let verdicts = aligned.judge(thresholds);
    let probes = Probes::none("there is no model to ask again, only two tables");
    sink(Event::Judged {
        run,
        judgement: Arc::new(Judgement { verdicts, probes }),
        is_probed: true,
    });
}
