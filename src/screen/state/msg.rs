//! Messages that change the state, and effects that a change requests.

use attnscope_compute::error::Result;
use attnscope_history::Update;
use attnscope_prompt::Request;
use attnscope_report::Page;
use attnscope_run::{HeadQuery, WhatIf};
use attnscope_terminal::input::Answer;
use attnscope_terminal::theme::Ground;
use attnscope_worker::{
    Against, EffectQuery, Event, LayerSweepQuery, Pair, PartQuery, PromptsQuery, RowsQuery, RunId,
    StepOpening, SweepQuery,
};
use crossterm::event::{KeyEvent, MouseEvent};

use super::written::Written;

/// Everything that can happen to the state.
#[derive(Debug)]
pub enum Msg {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    /// The text as the user's own editor left it, or why there was no such editor.
    EditedOutside(Result<String>),
    Resize(u16, u16),
    /// The terminal's answer to a query, and its background colour, if that was the answer.
    Answer(Answer),
    Ground(Ground),
    Worker(Event),
    /// The result of an export.
    Exported(Result<Written>),
    /// The story of a demo.
    Story(Result<Vec<Page>>),
    /// Updates of a training; empty if only time has passed.
    History(Vec<Update>),
    /// Reading a training has ended.
    HistoryEnded(Result<()>),
    /// A command of the settings ended: its index, and the last line that it said, or why it failed.
    Commanded(usize, std::result::Result<String, String>),
    /// A signal asks the program to end or to suspend.
    Terminate,
    Stop,
    /// The program continues after it was suspended, so everything is redrawn.
    Continued,
}

/// An effect that an update requests outside the state.
#[derive(Debug, PartialEq)]
pub enum Effect {
    Run(Request),
    /// Generate text after the prompt.
    Write,
    Cancel,
    LookAt(RunId, HeadQuery),
    LookAtPart(RunId, PartQuery),
    Tensor(String),
    Probe(RunId),
    WhatIf(Vec<WhatIf>),
    Against(Against),
    Compare(Pair),
    /// Load the code of a live model anew, to compare with a run of it.
    Reload(RunId),
    /// Show a run of before again, as A or as B.
    Again(RunId, bool),
    /// Open a step of a training instead of the open model.
    OpenStep(StepOpening),
    /// Store a prompt for the next session.
    Remember(String),
    QueryRows(RowsQuery),
    /// Read the files of the checkpoint again, and run the text on their new contents.
    ReadAgain,
    Sweep(SweepQuery),
    SweepLayer(LayerSweepQuery),
    Measure(EffectQuery),
    /// Run many prompts through the open model.
    OverPrompts(PromptsQuery),
    /// Copy a text to the clipboard.
    Copy(String),
    /// Give the terminal to the user's own editor, to edit a text in it.
    EditOutside(String),
    /// Run a command of the settings.
    Command(ReadyCommand),
    /// Suspend the program until the shell continues it.
    Stop,
    /// Export the screen and its data.
    Export,
    /// Export the shown data as a figure for paper.
    ExportFigure,
}

/// A command of the settings, with values in place of placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyCommand {
    /// Its index.
    pub nth: usize,
    pub words: Vec<String>,
    /// Whether it gets the terminal, or runs in the background.
    pub has_terminal: bool,
}
