//! The messages that change the state, and what a change wants done outside it.

use attnscope_compute::error::Result;
use attnscope_history::Update;
use attnscope_prompt::Request;
use attnscope_report::Page;
use attnscope_run::{HeadQuery, WhatIf};
use attnscope_terminal::input::Answer;
use attnscope_terminal::theme::Ground;
use attnscope_worker::{
    Against, EffectQuery, Event, LayerSweepQuery, Pair, PartQuery, RowsQuery, RunId, StepOpening,
    SweepQuery,
};
use crossterm::event::{KeyEvent, MouseEvent};

use super::written::Written;

/// Everything that can happen.
#[derive(Debug)]
pub enum Msg {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    Resize(u16, u16),
    /// What the terminal says of itself; and its ground, where that is what it says.
    Answer(Answer),
    Ground(Ground),
    Worker(Event),
    /// What came of an export.
    Exported(Result<Written>),
    /// The story of a demo.
    Story(Result<Vec<Page>>),
    /// What was read of a training; nothing where only time has passed.
    History(Vec<Update>),
    /// Reading a training has come to its end.
    HistoryEnded(Result<()>),
    /// The program is asked from outside to end, or to stop for a while.
    Terminate,
    Stop,
    /// It goes on after it was stopped: everything is drawn again.
    Continued,
}

/// What an update wants done outside the state.
#[derive(Debug, PartialEq)]
pub enum Effect {
    Run(Request),
    /// Let the model write behind the text.
    Write,
    Cancel,
    LookAt(RunId, HeadQuery),
    LookAtPart(RunId, PartQuery),
    Tensor(String),
    Probe(RunId),
    Suppose(Vec<WhatIf>),
    Against(Against),
    Compare(Pair),
    /// Open a step of a training in the place of what is open.
    OpenStep(StepOpening),
    /// Keep a prompt for the next session.
    Remember(String),
    QueryRows(RowsQuery),
    /// Read the files of the checkpoint again, and run the text through what they hold now.
    ReadAgain,
    Sweep(SweepQuery),
    SweepLayer(LayerSweepQuery),
    Measure(EffectQuery),
    /// Hand a text to the clipboard.
    Copy(String),
    /// Give the terminal to the shell until it continues the program.
    Stop,
    /// Write what is on screen, and its data.
    Export,
    /// Write the data that is shown as a figure for paper.
    ExportFigure,
}
