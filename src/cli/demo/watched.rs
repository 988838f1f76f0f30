//! The wrong axis as the monitor of a training sees it begin: two logs that differ in it, judged as `attnscope watch` does.

use anyhow::{Context, Result};
use attnscope_checks::Thresholds;
use attnscope_history::{Finding, History, Judge, beginning, of_text};
use attnscope_report::chart::{Axis, Chart, Mark, Series};
use attnscope_report::{Page, Picture};

use crate::bundles::{WATCHED_LOG, WATCHED_TWIN_LOG};

/// The page about both logs.
///
/// # Errors
/// Never for a program that was built from a complete source tree.
pub fn page() -> Result<Page> {
    let (history, findings) = judged("run", WATCHED_LOG)?;
    let (twin, found_in_twin) = judged("healthy_run", WATCHED_TWIN_LOG)?;
    let first = findings
        .first()
        .context("the log of the demo has a finding")?;
    let begin = history.records()[first.begin].step.unwrap_or(0);
    let last = |losses: &[(f64, f64)]| losses.last().map_or(f64::NAN, |(_, loss)| *loss);
    let (own, other) = (losses(&history), losses(&twin));
    let below = own.iter().zip(&other).rev();
    let below = below.take_while(|((_, own), (_, other))| own < other);
    let below = below.last().map_or(f64::NAN, |((step, _), _)| *step);
    Ok(Page {
        title: "as the monitor saw it begin",
        words: format!(
            "Another small decoder, trained with attnscope.Monitor attached: at step {begin} its softmax was moved to queries. The loss rises \
             first, is below that of its twin from step {below} on, and ends at {:.2} where the twin ends at {:.2}. The log says what \
             happened in the record of that step: {}. The next record confirms it, and `attnscope watch run.jsonl --fail-on error` ends the \
             job, {} steps before the loss is too good. In the twin: {}.",
            last(&own),
            last(&other),
            beginning(&history, first, &[]),
            below - begin as f64,
            match found_in_twin.len() {
                0 => "no findings".to_owned(),
                n => format!("{n} findings"),
            },
        ),
        picture: Picture::Charts(vec![Chart {
            title: "loss of the training batches".to_owned(),
            x: Axis::linear("step"),
            y: Axis::linear("nats per token").from(0.0),
            series: vec![
                Series::line("softmax over queries from the mark on", own),
                Series::line("twin, over keys", other),
            ],
            marks: vec![Mark {
                at: begin as f64,
                label: first.check.to_owned(),
            }],
        }]),
    })
}

fn judged(name: &str, log: &str) -> Result<(History, Vec<Finding>)> {
    let history = of_text(name, log)?;
    let mut judge = Judge::new(Thresholds::default());
    judge.look(&history);
    let findings = judge.findings().to_vec();
    Ok((history, findings))
}

/// Step and loss of each record.
fn losses(history: &History) -> Vec<(f64, f64)> {
    let records = history.records().iter();
    let points = records.filter_map(|record| Some((record.step? as f64, record.loss()?)));
    points.collect()
}
