//! Steps shared by commands that run models: open the device, then for each target the model, its tokenizer and its prompts, and
//! check the memory.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use attnscope_checks::stats::LayerReport;
use attnscope_compute::on_device;
use attnscope_compute::ops::{Compute, Device};
use attnscope_forward::Input;
use attnscope_prompt::{PromptForm, Request, Tokenizer};
use attnscope_report::{PromptRecord, Recorder};
use attnscope_run::{Job, MemoryNeed, Options, Outcome, Progress, input_of};
use attnscope_spec::Model;

use super::progress::Meter;
use super::prompts::{InputsArgs, Named, PromptSet, longest_inputs, prepare, write_targets};
use super::{PromptArgs, RunArgs, WhatIfArgs};

/// A device, and the request to run on it.
pub struct Session<'a> {
    pub compute: Compute,
    pub device: Device,
    run: &'a RunArgs,
    what_if: &'a WhatIfArgs,
    prompt: PromptArgs,
    set: Option<PromptSet>,
    /// Time limit of runs, for commands that have one.
    pub until: Option<Instant>,
}

/// Result of one prompt.
pub struct Ran {
    pub record: PromptRecord,
    pub outcome: Outcome,
    /// Whole layers, if they are kept.
    pub layers: Vec<Arc<LayerReport>>,
}

/// An open target with its prompts.
pub struct Opened {
    pub model: Model,
    pub named: Vec<Named>,
    pub prompt_form: PromptForm,
}

impl<'a> Session<'a> {
    /// Opens the device, and reads the set of prompts.
    ///
    /// # Errors
    /// When the device is not available, or the set cannot be read.
    pub fn begin(
        run: &'a RunArgs,
        what_if: &'a WhatIfArgs,
        prompt: PromptArgs,
        inputs: &InputsArgs,
    ) -> Result<Self> {
        let chosen = run.prepare()?;
        Ok(Self {
            compute: chosen.compute,
            device: chosen.device,
            set: inputs.read(&prompt)?,
            run,
            what_if,
            prompt,
            until: None,
        })
    }

    /// Returns the what-ifs applied to every target.
    pub fn what_ifs(&self) -> Vec<String> {
        self.what_if.words()
    }

    /// Opens a target, and prepares the prompts for it.
    ///
    /// # Errors
    /// When it cannot be read, or cannot run a prompt.
    pub fn open(&self, target: &Path) -> Result<Opened> {
        let mut opened = self.open_alone(target)?;
        let (model, prompt_form) = (&opened.model, &opened.prompt_form);
        opened.named = prepare(&self.prompt, self.set.as_ref(), model, prompt_form)?;
        Ok(opened)
    }

    /// Whether a prompt or a set of prompts was given.
    ///
    /// # Errors
    /// When a file of text cannot be read.
    pub fn has_prompt(&self) -> Result<bool> {
        Ok(self.set.is_some() || self.prompt.request()?.is_some())
    }

    /// Returns the set of prompts, or the one from the flags; `None` if none was given.
    ///
    /// # Errors
    /// When a file of text cannot be read.
    pub fn set(&mut self) -> Result<Option<PromptSet>> {
        match self.set.take() {
            Some(set) => Ok(Some(set)),
            None => Ok(self.prompt.request()?.map(PromptSet::of_one)),
        }
    }

    /// Opens a target without prompts.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open_alone(&self, target: &Path) -> Result<Opened> {
        let model = self.what_if.apply(self.model(target)?)?;
        let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer)?;
        Ok(Opened {
            model,
            named: Vec::new(),
            prompt_form,
        })
    }

    /// Replaces the prompts of an open target.
    ///
    /// # Errors
    /// When the target cannot run a prompt.
    pub fn give(&self, opened: &mut Opened, set: &PromptSet) -> Result<()> {
        opened.named.clear();
        opened.named = prepare(&self.prompt, Some(set), &opened.model, &opened.prompt_form)?;
        Ok(())
    }

    /// Opens a target as its files describe it, without what-ifs.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn model(&self, target: &Path) -> Result<Model> {
        let of_set = self.set.as_ref().is_some_and(PromptSet::is_picture);
        self.run.model(target, of_set || self.prompt.is_picture())
    }

    /// Prepares the prompts for a model.
    ///
    /// # Errors
    /// When one cannot be read, or the model cannot run it.
    pub fn prompts(&self, model: &Model, prompt_form: &PromptForm) -> Result<Vec<Named>> {
        Ok(prepare(
            &self.prompt,
            self.set.as_ref(),
            model,
            prompt_form,
        )?)
    }

    /// Checks that there is enough memory.
    ///
    /// # Errors
    /// When memory is short.
    pub fn check_memory(&self, need: MemoryNeed) -> Result<()> {
        self.run.check_memory(need)
    }

    /// Returns how to count positions and pad prompts that are already token ids.
    pub fn usual(&self) -> Request {
        self.prompt.usual()
    }

    /// Runs prompts together, layer by layer. With `keeps`, whole layers are kept as well as their numbers.
    ///
    /// # Errors
    /// When the model cannot be run.
    pub fn run(
        &self,
        model: &Model,
        chunk: &[Named],
        options: Options,
        keeps: bool,
    ) -> Result<Vec<Ran>> {
        let inputs: Vec<Input> = chunk.iter().map(|named| input_of(&named.prompt)).collect();
        let meter = Meter::of(model, &inputs, options).until(self.until);
        // Only the first prompt reports progress, for all of them.
        let says = |idx: usize| {
            let meter = &meter;
            move |progress: Progress| {
                if idx == 0 {
                    meter.show(progress);
                }
            }
        };
        let mut recorders: Vec<_> = (0..chunk.len())
            .map(|idx| Recorder::keeping(keeps, says(idx)))
            .collect();
        let jobs = inputs.iter().zip(&mut recorders);
        let jobs = jobs.map(|(input, recorder)| Job {
            input,
            observer: recorder,
            tap: None,
        });
        let jobs: Vec<Job<'_>> = jobs.collect();
        let outcomes = on_device!(&self.compute, ops => {
            attnscope_run::run_all(ops, model, jobs, options, &meter)
        })?;
        let ran = chunk.iter().zip(recorders).zip(outcomes);
        let finish = |((named, mut recorder), outcome): ((&Named, Recorder<_>), Outcome)| Ran {
            layers: recorder.take_whole(),
            record: recorder.finish(named.id.clone(), Some(model), &named.prompt, &outcome),
            outcome,
        };
        Ok(ran.map(finish).collect())
    }

    /// Checks that there is enough memory, and lets decoders generate the targets that were not given.
    ///
    /// `kept` is the number of bytes kept in addition to what a run needs.
    ///
    /// # Errors
    /// When memory is short, or a decoder fails.
    pub fn ready(&self, opened: &mut Opened, options: Options, kept: usize) -> Result<()> {
        let mut need = opened.need(options);
        need.kept += kept;
        self.run.check_memory(need)?;
        let seen = opened
            .named
            .iter()
            .find_map(|named| named.prompt.picture.as_ref());
        match seen {
            Some(picture) => log::info!("tokens: {}", picture.describe()),
            None => log::info!("tokenizer: {}", opened.prompt_form.describe()),
        }
        Ok(write_targets(
            &mut opened.named,
            &opened.model,
            &opened.prompt_form,
            &self.compute,
            &|| self.until.is_some_and(|until| Instant::now() >= until),
        )?)
    }
}

impl Opened {
    /// Returns the longest possible inputs, generated targets included.
    pub fn longest(&self) -> Vec<Input> {
        longest_inputs(&self.named)
    }

    fn need(&self, options: Options) -> MemoryNeed {
        let n_threads = rayon::current_num_threads();
        MemoryNeed::of(&self.model, &self.longest(), options, n_threads)
    }
}
