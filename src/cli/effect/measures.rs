//! Runs each measure and builds its table.

use std::ops::ControlFlow;

use anyhow::Result;
use attnscope_compute::error::Error;
use attnscope_compute::on_device;
use attnscope_forward::Input;
use attnscope_prompt::{Prompt, Request, Source};
use attnscope_report::{
    Labels, SheetRows, ablation_sheet, attribution_sheet, circuits_sheet, contribution_sheet,
    lens_sheet, patching_sheet, retrieval_sheet, rollout_sheet, sensitivity_sheet,
};
use attnscope_run::input_of;
use attnscope_spec::{Place, Stack};
use attnscope_studies::effect::{
    Ablation, Asked, Base, NO_RESIDUAL, Pair, Part, Patching, PatchingStep, Sensitivity, Step,
    attribute, circuits, contributions, head_of, lens, retrieval, rollout,
};

use super::stopping::Stopping;
use super::{Args, By, asked};
use crate::cli::progress::Task;
use crate::cli::session::{Opened, Session};
use crate::cli::targets::source_of;

/// Longest prompt for which every position is patched by default.
const EACH_POSITION: usize = 64;

/// The request, and the model and prompts to measure.
pub struct Measuring<'a> {
    pub args: &'a Args,
    pub session: &'a Session<'a>,
    pub opened: &'a Opened,
    pub stopping: &'a Stopping,
}

/// Whether the work finished: false if it was stopped; other errors are returned.
fn ended(ran: attnscope_compute::error::Result<()>) -> Result<bool> {
    match ran {
        Ok(()) => Ok(true),
        Err(Error::Cancelled) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

impl Measuring<'_> {
    /// Runs the measure. Returns false if it was stopped; the table then has the rows done so far.
    ///
    /// # Errors
    /// When the model cannot be run, or the measure does not apply to it.
    pub fn measure(&self) -> Result<(SheetRows, bool)> {
        match self.args.by {
            By::Ablation => self.ablation(),
            By::Attribution => self.attribution().map(whole),
            By::Patching => self.patching(),
            By::Lens => self.lens().map(whole),
            By::Rollout => self.rollout().map(whole),
            By::Contribution => self.contribution(),
            By::Circuits => self.circuits().map(whole),
            By::Retrieval => self.retrieval().map(whole),
            By::Sensitivity => self.sensitivity(),
        }
    }

    fn inputs(&self) -> Vec<Input> {
        let named = self.opened.named.iter();
        named.map(|named| input_of(&named.prompt)).collect()
    }

    /// Returns the only prompt.
    fn prompt(&self) -> Result<(&Prompt, Input)> {
        let missing = || Error::Prompt("no prompt to run".to_owned());
        let named = self.opened.named.first().ok_or_else(missing)?;
        Ok((&named.prompt, input_of(&named.prompt)))
    }

    fn label(&self, id: u32) -> String {
        let prompt_form = &self.opened.prompt_form;
        prompt_form
            .of_target(self.opened.model.spec.limits())
            .label(id)
    }

    /// Returns the labels of a prompt's positions, for tables.
    fn labels<'l>(prompt: &'l Prompt, of_token: &'l dyn Fn(u32) -> String) -> Labels<'l> {
        Labels {
            of_token,
            positions: &prompt.labels,
            source: prompt.source.as_ref().map_or(&[], |source| &source.labels),
        }
    }

    /// Returns the token that the user named, if any.
    fn named_token(&self, given: Option<&String>) -> Result<Option<u32>> {
        let spec = &self.opened.model.spec;
        let prompt_form = self.opened.prompt_form.of_target(spec.limits());
        let d_vocab = spec.head.as_ref().map_or(0, |head| head.unembed.n_out());
        let encoded = |text: &str| {
            let Some(tokenizer) = prompt_form.tokenizer() else {
                return Err(asked::no_tokenizer(text, &prompt_form.describe()));
            };
            let ids = tokenizer.encode(text, false)?;
            let labelled = ids.into_iter().map(|id| (id, prompt_form.label(id)));
            Ok(labelled.collect())
        };
        let id = |given: &String| asked::token_id(given, d_vocab, encoded);
        given.map(id).transpose()
    }

    /// Returns the likeliest token at a position.
    fn likeliest(&self, input: &Input, position_idx: usize) -> Result<u32> {
        let model = &self.opened.model;
        let top = on_device!(&self.session.compute, ops => {
            let base = Base::run(ops, model, input, &[], &mut |_| {}, self.stopping)?;
            lens(ops, model, (input, &base), (&[position_idx], 1), self.stopping, |_| {})
        })?;
        let last = top.last().and_then(|row| row.top.first());
        let missing = || Error::Prompt("the model predicts no token there".to_owned());
        Ok(last.map(|(id, _)| *id).ok_or_else(missing)?)
    }

    /// Describes the measured quantity.
    fn words(&self, asked: Asked) -> String {
        asked::words(asked, &|id| self.label(id))
    }

    fn ablation(&self) -> Result<(SheetRows, bool)> {
        let (args, model) = (self.args, &self.opened.model);
        let inputs = self.inputs();
        let asked = match self.named_token(args.token.as_ref())? {
            Some(token) => {
                let shortest = inputs.iter().min_by_key(|input| input.sequence.len());
                let missing = || Error::Prompt("no prompt to run".to_owned());
                let shortest = shortest.ok_or_else(missing)?;
                Some(Asked {
                    position_idx: asked::position(args.position, shortest)?,
                    token,
                    against: self.named_token(args.against.as_ref())?,
                })
            }
            None => None,
        };
        let mut ablation = Ablation::plan(model, args.replace.replaced(), |part, place| {
            args.wants(part, place)
        })?;
        let task = Task::begin("ablating", 0);
        let mut tell = |_: &Ablation, step: Step| {
            if let Step::Ablated { n_done, n_all } = step {
                task.at(n_done, n_all);
            }
            ControlFlow::Continue(())
        };
        let ran = on_device!(&self.session.compute, ops => {
            ablation.run(ops, model, (&inputs, asked), &mut tell, self.stopping)
        });
        drop(task);
        let complete = ended(ran)?;
        let words = asked.map(|asked| self.words(asked));
        Ok((ablation_sheet(&ablation, words), complete))
    }

    fn attribution(&self) -> Result<SheetRows> {
        let (args, model) = (self.args, &self.opened.model);
        let (prompt, input) = self.prompt()?;
        // Refuse models that cannot be attributed before anything runs.
        attnscope_studies::effect::check_linear(model)?;
        let position_idx = asked::position(args.position, &input)?;
        let token = match self.named_token(args.token.as_ref())? {
            Some(token) => token,
            None => self.likeliest(&input, position_idx)?,
        };
        let asked = Asked {
            position_idx,
            token,
            against: self.named_token(args.against.as_ref())?,
        };
        let with_sources = |grid: Stack, layer_idx: usize| {
            let place = Place::layer(grid, layer_idx);
            let n_heads = model.spec.n_heads(grid, layer_idx);
            let wants = |head_idx| args.wants(Part::Head, place.head(head_idx));
            args.sources && (0..n_heads).any(wants)
        };
        let mut found = on_device!(&self.session.compute, ops => {
            attribute(ops, model, &input, asked, &with_sources, self.stopping)
        })?;
        if let Some(at) = args.at.as_ref().filter(|_| args.sources) {
            // The whole layer was run even if only one of its heads was requested.
            for share in &mut found.shares {
                let is_wanted = share.place.head_idx.is_none_or(|head_idx| {
                    let layer_idx = share.place.layer_idx.unwrap_or(0);
                    let grid = share.place.grid();
                    at.0.iter()
                        .any(|place| place.holds_head(grid, layer_idx, head_idx))
                });
                if !is_wanted {
                    share.by_key.clear();
                }
            }
        }
        let of_token = |id: u32| self.label(id);
        let labels = Self::labels(prompt, &of_token);
        Ok(attribution_sheet(&found, &labels, self.words(asked)))
    }

    /// Returns the corrupted prompt.
    fn corrupted(&self) -> Result<Input> {
        let (args, opened) = (self.args, self.opened);
        let source = match (&args.corrupted, &args.corrupted_tokens) {
            (Some(text), _) => source_of(text),
            (None, Some(ids)) => Source::Ids(ids.clone()),
            (None, None) => {
                let problem = "--by patching: expected a second prompt with --corrupted TEXT or --corrupted-tokens ID,ID,…";
                return Err(Error::Prompt(problem.to_owned()).into());
            }
        };
        let request = Request {
            source,
            ..self.session.usual()
        };
        let limits = opened.model.spec.limits();
        let corrupted = attnscope_prompt::prepare(&request, &opened.prompt_form, limits)?;
        let mut input = input_of(&corrupted);
        if opened.model.spec.is_encoder_decoder() {
            // Only the encoder's text is corrupted: the target is that of the clean prompt.
            let (_, clean) = self.prompt()?;
            input.sequence = clean.sequence;
        }
        Ok(input)
    }

    fn patching(&self) -> Result<(SheetRows, bool)> {
        let (args, model) = (self.args, &self.opened.model);
        head_of(model)?;
        let (prompt, clean) = self.prompt()?;
        let corrupted = self.corrupted()?;
        let position_idx = asked::position(args.position, &clean)?;
        let unasked = Asked {
            position_idx,
            token: 0,
            against: None,
        };
        let mut pair = Pair {
            clean: &clean,
            corrupted: &corrupted,
            asked: unasked,
        };
        pair.check_lengths()?;
        let token = match self.named_token(args.token.as_ref())? {
            Some(token) => token,
            None => self.likeliest(&clean, position_idx)?,
        };
        let against = match self.named_token(args.against.as_ref())? {
            Some(against) => Some(against),
            // Otherwise compare with the likeliest token of the corrupted run.
            None => {
                let instead = self.likeliest(&corrupted, position_idx)?;
                (instead != token).then_some(instead)
            }
        };
        let asked = Asked {
            position_idx,
            token,
            against,
        };
        let n = clean
            .sequence
            .len()
            .max(clean.source.as_ref().map_or(0, |s| s.len()));
        let each = args.each_position || n <= EACH_POSITION;
        let positions: Vec<usize> = if each { (0..n).collect() } else { Vec::new() };
        pair.asked = asked;
        let wants = |part, place| args.wants(part, place);
        let mut patching = Patching::plan(model, &pair, &positions, wants)?;
        let task = Task::begin("patching", 0);
        let mut tell = |_: &Patching, step: PatchingStep| {
            if let PatchingStep::Patched { n_done, n_all } = step {
                task.at(n_done, n_all);
            }
            ControlFlow::Continue(())
        };
        let ran = on_device!(&self.session.compute, ops => {
            patching.run(ops, model, pair, &mut tell, self.stopping)
        });
        drop(task);
        let complete = ended(ran)?;
        let of_token = |id: u32| self.label(id);
        let labels = Self::labels(prompt, &of_token);
        let mut sheet = patching_sheet(&patching, &labels, self.words(asked));
        if patching.leaves_residual {
            sheet.notes.push(NO_RESIDUAL.to_owned());
        }
        if !each {
            sheet.notes.push(format!(
                "{n} tokens: all positions are patched at once; --each-position patches every one by itself too"
            ));
        }
        Ok((sheet, complete))
    }

    fn lens(&self) -> Result<SheetRows> {
        let (args, model) = (self.args, &self.opened.model);
        head_of(model)?;
        let (prompt, input) = self.prompt()?;
        let sequence = &input.sequence;
        let positions: Vec<usize> = match args.position {
            Some(_) => vec![asked::position(args.position, &input)?],
            None => (0..sequence.len())
                .filter(|idx| sequence.is_real(*idx))
                .collect(),
        };
        let task = Task::begin("reading predictions of every layer", 0);
        let n_rows = (positions.len() * (model.spec.main_stack().n_layers() + 1)).max(1);
        let mut n_done = 0;
        let rows = on_device!(&self.session.compute, ops => {
            let base = Base::run(ops, model, &input, &[], &mut |_| {}, self.stopping)?;
            lens(ops, model, (&input, &base), (&positions, args.top), self.stopping, |rows| {
                n_done += rows.len();
                task.at(n_done, n_rows);
            })
        });
        drop(task);
        let of_token = |id: u32| self.label(id);
        let labels = Self::labels(prompt, &of_token);
        Ok(lens_sheet(&rows?, &labels, model.spec.is_causal_lm))
    }

    fn rollout(&self) -> Result<SheetRows> {
        let model = &self.opened.model;
        let (prompt, input) = self.prompt()?;
        let positions = [asked::position(self.args.position, &input)?];
        let stacks = on_device!(&self.session.compute, ops => {
            rollout(ops, model, &input, &positions, self.stopping)
        })?;
        let of_token = |id: u32| self.label(id);
        let labels = Self::labels(prompt, &of_token);
        Ok(rollout_sheet(&stacks, &positions, &labels))
    }

    fn contribution(&self) -> Result<(SheetRows, bool)> {
        let (args, model) = (self.args, &self.opened.model);
        let mut prompts = Vec::new();
        let mut complete = true;
        for named in &self.opened.named {
            let input = input_of(&named.prompt);
            let found = on_device!(&self.session.compute, ops => {
                contributions(ops, model, &input, self.stopping)
            });
            match found {
                Ok(mut found) => {
                    found.retain(|one| args.wants(Part::Head, one.place));
                    prompts.push((named.id.clone(), found));
                }
                Err(Error::Cancelled) => {
                    complete = false;
                    break;
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok((contribution_sheet(&prompts), complete))
    }

    fn retrieval(&self) -> Result<SheetRows> {
        let model = &self.opened.model;
        let mut found = on_device!(&self.session.compute, ops => {
            retrieval(ops, model, self.stopping)
        })?;
        found
            .heads
            .retain(|head| self.args.wants(Part::Head, head.place));
        Ok(retrieval_sheet(&found))
    }

    fn sensitivity(&self) -> Result<(SheetRows, bool)> {
        let (args, model) = (self.args, &self.opened.model);
        let what_ifs = args.what_if.all();
        let mut found = Sensitivity::plan(model, what_ifs, |place| args.is_at(place))?;
        let inputs = self.inputs();
        let task = Task::begin("changing one place after the other", 0);
        let mut tell = |n_done: usize, n_all: usize| {
            task.at(n_done, n_all);
        };
        let ran = on_device!(&self.session.compute, ops => {
            found.run(ops, model, (&inputs, what_ifs), &mut tell, self.stopping)
        });
        drop(task);
        let complete = ended(ran)?;
        let words = args.what_if.words().join(", ");
        Ok((sensitivity_sheet(&found, &words), complete))
    }

    fn circuits(&self) -> Result<SheetRows> {
        let (args, model) = (self.args, &self.opened.model);
        let task = Task::begin("looking for circuits", 0);
        let wants = |place| args.wants(Part::Head, place);
        let mut tell = |n_done: usize, n_all: usize| {
            task.at(n_done, n_all);
        };
        let found = circuits(model, &wants, &mut tell, self.stopping);
        drop(task);
        let mut found = found?;
        found.heads.retain(|head| wants(head.place));
        Ok(circuits_sheet(&found))
    }
}

/// Marks a table as complete.
fn whole(sheet: SheetRows) -> (SheetRows, bool) {
    (sheet, true)
}
