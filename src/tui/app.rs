//! The state of the screen, and the messages that change it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossterm::event::{KeyEvent, MouseEvent};

use super::chooser::Chooser;
use super::editor::Editor;
use super::export::Written;
use super::find::Find;
use super::full_part::Wanted;
use super::run_view::{Preparing, RunState, RunView};
use super::selection::Selection;
use super::story_view::StoryView;
use super::supposed::Supposed;
use super::sweep_view::SweepView;
use super::theme::Theme;
use crate::report::Page;
use crate::worker::{Event, LayerSweepQuery, PartQuery, RunId, SweepQuery};
use attnscope_engine::analysis::{HeadDetail, HeadQuery, PartDetail, TensorStats, WhatIf};
use attnscope_engine::attention::AttentionSpec;
use attnscope_engine::checks::{Check, Finding, Severity};
use attnscope_engine::error::Result;
use attnscope_engine::model::{Model, Stack};
use attnscope_engine::ops::Device;
use attnscope_engine::prompt::{Prompt, Request, Source};
use attnscope_engine::stats::{HeadType, LayerReport, STATISTICS, Statistic};

/// Everything that can happen.
#[derive(Debug)]
pub enum Msg {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Paste(String),
    Resize(u16, u16),
    Worker(Event),
    /// What came of an export.
    Exported(Result<Written>),
    /// The story of a demo.
    Story(Result<Vec<Page>>),
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
    Cancel,
    LookAt(RunId, HeadQuery),
    LookAtPart(RunId, PartQuery),
    Tensor(String),
    Probe(RunId),
    Suppose(Vec<WhatIf>),
    /// Read the files of the checkpoint again, and run the text through what they hold now.
    ReadAgain,
    Sweep(SweepQuery),
    SweepLayer(LayerSweepQuery),
    /// Give the terminal to the shell until it continues the program.
    Stop,
    /// Write what is on screen, and its data.
    Export,
}

/// The panels, in the order of their number keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Panel {
    Overview,
    Head,
    Scores,
    Tokens,
    Model,
    Checks,
    WhatIf,
    Rows,
    Sweep,
    /// Only in demos that tell one.
    Story,
}

impl Panel {
    pub const ALL: [Self; 10] = [
        Self::Overview,
        Self::Head,
        Self::Scores,
        Self::Tokens,
        Self::Model,
        Self::Checks,
        Self::WhatIf,
        Self::Rows,
        Self::Sweep,
        Self::Story,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Head => "Head",
            Self::Scores => "Scores",
            Self::Tokens => "Tokens",
            Self::Model => "Model",
            Self::Checks => "Checks",
            Self::WhatIf => "What if",
            Self::Rows => "Rows",
            Self::Sweep => "Sweep",
            Self::Story => "Story",
        }
    }

    /// The key that opens it.
    pub fn key(self) -> char {
        match self {
            Self::Story => 'S',
            panel => char::from_digit(panel.index() as u32 + 1, 10).unwrap_or(' '),
        }
    }

    /// Whether it is about the selected head, computed in full.
    pub fn shows_head(self) -> bool {
        matches!(
            self,
            Self::Head | Self::Scores | Self::Tokens | Self::WhatIf | Self::Sweep
        )
    }

    /// Panels that are about the selected head.
    pub fn is_of_head(self) -> bool {
        self.shows_head() || self == Self::Rows
    }

    /// Panels that look at both sides of what is supposed.
    pub fn compares(self) -> bool {
        self == Self::WhatIf
    }

    pub fn index(self) -> usize {
        Self::ALL
            .iter()
            .position(|p| *p == self)
            .unwrap_or_default()
    }
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
    Edit(Box<Editor>),
    WhatIf(Chooser),
}

/// Which matrix the Head panel shows, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeadView {
    pub shows_scores: bool,
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
    pub size: (u16, u16),
    pub panel: Panel,
    /// Panels to go back to.
    pub history: Vec<Panel>,
    pub selection: Selection,
    /// What to call the checkpoint before it is open.
    pub opening: String,
    pub model: Option<Arc<Model>>,
    pub has_tokenizer: bool,
    /// What ids come from, or why prompts can only be ids.
    pub tokenizer: String,
    pub run: Option<RunView>,
    /// What the last run was of, where the files were read again and nothing runs yet.
    pub last_source: Option<Source>,
    /// Why what is shown is no longer what the files of the checkpoint hold.
    pub changed: Option<String>,
    /// Another attention beside the checkpoint's own.
    pub supposed: Option<Supposed>,
    pub sweep: SweepView,
    /// What a demo tells.
    pub story: Option<StoryView>,
    /// What computes.
    pub device: Device,
    /// What happens to a prompt that was handed over and does not run yet.
    pub preparing: Option<Preparing>,
    pub statistic_idx: usize,
    /// The head last computed in full.
    pub detail: Option<(HeadQuery, Arc<HeadDetail>)>,
    /// The head being computed.
    pub awaited: Option<HeadQuery>,
    /// The part of a long head last computed at full resolution, and the one being computed.
    pub part: Option<(HeadQuery, Arc<PartDetail>)>,
    pub awaited_part: Option<Wanted>,
    pub head_view: HeadView,
    pub tokens_view: TokensView,
    pub model_view: ModelView,
    pub checks_view: ChecksView,
    /// Heads of this type stand out; all do where there is none.
    pub shown_type: Option<HeadType>,
    pub overlay: Option<Overlay>,
    /// One line about the last thing that was refused.
    pub notice: Option<String>,
    /// One line about the last thing that was written.
    pub written: Option<String>,
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
            size,
            panel: Panel::Overview,
            history: Vec::new(),
            selection: Selection::default(),
            opening,
            model: None,
            has_tokenizer: false,
            tokenizer: String::new(),
            run: None,
            last_source: None,
            changed: None,
            supposed: None,
            sweep: SweepView::default(),
            story: None,
            device: Device::default(),
            preparing: Some(Preparing::Text),
            statistic_idx: 0,
            detail: None,
            awaited: None,
            part: None,
            awaited_part: None,
            head_view: HeadView::default(),
            tokens_view: TokensView::default(),
            model_view: ModelView::default(),
            checks_view: ChecksView::default(),
            shown_type: None,
            overlay: None,
            notice: None,
            written: None,
            shows_times: true,
            opening_notice: None,
            is_over: false,
            fatal: None,
        }
    }

    pub fn statistic(&self) -> &'static Statistic {
        STATISTICS[self.statistic_idx]
    }

    /// The grids of heads that the model has, in the order in which they run.
    pub fn grids(&self) -> Vec<Stack> {
        let model = self.model.as_ref();
        model.map_or(vec![Stack::Only], |model| model.spec.grids())
    }

    /// Layers of the selected grid.
    pub fn n_layers(&self) -> usize {
        self.n_layers_of(self.selection.stack)
    }

    pub fn n_layers_of(&self, grid: Stack) -> usize {
        self.model
            .as_ref()
            .map_or(0, |model| model.spec.n_layers(grid))
    }

    pub fn n_heads(&self) -> usize {
        self.n_heads_of(self.selection.stack)
    }

    pub fn n_heads_of(&self, grid: Stack) -> usize {
        let layer_idx = self
            .selection
            .layer_idx
            .min(self.n_layers_of(grid).saturating_sub(1));
        self.model
            .as_ref()
            .map_or(0, |model| model.spec.n_heads(grid, layer_idx))
    }

    /// The tokens along one axis of the selected grid's maps.
    fn tokens_along(&self, axis: Axis) -> Option<&Prompt> {
        let prompt = self.run.as_ref()?.prompt.as_ref();
        Some(match (self.selection.stack, axis) {
            (Stack::Encoder, _) | (Stack::Cross, Axis::Key) => prompt.given(),
            _ => prompt,
        })
    }

    /// How many tokens lie along an axis.
    pub fn n_along(&self, axis: Axis) -> usize {
        self.tokens_along(axis)
            .map_or(0, |prompt| prompt.tokens.len())
    }

    /// What a token along an axis reads as, on one line.
    pub fn token(&self, axis: Axis, position_idx: usize) -> String {
        let prompt = self.tokens_along(axis);
        let label = prompt.and_then(|prompt| prompt.labels.get(position_idx));
        label.map_or_else(String::new, |label| super::figure::token_label(label))
    }

    /// A token along an axis as the tokenizer reads it.
    pub fn raw_token(&self, axis: Axis, position_idx: usize) -> &str {
        let prompt = self.tokens_along(axis);
        let label = prompt.and_then(|prompt| prompt.labels.get(position_idx));
        label.map_or("", String::as_str)
    }

    pub fn token_id(&self, axis: Axis, position_idx: usize) -> Option<u32> {
        let prompt = self.tokens_along(axis)?;
        prompt.tokens.get(position_idx).copied()
    }

    /// The attention of the selected layer.
    pub fn attention(&self) -> Option<&AttentionSpec> {
        let Selection {
            stack, layer_idx, ..
        } = self.selection;
        self.model.as_ref()?.spec.attention(stack, layer_idx)
    }

    /// The layers of a grid that have arrived.
    pub fn layers_of(&self, grid: Stack) -> &[Arc<LayerReport>] {
        let layers = self.run.as_ref().and_then(|run| run.layers.get(&grid));
        layers.map_or(&[], Vec::as_slice)
    }

    /// The selected layer's report, when it has arrived.
    pub fn layer(&self) -> Option<&LayerReport> {
        self.layers_of(self.selection.stack)
            .get(self.selection.layer_idx)
            .map(Arc::as_ref)
    }

    /// The selected head at full resolution, when it has arrived.
    pub fn shown_detail(&self) -> Option<&HeadDetail> {
        let wanted = self.wanted_head();
        self.detail
            .as_ref()
            .filter(|(query, _)| *query == wanted)
            .map(|(_, detail)| detail.as_ref())
    }

    /// The same, to be handed on.
    pub fn detail_of_selection(&self) -> Option<Arc<HeadDetail>> {
        let wanted = self.wanted_head();
        let detail = self.detail.as_ref().filter(|(query, _)| *query == wanted);
        detail.map(|(_, detail)| detail.clone())
    }

    /// The head that the selection asks for.
    pub fn wanted_head(&self) -> HeadQuery {
        HeadQuery {
            stack: self.selection.stack,
            layer_idx: self.selection.layer_idx,
            head_idx: self.selection.head_idx,
            hides_first_key: self.head_view.hides_first_key,
        }
    }

    /// What an id of the vocabulary reads as.
    pub fn vocabulary_label(&self, id: u32) -> String {
        let label = match self.run.as_ref().map(|run| &run.state) {
            Some(RunState::Done { labels, .. }) => labels.get(&id).cloned(),
            _ => None,
        };
        label.unwrap_or_else(|| id.to_string())
    }

    /// The worst finding of a head, or of a whole layer where no head is given; information aside.
    pub fn worst_at(
        &self,
        grid: Stack,
        layer_idx: usize,
        head_idx: Option<usize>,
    ) -> Option<Severity> {
        let run = self.run.as_ref()?;
        run.marks.get(&(grid, layer_idx, head_idx)).copied()
    }

    /// Every finding of the run, the worst first; of equals the first layer's.
    pub fn findings(&self) -> &[Finding] {
        self.run.as_ref().map_or(&[], |run| &run.findings)
    }
}
