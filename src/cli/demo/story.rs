//! What a demo is: a checkpoint, a text, what is in front, and where the figures of its report come from.

use anyhow::Result;
use attnscope_checkpoint::Opening;
use attnscope_checks::stats::Stat;
use attnscope_compute::ops::Compute;
use attnscope_report::Page;
use attnscope_screen::{Panel, Shown};
use attnscope_spec::Model;
use attnscope_worker::{FirstPrompt, PromptOrigin};

use crate::bundles;

/// One demo.
#[derive(Clone)]
pub struct Story {
    pub name: &'static str,
    pub title: &'static str,
    /// A compiled-in checkpoint.
    pub bundle: &'static str,
    /// How it is read where its configuration does not say.
    pub set: &'static [(&'static str, &'static str)],
    pub text: &'static str,
    pub target: Option<&'static str>,
    pub panel: Panel,
    /// Layer and head.
    pub at: (usize, usize),
    /// By which the grid is coloured.
    pub statistic: Stat,
    pub what_if: &'static [&'static str],
    /// The first line that a person reads.
    pub hint: &'static str,
    pub figures: Figures,
}

impl Story {
    /// Its checkpoint, with settings of a person after its own.
    pub fn opening(&self, asked: &[(String, String)]) -> Opening {
        let own = self.set.iter();
        let own = own.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Opening {
            set: own.chain(asked.iter().cloned()).collect(),
            bundle: bundles::named(self.bundle),
            ..Opening::default()
        }
    }

    pub fn first_prompt(&'static self) -> FirstPrompt {
        Box::new(move |_: &Model, _: bool| Ok((self.request(), PromptOrigin::BuiltIn)))
    }

    /// The panel, layer, head and statistic that it begins with.
    pub fn shown(&self) -> Shown {
        Shown {
            layer_idx: Some(self.at.0),
            head_idx: Some(self.at.1),
            statistic_idx: self.statistic.idx(),
            ..Shown::of(self.panel)
        }
    }
}

/// A story, what runs it, and what a person sets.
pub struct Telling<'a> {
    pub story: &'a Story,
    pub compute: &'a Compute,
    pub set: &'a [(String, String)],
}

/// Where a report's figures come from.
#[derive(Clone, Copy)]
pub enum Figures {
    /// Pages, which the screen shows too.
    Pages(fn(&Telling<'_>) -> Result<Vec<Page>>),
    Text(fn(&Telling<'_>) -> Result<String>),
}
