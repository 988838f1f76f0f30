//! Sends the results of finished runs, and errors.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use attnscope_checks::stats::LayerReport;
use attnscope_checks::{Probes, Thresholds};
use attnscope_compute::error::Error;
use attnscope_prompt::TokenizerLoss;
use attnscope_run::align::Aligned;
use attnscope_run::{Judgement, Outcome, Recorded, Trace};
use attnscope_spec::Model;

use super::event::{Event, Sink};
use super::run_id::RunId;

/// Describes why something did not run; `stopped` if the user cancelled it.
pub(super) fn reason(error: &Error) -> String {
    match error {
        Error::Cancelled => "stopped".to_owned(),
        other => other.to_string(),
    }
}

/// Sends an event if the error is a changed file, since numbers on screen no longer match the file.
pub(super) fn tell_of_change(sink: &Sink, error: &Error) {
    if matches!(error, Error::Changed { .. }) {
        sink(Event::Changed(error.to_string()));
    }
}

/// Sends the verdicts of all checks on a run and, if there are any, on probe results.
pub(super) fn judged(
    sink: &Sink,
    run: RunId,
    model: &Model,
    (layers, outcome, lost): (&[Arc<LayerReport>], &Outcome, TokenizerLoss),
    probes: Option<Probes>,
    thresholds: &Thresholds,
) {
    let is_probed = probes.is_some();
    let probes = probes.unwrap_or_else(|| attnscope_run::unasked("p tests it"));
    let verdicts = attnscope_run::judge_layers(model, layers, outcome, &probes, thresholds, lost);
    let judgement = Arc::new(Judgement { verdicts, probes });
    sink(Event::Judged {
        run,
        judgement,
        is_probed,
    });
}

/// Sends a trace as a finished run.
pub(super) fn tell_trace(
    sink: &Sink,
    run: RunId,
    recorded: &Recorded,
    trace: &Trace,
    thresholds: &Thresholds,
) {
    tell_recorded(sink, run, recorded, (Duration::ZERO, &BTreeMap::new()));
    let verdicts = attnscope_run::judge_trace(trace, &recorded.layers, thresholds);
    let probes = Probes::none("a trace holds one run");
    sink(Event::Judged {
        run,
        judgement: Arc::new(Judgement { verdicts, probes }),
        is_probed: true,
    });
}

/// Sends the layers of a recorded run, and that it is finished; `labels` has texts of predicted ids.
pub(super) fn tell_recorded(
    sink: &Sink,
    run: RunId,
    recorded: &Recorded,
    (took, labels): (Duration, &BTreeMap<u32, String>),
) {
    for report in &recorded.layers {
        sink(Event::Layer {
            run,
            report: report.clone(),
        });
    }
    sink(Event::Finished {
        run,
        outcome: Arc::new(recorded.outcome.clone()),
        labels: Arc::new(labels.clone()),
        took,
    });
}

/// Sends an alignment as a finished run.
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
