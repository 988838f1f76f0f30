//! Flags about a run that other code makes: what a trace or a live model is declared to be, and who runs it.

use std::path::PathBuf;

use anyhow::Result;
use attnscope_compute::attention::SoftmaxAxis;
use attnscope_live::{LiveSession, LiveTarget, Request};
use attnscope_run::{Declared, DeclaredMask, LiveRun, live_request, record_live};
use clap::ValueEnum;

use super::PromptArgs;
use super::progress::{Task, note};
use super::python_code::CODE;

/// What a trace or a live model is declared to be, if nothing else says so.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Traces and live models")]
pub struct LiveArgs {
    /// Python interpreter that runs FILE.py:NAME [default: python3 of the active environment]
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Which keys a query may see
    #[arg(long, value_enum)]
    mask: Option<MaskArg>,
    /// How many keys back a query sees, itself included
    #[arg(long, value_name = "W", value_parser = clap::value_parser!(u32).range(1..))]
    window: Option<u32>,
    /// Axis that the softmax should run over
    #[arg(long, value_enum)]
    softmax_axis: Option<AxisArg>,
    /// Positions at which packed documents begin
    #[arg(long, value_name = "0,17,…", value_delimiter = ',')]
    documents: Option<Vec<usize>>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MaskArg {
    Causal,
    #[value(alias = "none")]
    Bidirectional,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AxisArg {
    Keys,
    Queries,
}

impl LiveArgs {
    pub fn declared(&self, prompt: &PromptArgs) -> Declared {
        Declared {
            mask: self.mask.map(|mask| match mask {
                MaskArg::Causal => DeclaredMask::Causal,
                MaskArg::Bidirectional => DeclaredMask::Bidirectional,
            }),
            window: self.window.map(|width| width as usize),
            axis: self.softmax_axis.map(|axis| match axis {
                AxisArg::Keys => SoftmaxAxis::Keys,
                AxisArg::Queries => SoftmaxAxis::Queries,
            }),
            attention_mask: prompt.real_tokens(),
            documents: self.documents.clone(),
        }
    }

    /// Whether any flag is set that only other code's runs take.
    pub fn is_set(&self) -> bool {
        self.mask.is_some()
            || self.window.is_some()
            || self.softmax_axis.is_some()
            || self.documents.is_some()
            || self.python.is_some()
    }

    /// Starts a live target.
    ///
    /// # Errors
    /// When there is no place for what it records.
    pub fn session(&self, target: &LiveTarget) -> Result<LiveSession> {
        Ok(LiveSession::new(
            target.clone(),
            self.python.as_deref(),
            CODE,
        )?)
    }

    /// Runs a live target once, on the prompt of the flags or on one that it chooses.
    ///
    /// # Errors
    /// When the person's code fails, or no attention was seen in it.
    pub fn record(&self, session: &mut LiveSession, prompt: &PromptArgs) -> Result<LiveRun> {
        let asked = prompt.request()?;
        let request = live_request(asked.as_ref(), &self.declared(prompt))?;
        self.record_request(session, &request, prompt)
    }

    /// Runs a live target once, as a request says.
    ///
    /// # Errors
    /// When the person's code fails, or no attention was seen in it.
    pub fn record_request(
        &self,
        session: &mut LiveSession,
        request: &Request,
        prompt: &PromptArgs,
    ) -> Result<LiveRun> {
        let task = Task::begin("running", 0);
        let told = &mut |_: &str, n_done: usize, n: usize| task.at(n_done, n);
        let declared = self.declared(prompt);
        let ran = record_live(session, request, &declared, told, &|| false)?;
        drop(task);
        note(&format!("{}: {}", session.target(), ran.recorded.about));
        Ok(ran)
    }
}
