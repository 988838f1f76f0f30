//! One unit of a batch: an open checkpoint on some prompts.

use std::path::Path;

use anyhow::{Result, bail};
use attnscope_checkpoint::caught::caught;
use attnscope_compute::attention::POOLED_CELLS;
use attnscope_forward::Input;
use attnscope_history::batch::Findings;
use attnscope_report::record::{Source, Table, step_of};
use attnscope_report::{FindingRecord, ModelRecord, PromptRecord, Shown, judge_run};
use attnscope_run::Options;
use attnscope_spec::Model;

use super::prompts::PromptSet;
use super::session::{Opened, Ran, Session};
use super::settings;

const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: true,
};

/// Memory for data of each prompt that is kept until the checks have run.
const HELD_BYTES: usize = 512 << 20;

/// Result of a unit that ran to its end.
pub struct RanUnit {
    /// The rows, in the order of the table.
    pub rows: Table,
    pub findings: Vec<FindingRecord>,
    /// Location of the first NaN or infinity.
    pub nonfinite: Option<String>,
}

/// Runs prompts through an open target.
///
/// # Errors
/// When it cannot run a prompt, memory is short, time is up, or a file changed during the run.
pub fn run(
    session: &Session<'_>,
    opened: &mut Opened,
    target: &Path,
    prompts: &PromptSet,
) -> Result<RanUnit> {
    match caught(|| ran(session, opened, target, prompts)) {
        Ok(ran) => ran,
        Err(said) => bail!("a fault of this program: {said}"),
    }
}

fn ran(
    session: &Session<'_>,
    opened: &mut Opened,
    target: &Path,
    prompts: &PromptSet,
) -> Result<RanUnit> {
    session.give(opened, prompts)?;
    let held = opened.longest();
    let held = held
        .iter()
        .map(|input| held_until_judged(&opened.model, input));
    let largest = held.max().unwrap_or(0).max(1);
    let n_at_once = (HELD_BYTES / largest).clamp(1, opened.named.len().max(1));
    session.ready(opened, OPTIONS, largest * n_at_once)?;
    let model = &opened.model;
    let thresholds = settings::thresholds(None)?;
    let mut findings = Findings::default();
    let mut records: Vec<PromptRecord> = Vec::new();
    for chunk in opened.named.chunks(n_at_once) {
        for Ran {
            record,
            outcome,
            layers,
        } in session.run(model, chunk, OPTIONS, true)?
        {
            for (_, verdict) in judge_run(model, &layers, &outcome, &thresholds) {
                for finding in &verdict.findings {
                    findings.add_on(&record.id, FindingRecord::of(finding));
                }
            }
            records.push(record);
        }
    }
    model.checkpoint.unchanged()?;
    let nonfinite = records.iter().find_map(|record| {
        let found = record.first_nonfinite.as_ref()?;
        Some(format!("prompt {}: {found}", record.id))
    });
    let about = ModelRecord::of(model);
    let source = Source {
        step: step_of(target, &about.name),
        model: &about,
        prompts: &records,
    };
    Ok(RanUnit {
        rows: Table::of(&[source], session.what_ifs()),
        findings: findings.into_vec(),
        nonfinite,
    })
}

/// Returns the bytes that a prompt holds until it is judged: row summaries, and a map of each head.
fn held_until_judged(model: &Model, input: &Input) -> usize {
    let spec = &model.spec;
    let source = input.source.as_ref().map_or(0, |source| source.len());
    let cells = input.sequence.len().max(source).min(POOLED_CELLS).pow(2);
    let grids = spec.grids().into_iter().map(|grid| {
        let layers = 0..spec.n_layers(grid);
        layers
            .map(|layer_idx| spec.n_heads(grid, layer_idx))
            .sum::<usize>()
    });
    Shown::bytes_until_judged(model, input) + grids.sum::<usize>() * cells * size_of::<f32>()
}
