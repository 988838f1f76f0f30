//! The state of the screen as a whole, and what lies over its panels.

use attnscope_checks::Check;
use attnscope_checks::stats::HeadType;
use attnscope_compute::ops::Device;
use attnscope_prompt::Source;
use attnscope_run::Subject;
use attnscope_spec::Place;
use attnscope_terminal::theme::Theme;

use super::chooser::Chooser;
use super::copied::Copied;
use super::editor::Editor;
use super::effect_view::EffectView;
use super::find::Find;
use super::history_view::HistoryView;
use super::keymap::Keymap;
use super::keys::Action;
use super::known::Known;
use super::limits::Limits;
use super::look::Look;
use super::panel::Panel;
use super::rows_view::RowsView;
use super::run::Preparing;
use super::runs::Runs;
use super::selection::Selection;
use super::setup::Setup;
use super::statistics::statistic;
use super::story_view::StoryView;
use super::sweep_view::SweepView;
use super::views::{ChecksView, CompareView, HeadView, ModelView, TokensView};
use super::writing_view::WritingView;

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

    /// Where the screen is now, to come back to it.
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
        }
    }

    /// The panels that there are here: only demos tell stories, and only a training has a history.
    pub fn panels(&self) -> impl Iterator<Item = Panel> + use<> {
        let (has_story, has_history) = (self.story.is_some(), self.training.is_some());
        let all = Panel::ALL.into_iter();
        all.filter(move |panel| match panel {
            Panel::Story => has_story,
            Panel::History => has_history,
            _ => true,
        })
    }

    /// The key that opens a panel here: beside a training, 8 is its history.
    pub fn key_of(&self, panel: Panel) -> char {
        match (panel, self.training.is_some()) {
            (Panel::History, true) => '8',
            (Panel::Rows, true) => 'N',
            (panel, _) => panel.key(),
        }
    }

    /// How the key that opens a panel is written, as settings may have changed it.
    pub fn key_name_of(&self, panel: Panel) -> String {
        if self.keys.is_changed(Action::Go(panel)) {
            self.keys.key(Action::Go(panel))
        } else {
            self.key_of(panel).to_string()
        }
    }

    /// The step that is compared with, as far as it still is.
    pub fn marked_step(&self) -> Option<usize> {
        let is_beside = self.runs.b.is_some() || self.runs.a.is_none();
        self.training.as_ref()?.marked().filter(|_| is_beside)
    }

    /// The place that the panel's cells are of: a layer where the statistic is one of layers.
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
