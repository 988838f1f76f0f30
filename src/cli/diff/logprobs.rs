//! Compares tables of log-probabilities, with a checkpoint as the third side.

use std::path::Path;

use anyhow::{Result, bail};
use attnscope_compare::logprobs::{
    LogProbComparison, LogProbs, Referee, Telling, can_judge, lend_ids,
};
use attnscope_compute::on_device;
use attnscope_compute::ops::Cpu;
use attnscope_prompt::Tokenizer;
use attnscope_report::{LogProbDifference, Output, printable, read_logprobs};
use attnscope_spec::Model;

use super::{Args, Format, Kind};
use crate::cli::progress::Task;
use crate::cli::session::Session;
use crate::cli::{Ended, WhatIfArgs};

/// Compares two tables, or a table with a checkpoint.
pub(super) fn compare(args: &Args, kinds: (Kind, Kind)) -> Result<Ended> {
    let (a, b, reference) = match (kinds, &args.reference) {
        ((Kind::LogProbs, Kind::LogProbs), reference) => {
            (&args.a, Some(&args.b), reference.as_ref())
        }
        ((Kind::LogProbs, Kind::Checkpoint), None) => (&args.a, None, Some(&args.b)),
        ((Kind::Checkpoint, Kind::LogProbs), None) => (&args.b, None, Some(&args.a)),
        ((a, b), _) => bail!(
            "{} and {}: expected two tables of log-probabilities, or one and a checkpoint, found {} and {}",
            args.a.display(),
            args.b.display(),
            a.name(),
            b.name()
        ),
    };
    let output = Output::open_or_replace(&args.output, args.run.force)?;
    let mut of_a = read_logprobs(a)?;
    let mut of_b = b.map(|b| read_logprobs(b)).transpose()?;
    let comparison = compared(
        args,
        (&mut of_a, of_b.as_mut()),
        reference.map(|path| path.as_path()),
    )?;
    let name = |path: &Path, table: &LogProbs| format!("{} ({})", path.display(), table.form);
    let name_b = b.zip(of_b.as_ref()).map(|(path, table)| name(path, table));
    let name_reference = reference.map(|path| path.display().to_string());
    let mut notes: Vec<String> = Vec::new();
    for (letter, table) in [("A", Some(&of_a)), ("B", of_b.as_ref())] {
        let said = table.iter().flat_map(|table| &table.notes);
        notes.extend(said.map(|note| format!("{letter}: {note}")));
    }
    let what_if = args.what_if.words();
    if !what_if.is_empty() {
        notes.push(format!("what if, of the reference: {}", what_if.join(", ")));
    }
    let difference = LogProbDifference {
        a: &name(a, &of_a),
        b: name_b.as_deref(),
        reference: name_reference.as_deref(),
        comparison: &comparison,
        tables: [Some(&of_a), of_b.as_ref()],
        notes,
    };
    let mut content = Vec::new();
    match args.format {
        Format::Json => difference.write_json(&mut content)?,
        Format::Markdown => content = difference.markdown().into_bytes(),
        Format::Text => content = printable(difference.text().as_bytes()),
        Format::Html => content = difference.html().into_bytes(),
    }
    output.write(&content)?;
    Ok(if comparison.is_same() {
        Ended::Clean
    } else {
        Ended::WithFindings
    })
}

/// Runs the comparison, with the reference where there is one.
fn compared(
    args: &Args,
    (a, mut b): (&mut LogProbs, Option<&mut LogProbs>),
    reference: Option<&Path>,
) -> Result<LogProbComparison> {
    let mut task = None;
    let mut told = |telling: Telling<'_>| match telling {
        Telling::Asking(..) => {}
        Telling::Explaining(_, done, of) => {
            let task = task.get_or_insert_with(|| Task::begin("trying explanations", of as u64));
            task.at(done, of);
        }
    };
    let Some(path) = reference else {
        if let Some(b) = &mut b {
            lend_ids(a, b);
        }
        return Ok(LogProbComparison::of::<Cpu>(
            (a, b.as_deref()),
            None,
            args.tolerance,
            &mut told,
        )?);
    };
    let nothing = WhatIfArgs::default();
    let session = Session::begin(&args.run, &nothing, args.prompt.clone(), &args.inputs)?;
    let model = args.what_if.apply(session.model(path)?)?;
    can_judge(&model)?;
    let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer)?;
    a.identify(&args.a, &prompt_form)?;
    if let Some(b) = &mut b {
        b.identify(&args.b, &prompt_form)?;
        lend_ids(a, b);
    }
    if let Some(tokenizer) = prompt_form.tokenizer() {
        a.spell(tokenizer);
        if let Some(b) = &mut b {
            b.spell(tokenizer);
        }
    }
    judged(
        &session,
        &model,
        (a, b.as_deref()),
        args.tolerance,
        &mut told,
    )
}

/// Judges tables by a model.
///
/// # Errors
/// As for [`LogProbComparison::of`].
pub(in crate::cli) fn judged(
    session: &Session<'_>,
    model: &Model,
    tables: (&LogProbs, Option<&LogProbs>),
    tolerance: Option<f64>,
    told: &mut dyn FnMut(Telling<'_>),
) -> Result<LogProbComparison> {
    let pace = || false;
    Ok(on_device!(&session.compute, ops => {
        let referee = Referee { ops, model, pace: &pace };
        LogProbComparison::of(tables, Some(&referee), tolerance, told)
    })?)
}
