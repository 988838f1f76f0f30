//! The state of the whole screen and of the overlay in front of its panels.

use std::collections::VecDeque;
use std::sync::Arc;

use attnscope_checks::Check;
use attnscope_checks::stats::HeadType;
use attnscope_compute::ops::Device;
use attnscope_prompt::{PromptForm, Source};
use attnscope_run::Subject;
use attnscope_spec::Place;
use attnscope_terminal::theme::Theme;

use super::chooser::Chooser;
use super::copied::Copied;
use super::drawn::Drawn;
use super::editor::Editor;
use super::effect_view::EffectView;
use super::filter::{Filters, Search};
use super::find::Find;
use super::history_view::HistoryView;
use super::keymap::Keymap;
use super::keys::Action;
use super::known::Known;
use super::limits::Limits;
use super::look::Look;
use super::marks::Marks;
use super::panel::Panel;
use super::panes::Panes;
use super::prompts_view::PromptsView;
use super::rows_view::RowsView;
use super::run::Preparing;
use super::runs::Runs;
use super::selection::Selection;
use super::setup::{OwnLook, Setup};
use super::statistics::statistic;
use super::story_view::StoryView;
use super::supposed::Situation;
use super::sweep_view::SweepView;
use super::trail::Trail;
use super::views::{ChecksView, CompareView, HeadView, ModelView, OverviewView, TokensView};
use super::writing_view::WritingView;

/// An overlay in front of the panels, which gets the keys.
#[derive(Debug)]
pub enum Overlay {
    /// All keys; `typed` are the letters that filter them, once a filter was begun.
    Help {
        scroll: usize,
        typed: Option<String>,
    },
    /// The filter of the open panel's list, while it is typed; `before` is the row that was selected.
    Filter {
        before: usize,
    },
    /// The page of a check.
    Page {
        check: &'static Check,
        scroll: usize,
    },
    Find(Find),
    /// Everything that can be searched, or statistics only.
    Palette(Find),
    Edit(Box<Editor>),
    WhatIf(Chooser),
    /// Texts that can be copied.
    Copy(Vec<Copied>),
    /// Text that the model generates.
    Writing(Box<WritingView>),
}

/// The whole state. Drawing reads it, updates change it.
#[derive(Debug)]
pub struct App {
    pub theme: Theme,
    /// Whether the theme follows the terminal's background, because nobody chose one.
    pub follows_ground: bool,
    pub keys: Keymap,
    /// Themes of the user's own.
    pub themes: Vec<OwnLook>,
    /// Commands of the settings that run in the background, by their indices.
    pub commands_running: Vec<usize>,
    /// Whether the terminal's clipboard may be written.
    pub has_clipboard: bool,
    pub limits: Limits,
    /// Command-line words that open the same thing; `None` if no command draws it.
    pub target: Option<Vec<String>>,
    /// Saved views, the newest last.
    pub bookmarks: Vec<Look>,
    /// Maps of heads that were drawn before.
    pub drawn: Drawn,
    /// Position of the mouse pointer, until a key is pressed.
    pub pointer: Option<(u16, u16)>,
    pub size: (u16, u16),
    pub panel: Panel,
    /// Panels to return to.
    pub history: Vec<Panel>,
    pub selection: Selection,
    /// Name of the checkpoint until it is open.
    pub opening: String,
    /// The model opened last: A's, unless nothing of it has run yet.
    pub opened: Option<Subject>,
    pub has_tokenizer: bool,
    /// Name of the tokenizer, or the reason that prompts can only be ids.
    pub tokenizer: String,
    /// What cuts texts into tokens while they are typed; `None` where another process does, or nothing.
    pub prompt_form: Option<Arc<PromptForm>>,
    pub runs: Runs,
    pub known: Known,
    /// Prompt of the last run, kept while the files are read again and nothing runs yet.
    pub last_source: Option<Source>,
    /// Why the run shown no longer matches the checkpoint's files.
    pub changed: Option<String>,
    pub sweep: SweepView,
    pub effect_view: EffectView,
    pub prompts_view: PromptsView,
    /// The open training, whether or not one of its steps is open.
    pub training: Option<HistoryView>,
    /// The story of a demo.
    pub story: Option<StoryView>,
    /// The device that computes.
    pub device: Device,
    /// Stage of a submitted prompt whose run has not started.
    pub preparing: Option<Preparing>,
    pub statistic_idx: usize,
    pub overview_view: OverviewView,
    pub head_view: HeadView,
    pub tokens_view: TokensView,
    pub model_view: ModelView,
    pub checks_view: ChecksView,
    pub compare_view: CompareView,
    pub rows_view: RowsView,
    pub filters: Filters,
    pub marks: Marks,
    pub panes: Panes,
    /// Views to go back and forward to.
    pub views: Trail<Look>,
    /// Texts and what-ifs to undo and redo.
    pub undone: Trail<Situation>,
    /// What the finder found last.
    pub search: Option<Search>,
    /// Heads of this type are highlighted; without a type, all are.
    pub shown_type: Option<HeadType>,
    pub overlay: Option<Overlay>,
    /// The text field that waits for an earlier text to be chosen.
    pub waiting_editor: Option<Box<Editor>>,
    /// One line about the last request that was refused.
    pub notice: Option<String>,
    /// One line about the last file written.
    pub written: Option<String>,
    /// Whether small models are probed without a key press. Plots turn it off: they only compute what they show.
    pub asks_by_itself: bool,
    /// Whether the header shows how long a run took. Plots turn it off, to be reproducible.
    pub shows_times: bool,
    /// Shown one after each key where there is no notice; none but in the first session with one's own checkpoint.
    pub tips: VecDeque<String>,
    /// Notice to show when the first run starts.
    pub opening_notice: Option<String>,
    pub is_over: bool,
    /// Why there is nothing to show; printed after the terminal is restored.
    pub fatal: Option<String>,
}

impl App {
    pub fn new(theme: Theme, size: (u16, u16), opening: String) -> Self {
        Self {
            theme,
            follows_ground: false,
            keys: Keymap::default(),
            themes: Vec::new(),
            commands_running: Vec::new(),
            has_clipboard: true,
            limits: Limits::default(),
            target: None,
            bookmarks: Vec::new(),
            drawn: Drawn::default(),
            pointer: None,
            size,
            panel: Panel::Overview,
            history: Vec::new(),
            selection: Selection::default(),
            opening,
            opened: None,
            has_tokenizer: false,
            tokenizer: String::new(),
            prompt_form: None,
            runs: Runs::default(),
            known: Known::default(),
            last_source: None,
            changed: None,
            sweep: SweepView::default(),
            effect_view: EffectView::default(),
            prompts_view: PromptsView::default(),
            training: None,
            story: None,
            device: Device::default(),
            preparing: Some(Preparing::Text),
            statistic_idx: 0,
            overview_view: OverviewView::default(),
            head_view: HeadView::default(),
            tokens_view: TokensView::default(),
            model_view: ModelView::default(),
            checks_view: ChecksView::default(),
            compare_view: CompareView::default(),
            rows_view: RowsView::default(),
            filters: Filters::default(),
            marks: Marks::default(),
            panes: Panes::default(),
            views: Trail::default(),
            undone: Trail::default(),
            search: None,
            shown_type: None,
            overlay: None,
            waiting_editor: None,
            notice: None,
            written: None,
            asks_by_itself: false,
            shows_times: true,
            tips: VecDeque::new(),
            opening_notice: None,
            is_over: false,
            fatal: None,
        }
    }
    /// Applies the settings of the screen.
    pub fn set_up(&mut self, setup: Setup) {
        self.theme = setup.theme;
        self.follows_ground = setup.asks_ground;
        self.keys = setup.keys;
        self.has_clipboard = setup.has_clipboard;
        self.limits = setup.limits;
        self.themes = setup.themes;
        self.statistic_idx = setup.statistic_idx;
    }

    /// The current view, to return to later.
    pub fn look(&self) -> Look {
        let at = self.selection;
        Look {
            panel: self.panel.title().to_owned(),
            stack: at.stack.label().unwrap_or_default().to_owned(),
            layer: at.layer_idx,
            head: at.head_idx,
            query: at.query_idx,
            key: at.key_idx,
            statistic: statistic(self.statistic_idx).id.to_owned(),
            map: self.head_view.map.name().to_owned(),
            log: self.head_view.is_log,
            numbers: self.overview_view.shows_numbers,
        }
    }

    /// The available panels: only demos have a story, only a training has a history, and Prompts is there once it was opened.
    pub fn panels(&self) -> impl Iterator<Item = Panel> + use<> {
        let (has_story, has_history) = (self.story.is_some(), self.training.is_some());
        let has_prompts = self.prompts_view.is_open || self.panel == Panel::Prompts;
        let all = Panel::ALL.into_iter();
        all.filter(move |panel| match panel {
            Panel::Prompts => has_prompts,
            Panel::Story => has_story,
            Panel::History => has_history,
            _ => true,
        })
    }

    /// Name of the key that opens a panel, as settings may have changed it.
    pub fn key_name_of(&self, panel: Panel) -> String {
        if self.keys.is_changed(Action::Go(panel)) {
            self.keys.key(Action::Go(panel))
        } else {
            panel.key().to_string()
        }
    }

    /// The step marked for comparison, unless B was closed.
    pub fn marked_step(&self) -> Option<usize> {
        let is_compared = self.runs.b.is_some() || self.runs.a.is_none();
        self.training.as_ref()?.marked().filter(|_| is_compared)
    }

    /// The place that a cell of the History panel refers to: a layer if the statistic is per layer, else a head.
    pub fn history_place(&self, is_of_layers: bool) -> Place {
        let head = self.selection.head();
        if is_of_layers {
            Place {
                head_idx: None,
                ..head
            }
        } else {
            head
        }
    }
}
