//! What is shown without a model that runs: a trace, whose one run is over, and an alignment, which is computed at once.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::event::{Event, PromptOrigin, RunId};
use super::lane::lock;
use super::runner::Runner;
use super::{Given, Sink};
use attnscope_engine::analysis::align::{Aligned, Alignment};
use attnscope_engine::analysis::{self, Declared, Judgement, WhatIf};
use attnscope_engine::checkpoint::captured::Captured;
use attnscope_engine::checks::{Probes, Thresholds};
use attnscope_engine::error::{Error, Result};
use attnscope_engine::ops::Device;
use attnscope_engine::prompt::{Request, Source};

impl Runner {
    /// Shows a trace as a run that is over.
    pub(super) fn show_trace(&mut self, run: RunId, path: &Path) -> Result<()> {
        if analysis::is_probe(path) {
            let problem =
                "a probe holds what moved, and no attention to show: attnscope check judges it";
            return Err(Error::file(path, problem));
        }
        let captured = Captured::open(path)?;
        let trace = analysis::read_trace(&captured, &Declared::default())?;
        let view = analysis::view_of(&captured, &trace);
        let at = view
            .layers
            .iter()
            .map(|layer| (layer.stack, layer.layer_idx));
        let arrays = at.zip(trace.arrays.iter().cloned()).collect();
        {
            let mut context = lock(&self.context);
            context.model = Some(view.model.clone());
            context.given = Some((run, Arc::new(Given::Trace { captured, arrays })));
        }
        let sink = &self.sink;
        sink(Event::Opened {
            model: view.model,
            has_tokenizer: false,
            tokenizer: format!("a trace; {}", trace.mask_origin),
            device: Device::Cpu,
        });
        let ids = view.prompt.given().tokens.clone();
        sink(Event::Started {
            run,
            prompt: Arc::new(view.prompt),
            source: Source::Ids(ids),
            origin: PromptOrigin::Asked,
        });
        for report in &view.layers {
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
        let verdicts = analysis::judge_trace(&trace, &view.layers, &Thresholds::default());
        let probes = Probes::none("a trace holds one run");
        sink(Event::Judged {
            run,
            judgement: Arc::new(Judgement { verdicts, probes }),
            is_probed: true,
        });
        Ok(())
    }

    /// Opens an alignment and shows it.
    pub(super) fn show_alignment(&mut self, run: RunId, alignment: Alignment) {
        (self.sink)(Event::Opened {
            model: alignment.model.clone(),
            has_tokenizer: true,
            tokenizer: "words as the dictionaries have them".to_owned(),
            device: Device::Cpu,
        });
        self.begin_alignment(run, alignment);
    }

    fn begin_alignment(&mut self, run: RunId, alignment: Alignment) {
        let aligned = alignment.align();
        (self.sink)(Event::Started {
            run,
            prompt: Arc::new(alignment.prompt()),
            source: Source::Text(alignment.text()),
            origin: PromptOrigin::Asked,
        });
        let given = Given::Alignment(Box::new(alignment.clone()), Box::new(aligned.clone()));
        {
            let mut context = lock(&self.context);
            context.model = Some(alignment.model.clone());
            context.given = Some((run, Arc::new(given)));
            context.supposed_given = None;
        }
        tell(&self.sink, run, &aligned);
    }

    /// Another text, where there is something to run it through.
    ///
    /// # Errors
    /// When there is nothing, or the text is none that can be aligned.
    pub(super) fn run_given(&mut self, run: RunId, given: &Given, request: &Request) -> Result<()> {
        match (given, &request.source) {
            (Given::Trace { .. }, _) => {
                let problem = "a trace holds one run: there is no model to run another text with";
                Err(Error::Prompt(problem.to_owned()))
            }
            (Given::Alignment(alignment, _), Source::Text(text)) => {
                self.begin_alignment(run, alignment.of_texts(text)?);
                Ok(())
            }
            (Given::Alignment(..), Source::Ids(_)) => {
                let problem = "an alignment is of words: expected two texts, found ids";
                Err(Error::Prompt(problem.to_owned()))
            }
        }
    }

    /// The same words with another attention.
    ///
    /// # Errors
    /// When there is nothing to compute it from, or a place is none of an alignment's.
    pub(super) fn suppose_given(
        &mut self,
        run: RunId,
        given: &Given,
        what_ifs: &[WhatIf],
    ) -> Result<()> {
        let Given::Alignment(alignment, _) = given else {
            let problem = "a trace holds no weights to run again";
            return Err(Error::Prompt(problem.to_owned()));
        };
        let alignment = alignment.supposing(what_ifs)?;
        let aligned = alignment.align();
        let model = alignment.model.clone();
        let given = Given::Alignment(Box::new(alignment), Box::new(aligned.clone()));
        lock(&self.context).supposed_given = Some((run, Arc::new(given)));
        (self.sink)(Event::Supposed { run, model });
        tell(&self.sink, run, &aligned);
        Ok(())
    }
}

/// An alignment as a run that is over.
fn tell(sink: &Sink, run: RunId, aligned: &Aligned) {
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
    let verdicts = aligned.judge(&Thresholds::default());
    let probes = Probes::none("two tables are no model that could be asked again");
    sink(Event::Judged {
        run,
        judgement: Arc::new(Judgement { verdicts, probes }),
        is_probed: true,
    });
}
