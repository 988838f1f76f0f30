//! Ablation of a live model: its own code runs without each head, and what it then predicts is compared.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_checkpoint::captured::Captured;
use attnscope_compute::error::Error;
use attnscope_forward::Input;
use attnscope_live::{LiveSession, LiveTarget, Request};
use attnscope_report::{EffectReport, ModelRecord, Output, PromptOf, ablation_sheet};
use attnscope_run::{Recorded, WhatIf, live_changes, live_request, record_live};
use attnscope_spec::{Place, Stack};
use attnscope_studies::effect::{Ablation, Asked, Part, Predicted, Step};
use serde_json::Value;

use super::super::stopping::Stopping;
use super::super::{Args, PartArg, ReplaceArg, asked, write};
use super::{MAKES, with_padding};
use crate::cli::PromptArgs;
use crate::cli::live_target::again;
use crate::cli::progress::{Task, note};
use crate::cli::prompts::ONLY;
use crate::cli::session::Session;

/// How numbers of a live model differ from those of a checkpoint.
const NOTE: &str = "a live model: heads are dropped in its own code, as --what-if drop=… does; all_heads is every head of a layer at once, \
                    whose output bias stays. Feed-forward layers and whole attentions need weights: attnscope.describe makes a checkpoint that has them";

/// Ablates the heads of a live model.
///
/// # Errors
/// When a flag needs weights, the person's code fails, or it predicts no tokens.
pub fn run(args: &Args, target: &LiveTarget) -> Result<()> {
    let drop = check(args, target)?;
    let prompt = args.positional.with(&args.prompt)?;
    let mut settings = Session::begin(&args.run, &args.what_if, prompt.clone(), &args.inputs)?;
    let requests: Vec<_> = match settings.set()? {
        Some(set) => {
            let requests = set.requests().iter();
            let requests = requests.map(|(id, request)| (id.clone(), Some(request.clone())));
            requests.collect()
        }
        None => vec![(ONLY.to_owned(), None)],
    };
    if args.replace == ReplaceArg::Mean && requests.len() > 1 {
        bail!(
            "{target}: --replace mean: a live model's heads give their mean over the prompt they run on; expected one prompt"
        );
    }
    let mut session = args.live.session(target)?;
    if let Some(why) = session.about(&|| false)?.lacks.what_if.clone() {
        bail!("{target}: its code cannot run without a head: {why}");
    }
    let mut first = None;
    let mut runs = Vec::new();
    for (id, request) in requests {
        let (recorded, run) = recorded(args, &prompt, &mut session, (id, request.as_ref()))?;
        first.get_or_insert(recorded);
        runs.push(run);
    }
    let Some(first) = first else {
        bail!("no prompt to run");
    };
    note(&format!("{target}: {}", first.about));
    args.check_places(&first.shape())?;
    let output = Output::open_or_replace(&args.written.output, args.run.force)?;
    let stopping = Stopping::begin();
    let mut running = Running {
        args,
        session,
        first: &first,
        drop,
        shown: runs.iter().map(|run| run.base.clone()).collect(),
        stopping: &stopping,
    };
    let asked = running.asked(&runs)?;
    let mut ablation = Ablation::plan_outside(args.replace.replaced(), parts(args, &first))?;
    let complete = match running.ablate(&mut ablation, &runs, asked) {
        Ok(()) => true,
        Err(Error::Cancelled) => false,
        Err(e) => return Err(e.into()),
    };
    let words = asked.map(|asked| running.words(asked)).transpose()?;
    let mut sheet = ablation_sheet(&ablation, words);
    sheet.notes.push(NOTE.to_owned());
    let prompts = runs.iter().map(|run| PromptOf {
        id: run.id.clone(),
        n_tokens: run.input.sequence.len(),
    });
    let report = EffectReport {
        by: args.by.label(),
        model: ModelRecord::of_recorded(&first),
        what_if: args.what_if.words(),
        prompts: prompts.collect(),
        complete,
        sheet,
    };
    write(args, &report, output)
}

/// The parts that are asked for, layer by layer.
fn parts(args: &Args, recorded: &Recorded) -> Vec<(Part, Place)> {
    let mut parts = Vec::new();
    for grid in recorded.shape() {
        for (layer_idx, n_heads) in grid.n_heads.iter().enumerate() {
            let layer = Place::layer(grid.stack, layer_idx);
            let heads = (0..*n_heads).map(|head_idx| (Part::Head, layer.head(head_idx)));
            parts.extend(heads.chain([(Part::AllHeads, layer)]));
        }
    }
    parts.retain(|(part, place)| {
        args.wants(*part, *place) || args.parts.is_empty() && args.is_at(*place)
    });
    parts
}

/// Refuses what needs weights. Returns the what-if that drops a head.
fn check(args: &Args, target: &LiveTarget) -> Result<&'static str> {
    let of_weights = |part: &&PartArg| !matches!(part, PartArg::Heads | PartArg::AllHeads);
    if let Some(part) = args.parts.iter().find(of_weights) {
        bail!(
            "{target}: --parts {}: of a live model heads and all-heads can be dropped; {MAKES}",
            part.part().label().replace('_', "-")
        );
    }
    match args.replace {
        ReplaceArg::Zero => Ok("drop=zero"),
        ReplaceArg::Mean => Ok("drop=mean"),
        ReplaceArg::Other => bail!(
            "{target}: --replace other: a live model's heads can be dropped to zero or to their mean; {MAKES}"
        ),
    }
}

/// A prompt that has run.
struct Run {
    id: String,
    /// What runs it again.
    request: Request,
    input: Input,
    is_causal: bool,
    /// A trace with the logits that runs without a head are compared with.
    base: PathBuf,
    d_vocab: usize,
}

/// Runs a prompt as it is, and again with the what-ifs that were given.
fn recorded(
    args: &Args,
    prompt: &PromptArgs,
    session: &mut LiveSession,
    (id, request): (String, Option<&attnscope_prompt::Request>),
) -> Result<(Recorded, Run)> {
    let mut declared = args.live.declared(prompt);
    if let Some(real) = request.and_then(|request| request.attention_mask.clone()) {
        declared.attention_mask = Some(real);
    }
    let task = Task::begin("running", 0);
    let told = &mut |_: &str, n_done: usize, n: usize| task.at(n_done, n);
    let request = live_request(request, &declared)?;
    let recorded = record_live(session, &request, &declared, told, &|| false)?.recorded;
    if recorded.outcome.predictions.is_none() {
        bail!(
            "{}: it predicts no tokens: ablation compares predictions, and expects token ids and an output [batch, position, vocabulary]",
            session.target()
        );
    }
    let mut request = Request {
        hooks: Some(vec!["logits"]),
        changes: live_changes(&recorded, args.what_if.all())?,
        ..again(request, &recorded)
    };
    // A text is made tokens once.
    if request.text.take().is_some() {
        request.ids = Some(recorded.prompt.given().tokens.clone());
    }
    let base = match request.changes.is_empty() {
        true => recorded.captured.path.clone(),
        false => session.run(&request, told, &|| false)?.path,
    };
    let input = with_padding(&recorded, declared)?;
    if args.replace == ReplaceArg::Mean && input.sequence.real.iter().flatten().any(|real| !real) {
        bail!(
            "{}: --replace mean: a live model's heads give their mean over all positions, padding included; expected a prompt without padding",
            session.target()
        );
    }
    let shape = recorded.captured.shape("logits").unwrap_or_default();
    let mut layers = recorded.layers.iter();
    let run = Run {
        id,
        request,
        input,
        is_causal: layers.any(|layer| layer.stack != Stack::Cross && layer.spec.mask.causal),
        base,
        d_vocab: shape.last().copied().unwrap_or(0),
    };
    Ok((recorded, run))
}

/// A live model whose heads are dropped.
struct Running<'a> {
    args: &'a Args,
    session: LiveSession,
    first: &'a Recorded,
    drop: &'static str,
    /// Traces that are still needed.
    shown: Vec<PathBuf>,
    stopping: &'a Stopping,
}

impl Running<'_> {
    /// The logit that was asked for.
    fn asked(&mut self, runs: &[Run]) -> Result<Option<Asked>> {
        let shortest = runs.iter().min_by_key(|run| run.input.sequence.len());
        let (Some(token), Some(shortest)) = (&self.args.token, shortest) else {
            return Ok(None);
        };
        let position_idx = asked::position(self.args.position, &shortest.input)?;
        let mut id = |given: &str| {
            asked::token_id(given, shortest.d_vocab, |text| {
                let about = self.session.about(self.stopping)?;
                if about.tokenizer.is_none() {
                    return Err(asked::no_tokenizer(text, "none came with the model"));
                }
                let (ids, labels) = self.session.tokens(text, self.stopping)?;
                Ok(ids.into_iter().zip(labels).collect())
            })
        };
        Ok(Some(Asked {
            position_idx,
            token: id(token)?,
            against: self.args.against.as_deref().map(id).transpose()?,
        }))
    }

    /// Describes the measured quantity.
    fn words(&mut self, asked: Asked) -> Result<String> {
        let ids: Vec<u32> = [asked.token].into_iter().chain(asked.against).collect();
        let labels = self.session.labels(&ids, &|| false)?;
        let label = |id: u32| {
            let at = ids.iter().position(|known| *known == id);
            at.and_then(|at| labels.get(at))
                .cloned()
                .unwrap_or_default()
        };
        Ok(asked::words(asked, &label))
    }

    /// Runs every prompt without each part.
    fn ablate(
        &mut self,
        ablation: &mut Ablation,
        runs: &[Run],
        asked: Option<Asked>,
    ) -> attnscope_compute::error::Result<()> {
        let task = Task::begin("ablating", 0);
        let mut tell = |step: Step| {
            if let Step::Ablated { n_done, n_all } = step {
                task.at(n_done, n_all);
            }
        };
        for run in runs {
            let logits = logits_of(&run.base, run)?;
            let sequence = &run.input.sequence;
            let logits = (logits.as_slice(), run.d_vocab);
            let predicted = Predicted::of(logits, sequence, run.is_causal, asked);
            let mut without = |_: Part, place: Place| self.without(run, place);
            ablation.add_outside(&predicted, runs.len(), &mut tell, &mut without)?;
        }
        Ok(())
    }

    /// Runs a prompt without the heads of a place. // [position, d_vocab]
    fn without(&mut self, run: &Run, place: Place) -> attnscope_compute::error::Result<Vec<f32>> {
        let drop = WhatIf::new(self.drop, vec![place]).map_err(Error::Setting)?;
        let mut changes: Vec<Value> = run.request.changes.clone();
        changes.extend(live_changes(self.first, &[drop])?);
        let request = Request {
            changes,
            ..run.request.clone()
        };
        let done = self
            .session
            .run(&request, &mut |_, _, _| {}, self.stopping)?;
        let logits = logits_of(&done.path, run);
        self.session.keep_only(&self.shown);
        logits
    }
}

/// Logits of a trace, as many as a prompt's. // [position, d_vocab]
fn logits_of(path: &Path, run: &Run) -> attnscope_compute::error::Result<Vec<f32>> {
    let captured = Captured::open(path)?;
    let array = captured.array("logits")?;
    let n_values = run.input.sequence.len() * run.d_vocab;
    if array.values.len() != n_values {
        let problem = format!(
            "expected {n_values} values, as of the run before; found shape {:?}",
            array.shape
        );
        return Err(captured.at("logits", &problem));
    }
    Ok(array.values)
}
