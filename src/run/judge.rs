//! Judges a checkpoint: runs its prompts, probes the model with changed prompts, and runs every check on the results.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use attnscope_checks::stats::{LayerReport, Stat};
use attnscope_checks::{
    Baseline, Check, Delimiters, Evidence, Finding, Needs, Noise, Probed, Probes, Status, Subject,
    Thresholds, Verdict, Weights,
};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_prompt::TokenizerLoss;
use attnscope_spec::{Model, Place, Stack};

use super::boundaries::boundaries;
use super::budget::Budget;
use super::job::{Job, Options, Outcome};
use super::kept::Kept;
use super::observer::{Observer, Progress};
use super::pipeline::run_all;
use super::probes::probe_changed;
use super::readings::{Lines, probe_readings};
use super::remedies::{Measure, add_remedies};
use super::separators::Separators;
use super::texts_at_hand::TextsAtHand;
use super::weights::survey;

/// Current step in words, and its progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub what: String,
    pub n_done: usize,
    pub n: usize,
}

/// Which checks to run, with which thresholds, and who receives progress.
pub struct Judging<'a> {
    pub thresholds: &'a Thresholds,
    /// Results of an earlier report, by prompt.
    pub baselines: &'a BTreeMap<String, Baseline>,
    pub wants: &'a dyn Fn(&Check) -> bool,
    /// How badly the texts, or the ids given in their place, fit the tokenizer.
    pub lost: TokenizerLoss,
    /// What readings of the weights may cost.
    pub budget: Budget,
    pub told: &'a mut dyn FnMut(Step),
    pub pace: &'a dyn Pace,
}

/// Verdicts of all checks, in registry order.
#[derive(Debug, Clone)]
pub struct Judgement {
    pub verdicts: Vec<(&'static Check, Verdict)>,
    pub probes: Probes,
}

/// Number of prompts whose layers are in memory at a time.
const N_AT_ONCE: usize = 8;

/// Memory for layer inputs of the first prompts, from which single heads are rerun with a change.
const KEEP_BYTES: usize = 256 << 20;

/// Tolerance of row sums in our own runs, which add in f32.
const ROW_TOLERANCE: f64 = 1e-5;

/// Reason given for batch and packing checks: only training code builds batches and packed rows.
const NO_BATCHES: &str = "attnscope runs prompts one at a time, so they cannot mix: test the training code with a probe (attnscope capture-script)";

/// Reason given for checks that were not selected.
const UNASKED: &str = "the check was not selected";

/// Reason given for checks of the training code: a checkpoint does not contain it.
const NO_CODE: &str = "attnscope runs the model with its own code: test the training code with a probe (attnscope capture-script)";

/// Judges a checkpoint on named prompts.
///
/// # Errors
/// When a tensor contradicts the spec, the device fails, or the work is stopped.
pub fn judge<O: Ops>(
    ops: &O,
    model: &Model,
    prompts: &[(String, Input)],
    judging: &mut Judging<'_>,
) -> Result<Judgement> {
    let inputs: Vec<Input> = prompts.iter().map(|(_, input)| input.clone()).collect();
    let probes = probe(ops, model, &inputs, judging)?;
    let mut all: Vec<(&'static Check, Verdict)> = Vec::new();
    for (nth, chunk) in prompts.chunks(N_AT_ONCE).enumerate() {
        let seen = run(ops, model, chunk, nth, judging)?;
        for ((name, input), mut seen) in chunk.iter().zip(seen) {
            let known = Known {
                baseline: judging.baselines.get(name),
                lost: judging.lost,
            };
            let run = (seen.layers.as_slice(), &seen.outcome);
            let mut verdicts = judge_run(model, run, &probes, judging.thresholds, known);
            verdicts.retain(|(check, _)| (judging.wants)(check));
            if let Some(kept) = seen.kept.take() {
                for (check, verdict) in &mut verdicts {
                    if let Some(measure) = Measure::of(check) {
                        let seen = (input, &*kept, seen.layers.as_slice());
                        add_remedies(ops, model, seen, measure, verdict)?;
                    }
                }
            }
            let name = (prompts.len() > 1).then_some(name.as_str());
            merge(&mut all, verdicts, name);
        }
    }
    Ok(Judgement {
        verdicts: all,
        probes,
    })
}

/// Measures the weights, if a selected check needs that.
fn look_at_weights(model: &Model, judging: &mut Judging<'_>) -> Result<Probed<Arc<Weights>>> {
    let of_weights = attnscope_checks::CHECKS
        .iter()
        .filter(|check| check.needs == Needs::Weights);
    if !of_weights.into_iter().any(|check| (judging.wants)(check)) {
        return Ok(Probed::Untried(UNASKED.to_owned()));
    }
    let told = &mut *judging.told;
    let mut told = |n_done, n| {
        told(Step {
            what: "looking at the weights".to_owned(),
            n_done,
            n,
        });
    };
    survey(model, &mut told, judging.pace).map(|seen| Probed::Ran(Arc::new(seen)))
}

/// Probes of a model that ran but was not probed; `why` tells the user how to probe it.
pub fn unasked(why: &str) -> Probes {
    let untried = || why.to_owned();
    Probes {
        future: Probed::Untried(untried()),
        padding: Probed::Untried(untried()),
        batch: Probed::Not(NO_BATCHES.to_owned()),
        documents: Probed::Not(NO_BATCHES.to_owned()),
        repeat: Probed::Not(NO_CODE.to_owned()),
        length: Probed::Not(NO_CODE.to_owned()),
        cache: Probed::Not(NO_CODE.to_owned()),
        order: Probed::Untried(untried()),
        context: Probed::Not(NO_CODE.to_owned()),
        labels: Probed::Not(
            "on a checkpoint, trained-otherwise tests this: test the training code with a probe (attnscope capture-script)"
                .to_owned(),
        ),
        training: Probed::Untried(untried()),
        weights: Probed::Untried(untried()),
        nonfinite: None,
        sampled: None,
    }
}

/// Probes the model with changed prompts and measures its weights, as far as the selected checks need it.
///
/// # Errors
/// When the model cannot be run, or the work is stopped.
pub fn probe<O: Ops>(
    ops: &O,
    model: &Model,
    inputs: &[Input],
    judging: &mut Judging<'_>,
) -> Result<Probes> {
    let mut probes = unasked(UNASKED);
    let wanted: BTreeSet<&str> = attnscope_checks::CHECKS
        .iter()
        .filter(|check| (judging.wants)(check))
        .map(|check| check.id)
        .collect();
    let Some(first) = inputs.first() else {
        return Ok(probes);
    };
    let pace = judging.pace;
    let n_layers = model.spec.n_layers_to_run();
    let mut say = |what: &str, progress: Progress| {
        if let Progress::Layer { n_done, .. } = progress {
            (judging.told)(Step {
                what: what.to_owned(),
                n_done,
                n: n_layers,
            });
        }
    };
    let progress = |progress| say("changing tokens of the prompt", progress);
    let changed = probe_changed(ops, model, first, |id| wanted.contains(id), progress, pace)?;
    probes.future = changed.future.unwrap_or(probes.future);
    probes.padding = changed.padding.unwrap_or(probes.padding);
    probes.order = changed.order.unwrap_or(probes.order);
    if wanted.contains("trained-otherwise") || wanted.contains("knows-nothing") {
        let (lines, budget) = (Lines::of(judging.thresholds), judging.budget);
        let mut told = |n_done: usize, n: usize| {
            (judging.told)(Step {
                what: "reading the weights in other ways".to_owned(),
                n_done,
                n,
            });
        };
        let told_once = without_repeats(inputs);
        let inputs = told_once.as_slice();
        let at_hand = TextsAtHand::of(model, inputs, budget);
        let (added, words) = at_hand.map_or((Vec::new(), None), |at_hand| {
            (at_hand.inputs, Some(at_hand.words))
        });
        let texts = [inputs, &added].concat();
        let limits = (lines, budget);
        probes.training = probe_readings(ops, model, &texts, limits, &mut told, pace)?;
        if let Probed::Ran(training) = &mut probes.training {
            training.added = words;
        }
    }
    probes.weights = look_at_weights(model, judging)?;
    Ok(probes)
}

/// Inputs that do not say the same over and over, or all if no others are given: what is repeated is predicted by copying.
fn without_repeats(inputs: &[Input]) -> Vec<Input> {
    let is_repeated = |input: &Input| {
        let tokens = &input.sequence.tokens;
        let has_period = |n: usize| tokens[n..] == tokens[..tokens.len() - n];
        (1..=tokens.len() / 2).any(has_period)
    };
    let told_once = inputs.iter().filter(|input| !is_repeated(input)).cloned();
    let told_once: Vec<Input> = told_once.collect();
    if told_once.is_empty() {
        inputs.to_vec()
    } else {
        told_once
    }
}

/// Results of running one prompt.
struct Seen {
    layers: Vec<Arc<LayerReport>>,
    outcome: Outcome,
    kept: Option<Arc<Kept>>,
}

struct Collector<'a> {
    layers: Vec<Arc<LayerReport>>,
    kept: Option<Arc<Kept>>,
    told: Option<&'a mut dyn FnMut(Step)>,
    n_layers: usize,
}

impl Observer for Collector<'_> {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        if let (Progress::Layer { n_done, .. }, Some(told)) = (progress, &mut self.told) {
            told(Step {
                what: "running the prompts".to_owned(),
                n_done,
                n: self.n_layers,
            });
        }
        ControlFlow::Continue(())
    }

    fn layer(&mut self, report: LayerReport) -> ControlFlow<()> {
        self.layers.push(Arc::new(report));
        ControlFlow::Continue(())
    }

    fn keeping(&mut self, kept: &Arc<Kept>) {
        self.kept = Some(kept.clone());
    }
}

fn run<O: Ops>(
    ops: &O,
    model: &Model,
    chunk: &[(String, Input)],
    nth: usize,
    judging: &mut Judging<'_>,
) -> Result<Vec<Seen>> {
    let n_layers = model.spec.n_layers_to_run();
    let mut told = Some(&mut *judging.told);
    let mut collectors: Vec<Collector<'_>> = chunk
        .iter()
        .map(|_| Collector {
            layers: Vec::new(),
            kept: None,
            told: told.take().map(|told| told as &mut dyn FnMut(Step)),
            n_layers,
        })
        .collect();
    let jobs = chunk
        .iter()
        .zip(&mut collectors)
        .map(|((_, input), observer)| Job {
            input,
            observer,
            tap: None,
        });
    // Heads are rerun only for the first prompts, so only these keep layer inputs.
    let options = Options {
        keep_bytes: (nth == 0).then_some(KEEP_BYTES / chunk.len()),
        predicts: true,
    };
    let outcomes = run_all(ops, model, jobs.collect(), options, judging.pace)?;
    let seen = collectors
        .into_iter()
        .zip(outcomes)
        .map(|(collector, outcome)| Seen {
            layers: collector.layers,
            outcome,
            kept: collector.kept,
        });
    Ok(seen.collect())
}

/// Runs every check on a finished run and its probes; `lost` is how badly its text, or the ids given in its place, fit the
/// tokenizer.
pub fn judge_layers(
    model: &Model,
    layers: &[Arc<LayerReport>],
    outcome: &Outcome,
    probes: &Probes,
    thresholds: &Thresholds,
    lost: TokenizerLoss,
) -> Vec<(&'static Check, Verdict)> {
    let known = Known {
        baseline: None,
        lost,
    };
    judge_run(model, (layers, outcome), probes, thresholds, known)
}

/// Facts about a run from other sources.
struct Known<'a> {
    baseline: Option<&'a Baseline>,
    lost: TokenizerLoss,
}

fn judge_run(
    model: &Model,
    (layers, outcome): (&[Arc<LayerReport>], &Outcome),
    probes: &Probes,
    thresholds: &Thresholds,
    known: Known<'_>,
) -> Vec<(&'static Check, Verdict)> {
    let largest = layers.iter().map(|layer| layer.stats.of(Stat::ResidMaxAbs));
    let largest = largest.fold(0.0, f64::max);
    let narrow_dtype = match model.checkpoint.dtype_label().as_str() {
        "f16" => Some(("f16", largest)),
        _ => None,
    };
    let first_nonfinite = outcome.nonfinite.as_ref().map(|found| {
        let n_layers = model.spec.n_layers(found.stack);
        let place = if found.layer_idx < n_layers {
            Place::layer(found.stack, found.layer_idx)
        } else {
            Place::MODEL
        };
        (place.query(found.position_idx), found.to_string())
    });
    let separators = Separators::new(model, outcome);
    let is_delimiter = |stack: Stack, key_idx: usize| separators.holds(stack, key_idx);
    let nonfinite = outcome.nonfinite.as_ref();
    let evidence = Evidence {
        first_nonfinite,
        is_in_weights: nonfinite.is_some_and(|found| found.tensor.is_some()),
        narrow_dtype,
        n_ctx: model.spec.longest(),
        boundaries: boundaries(&model.spec),
        noise: Noise::of(&outcome.tokens, model.spec.d_vocab),
        next_losses: outcome
            .predictions
            .as_ref()
            .and_then(|predictions| predictions.next_loss.as_deref()),
        loss: outcome
            .predictions
            .as_ref()
            .and_then(|predictions| predictions.loss),
        baseline: known.baseline,
        lost: known.lost,
        delimiters: Delimiters(Some(&is_delimiter)),
        ..Evidence::of_layers(Subject::Checkpoint, layers, probes, ROW_TOLERANCE)
    };
    attnscope_checks::judge(&evidence, thresholds)
}

/// Merges the verdicts of one more prompt into `all`: for each place, the worst finding stays.
fn merge(
    all: &mut Vec<(&'static Check, Verdict)>,
    verdicts: Vec<(&'static Check, Verdict)>,
    prompt: Option<&str>,
) {
    let is_first = all.is_empty();
    for (nth, (check, mut verdict)) in verdicts.into_iter().enumerate() {
        // Probes and weights are judged once for all prompts.
        let is_judged_once = matches!(check.needs, Needs::Probes | Needs::Weights);
        if let (Some(prompt), false) = (prompt, is_judged_once) {
            for finding in &mut verdict.findings {
                finding.evidence = format!("prompt {prompt}: {}", finding.evidence);
            }
        }
        if is_first {
            all.push((check, verdict));
            continue;
        }
        if !is_judged_once {
            merge_one(&mut all[nth].1, verdict);
        }
    }
}

fn merge_one(into: &mut Verdict, verdict: Verdict) {
    for finding in verdict.findings {
        // A head has at most one finding per check; a layer or the model may have several, of different severity.
        let is_same = |known: &&mut Finding| {
            known.place.is_same_head(&finding.place)
                && (known.severity == finding.severity || finding.place.head_idx.is_some())
        };
        let size = |finding: &Finding| (finding.severity, finding.excess());
        match into.findings.iter_mut().find(is_same) {
            Some(known) if size(known) >= size(&finding) => {}
            Some(known) => *known = finding,
            None => into.findings.push(finding),
        }
    }
    // Fired on one prompt is fired; passed on one and not applicable on another is passed.
    if verdict.status < into.status {
        (into.status, into.why, into.would_test) =
            (verdict.status, verdict.why, verdict.would_test);
    }
    if into.status == Status::Fired {
        into.why = match into.findings.len() {
            1 => "1 place".to_owned(),
            n => format!("{n} places"),
        };
    }
}
