//! What a demo is: a checkpoint, a text, what is in front, and where the figures of its report come from.

use anyhow::Result;
use attnscope_checks::stats::Stat;
use attnscope_compute::ops::Compute;
use attnscope_report::Page;
use attnscope_screen::Panel;

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
    /// Another command of this program.
    Command(&'static str),
    /// Another command, and pages that go on where it ends.
    CommandAndPages(&'static str, fn(&Telling<'_>) -> Result<Vec<Page>>),
}
