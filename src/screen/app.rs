//! The state of the screen, and the messages that change it.

use std::collections::BTreeMap;

use attnscope_checks::Check;
use attnscope_checks::stats::HeadType;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Device;
use attnscope_history::Update;
use attnscope_prompt::{Request, Source};
use attnscope_report::Page;
use attnscope_run::{HeadMap, HeadQuery, Subject, TensorStats, WhatIf};
use attnscope_worker::{
    Against, EffectQuery, Event, LayerSweepQuery, Pair, PartQuery, RowsQuery, RunId, StepOpening,
    SweepQuery,
};
use crossterm::event::{KeyEvent, MouseEvent};

use super::bookmarks::Look;
use super::chooser::Chooser;
use super::comparing::CompareView;
use super::copying::Copied;
use super::editor::Editor;
use super::effects::EffectView;
use super::export::written::Written;
use super::find::Find;
use super::history_view::HistoryView;
use super::input::Answer;
use super::keymap::Keymap;
use super::known::Known;
use super::panel::Panel;
use super::run::Preparing;
use super::runs::Runs;
use super::selection::Selection;
use super::setup::{Limits, Setup};
use super::story_view::StoryView;
use super::sweep_view::SweepView;
use super::theme::{Ground, Theme};
use super::token_statistics::RowsView;
use super::writing_view::WritingView;

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

/// An axis of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    Query,
    Key,
}

/// What lies over the panels and takes the keys.
#[derive(Debug)]
pub enum Overlay {
    Help {
        scroll: usize,
    },
    /// The page of a check.
    Page {
        check: &'static Check,
        scroll: usize,
    },
    Find(Find),
    /// Everything there is, or statistics alone.
    Palette(Find),
    Edit(Box<Editor>),
    WhatIf(Chooser),
    /// What can be copied.
    Copy(Vec<Copied>),
    /// What the model writes.
    Writing(Box<WritingView>),
}

/// Which matrix the Head panel shows, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeadView {
    /// What was asked for; where it is not known, the pattern stands in its place.
    pub map: HeadMap,
    pub is_log: bool,
    pub hides_first_key: bool,
    /// Single cells even where the map as a whole is pooled.
    pub is_full: bool,
    /// Pixels per cell when 1 or more, 2^−zoom cells per pixel when 0 or less; `None` fits the map to the panel.
    pub zoom: Option<i32>,
    /// First query and key shown; moved so that the crosshair is in sight.
    pub first_query: usize,
    pub first_key: usize,
}

/// Scroll and direction of the Tokens panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokensView {
    /// Shade by what the selected key receives, not by what the selected query gives.
    pub shows_received: bool,
}

/// Scroll of the Model panel, and figures that have arrived.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelView {
    pub tensor_idx: usize,
    pub knob_scroll: usize,
    /// `None` while being computed, `Some(None)` where there are none.
    pub stats: BTreeMap<String, Option<Option<TensorStats>>>,
}

/// Which line of the Checks panel is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChecksView {
    pub line_idx: usize,
}

/// The whole state. Drawing reads it, updates change it.
#[derive(Debug)]
pub struct App {
    pub theme: Theme,
    pub keys: Keymap,
    /// Whether text may be handed to the terminal's clipboard.
    pub has_clipboard: bool,
    pub limits: Limits,
    /// What was opened, as words of a command line; `None` where none draws it.
    pub target: Option<Vec<String>>,
    /// Views to come back to, the newest last.
    pub bookmarks: Vec<Look>,
    /// Where the pointer rests, as long as no key is pressed.
    pub pointer: Option<(u16, u16)>,
    pub size: (u16, u16),
    pub panel: Panel,
    /// Panels to go back to.
    pub history: Vec<Panel>,
    pub selection: Selection,
    /// What to call the checkpoint before it is open.
    pub opening: String,
    /// What was opened last: that of A, unless nothing of it has run yet.
    pub opened: Option<Subject>,
    pub has_tokenizer: bool,
    /// What ids come from, or why prompts can only be ids.
    pub tokenizer: String,
    pub runs: Runs,
    pub known: Known,
    /// What the last run was of, where the files were read again and nothing runs yet.
    pub last_source: Option<Source>,
    /// Why what is shown is no longer what the files of the checkpoint hold.
    pub changed: Option<String>,
    pub sweep: SweepView,
    pub effect_view: EffectView,
    /// The training that is open, whether or not a step of it is.
    pub training: Option<HistoryView>,
    /// What a demo tells.
    pub story: Option<StoryView>,
    /// What computes.
    pub device: Device,
    /// What happens to a prompt that was handed over and does not run yet.
    pub preparing: Option<Preparing>,
    pub statistic_idx: usize,
    pub head_view: HeadView,
    pub tokens_view: TokensView,
    pub model_view: ModelView,
    pub checks_view: ChecksView,
    pub compare_view: CompareView,
    pub rows_view: RowsView,
    /// Heads of this type stand out; all do where there is none.
    pub shown_type: Option<HeadType>,
    pub overlay: Option<Overlay>,
    /// One line about the last thing that was refused.
    pub notice: Option<String>,
    /// One line about the last thing that was written.
    pub written: Option<String>,
    /// Whether small models are asked on changed prompts without a key: pictures wait for nothing that they do not show.
    pub asks_by_itself: bool,
    /// Whether the header says how long a run took: pictures that are made again are to be the same.
    pub shows_times: bool,
    /// What a person is to know when the first run begins.
    pub opening_notice: Option<String>,
    pub is_over: bool,
    /// Why there is nothing to show: printed after the terminal is restored.
    pub fatal: Option<String>,
}

impl App {
    pub fn new(theme: Theme, size: (u16, u16), opening: String) -> Self {
        Self {
            theme,
            keys: Keymap::default(),
            has_clipboard: true,
            limits: Limits::default(),
            target: None,
            bookmarks: Vec::new(),
            pointer: None,
            size,
            panel: Panel::Overview,
            history: Vec::new(),
            selection: Selection::default(),
            opening,
            opened: None,
            has_tokenizer: false,
            tokenizer: String::new(),
            runs: Runs::default(),
            known: Known::default(),
            last_source: None,
            changed: None,
            sweep: SweepView::default(),
            effect_view: EffectView::default(),
            training: None,
            story: None,
            device: Device::default(),
            preparing: Some(Preparing::Text),
            statistic_idx: 0,
            head_view: HeadView::default(),
            tokens_view: TokensView::default(),
            model_view: ModelView::default(),
            checks_view: ChecksView::default(),
            compare_view: CompareView::default(),
            rows_view: RowsView::default(),
            shown_type: None,
            overlay: None,
            notice: None,
            written: None,
            asks_by_itself: false,
            shows_times: true,
            opening_notice: None,
            is_over: false,
            fatal: None,
        }
    }
    /// Takes what settings say of the screen.
    pub fn set_up(&mut self, setup: Setup) {
        self.theme = setup.theme;
        self.keys = setup.keys;
        self.has_clipboard = setup.has_clipboard;
        self.limits = setup.limits;
        self.statistic_idx = setup.statistic_idx;
    }
}
