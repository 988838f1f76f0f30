//! Compares tables of log-probabilities, with a checkpoint as the third side.

use std::path::Path;

use anyhow::{Result, bail};
use attnscope_compare::logprobs::{LogProbComparison, LogProbs, Referee, Telling, paired};
use attnscope_compute::on_device;
use attnscope_compute::ops::Cpu;
use attnscope_prompt::{PromptForm, Tokenizer};
use attnscope_report::{LogProbDifference, Output, printable, read_logprobs};
use attnscope_run::predicts_tokens;
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
    if matches!(args.format, Format::Html) {
        bail!("--format html: expected text, json or markdown for log-probabilities");
    }
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
        notes,
    };
    let mut content = Vec::new();
    match args.format {
        Format::Json => difference.write_json(&mut content)?,
        Format::Markdown => content = difference.markdown().into_bytes(),
        Format::Text | Format::Html => content = printable(difference.text().as_bytes()),
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
    if let Some(why) = predicts_tokens(&model) {
        bail!(
            "{}: expected a model that predicts the next token: {why}",
            path.display()
        );
    }
    if model.spec.is_encoder_decoder() {
        bail!(
            "{}: expected a decoder alone: a table has no source for an encoder",
            path.display()
        );
    }
    let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer)?;
    resolve(a, &args.a, &prompt_form)?;
    if let Some(b) = &mut b {
        resolve(b, &args.b, &prompt_form)?;
        lend_ids(a, b);
    }
    judged(
        &session,
        &model,
        (a, b.as_deref()),
        args.tolerance,
        &mut told,
    )
}

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

/// Finds the ids of tokens that a table gives as text alone: the whole text is cut by the reference's tokenizer, and has to fall into the
/// same pieces.
pub(in crate::cli) fn resolve(
    table: &mut LogProbs,
    path: &Path,
    prompt_form: &PromptForm,
) -> Result<()> {
    for prompt in &mut table.prompts {
        if prompt.tokens.iter().all(|token| token.id.is_some())
            || prompt.tokens.iter().any(|token| token.piece.is_none())
        {
            continue;
        }
        let missing = |why: &str| {
            anyhow::anyhow!(
                "{}: prompt {}: expected token ids, found pieces of text {why}: ask the engine for ids (vLLM: return_token_ids or return_tokens_as_token_ids)",
                path.display(),
                prompt.name
            )
        };
        let Some(tokenizer) = prompt_form.tokenizer() else {
            return Err(missing("and a reference without a tokenizer"));
        };
        let pieces: Vec<&str> = prompt
            .tokens
            .iter()
            .filter_map(|token| token.piece.as_deref())
            .collect();
        let text = pieces.concat();
        let found = [true, false].into_iter().find_map(|special| {
            let tokens = tokenizer.cut(&text, special).ok()?;
            let fits = tokens.len() == pieces.len()
                && tokens.iter().zip(&pieces).all(|(token, piece)| {
                    token.is_special
                        || text
                            .get(token.bytes.clone())
                            .is_some_and(|own| own.trim() == piece.trim())
                });
            fits.then_some(tokens)
        });
        let Some(tokens) = found else {
            return Err(missing("that the reference's tokenizer cuts otherwise"));
        };
        for (own, token) in prompt.tokens.iter_mut().zip(tokens) {
            own.id = Some(token.id);
        }
    }
    Ok(())
}

/// Gives a side without ids those of the other side, where the two have as many tokens, or one value less.
fn lend_ids(a: &mut LogProbs, b: &mut LogProbs) {
    for (of_a, of_b) in paired(a, b) {
        let (one, other) = (&mut a.prompts[of_a].tokens, &mut b.prompts[of_b].tokens);
        let has_none = |tokens: &[attnscope_compare::logprobs::ScoredToken]| {
            tokens.iter().all(|token| token.id.is_none())
        };
        let (lacks, has) = match (has_none(one), has_none(other)) {
            (true, false) => (one, &*other),
            (false, true) => (other, &*one),
            _ => continue,
        };
        if lacks.len() + 1 == has.len() {
            lacks.insert(0, attnscope_compare::logprobs::ScoredToken::default());
        }
        if lacks.len() == has.len() {
            lacks
                .iter_mut()
                .zip(has)
                .for_each(|(lacks, has)| lacks.id = has.id);
            if let Some(first) = lacks.first_mut() {
                first.logprob = None;
            }
        }
    }
}
