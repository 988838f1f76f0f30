//! A read-only view of the state for panels: the state of the screen, and which of two runs to show.

pub mod compared;
mod effects;
mod over_prompts;
mod pair;
pub mod part;
mod swept;
pub mod token_statistics;

use std::ops::Deref;
use std::sync::Arc;

use attnscope_checks::stats::{HeadReport, HeadType, LayerReport, STATISTICS, Statistic, Values};
use attnscope_checks::{Finding, Severity};
use attnscope_compute::attention::{AttentionSpec, Visibility};
use attnscope_prompt::{Picture, Prompt};
use attnscope_run::{HeadDetail, HeadMap, HeadQuery, Subject};
use attnscope_spec::{Place, Stack};

use super::app::App;
use super::panel::Panel;
use super::run::Run;
use super::runs::Shows;
use super::selection::Selection;
use super::statistics::statistic;
use super::views::Axis;
use crate::figure::token_label;

/// The screen's state, seen as A, B, or B minus A.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    app: &'a App,
    shows: Shows,
}

impl Deref for Scene<'_> {
    type Target = App;

    fn deref(&self) -> &App {
        self.app
    }
}

impl App {
    /// The scene that panels draw.
    pub fn scene(&self) -> Scene<'_> {
        Scene::of(self, self.runs.shows)
    }
}

impl<'a> Scene<'a> {
    /// The state seen from one side, whichever side the screen shows now.
    pub fn of(app: &'a App, shows: Shows) -> Self {
        Self { app, shows }
    }

    /// The side shown, whether or not there are two runs.
    pub(crate) fn side(self) -> Shows {
        self.shows
    }

    /// The state itself.
    pub(crate) fn state(self) -> &'a App {
        self.app
    }

    /// The run shown.
    pub fn run(self) -> Option<&'a Run> {
        self.app.runs.shown(self.shows)
    }

    /// The subject of the run shown, or the one that was opened and has not run yet.
    pub fn subject(self) -> Option<&'a Subject> {
        let ran = self.run().map(|run| &run.subject);
        ran.or(self.app.opened.as_ref())
    }

    /// Whether the head size is known, which scales and query–key products need.
    pub fn knows_width(self) -> bool {
        let sizes = self.subject().map(Subject::sizes);
        sizes.is_some_and(|sizes| sizes.d_head.is_some())
    }

    /// Whether a statistic is available. For a model it always is, because a NaN among its values must be visible.
    pub fn knows(self, statistic_idx: usize) -> bool {
        if let Some(view) = self.training.as_ref()
            && self.panel == Panel::History
        {
            return view.knows(statistic_idx);
        }
        if self.panel == Panel::Prompts {
            let known = STATISTICS.get(statistic_idx);
            return known.is_some_and(|statistic| statistic.is_per_head());
        }
        let is_model = self
            .subject()
            .is_none_or(|subject| subject.model().is_some());
        if is_model || statistic_idx >= STATISTICS.len() {
            return true;
        }
        // What an alignment cannot have is no fault of it.
        let is_alignment = matches!(self.subject(), Some(Subject::Alignment(_)));
        let is_told = |stats: &Values| {
            let value = stats.measured(statistic_idx);
            value.is_some_and(|value| !is_alignment || !value.is_nan())
        };
        let mut layers = self
            .run()
            .into_iter()
            .flat_map(|run| run.layers.values().flatten());
        layers.any(|layer| {
            is_told(&layer.stats) || layer.heads.iter().any(|head| is_told(&head.stats))
        })
    }

    pub fn statistic(self) -> &'static Statistic {
        statistic(self.statistic_idx)
    }

    /// The grids of heads in the model, in the order in which they run.
    pub fn grids(self) -> Vec<Stack> {
        self.subject().map_or(vec![Stack::Only], Subject::grids)
    }

    /// Number of layers in the selected grid.
    pub fn n_layers(self) -> usize {
        self.n_layers_of(self.selection.stack)
    }

    pub fn n_layers_of(self, grid: Stack) -> usize {
        self.subject().map_or(0, |subject| subject.n_layers(grid))
    }

    pub fn n_heads(self) -> usize {
        self.n_heads_of(self.selection.stack)
    }

    pub fn n_heads_of(self, grid: Stack) -> usize {
        let layer_idx = self
            .selection
            .layer_idx
            .min(self.n_layers_of(grid).saturating_sub(1));
        self.subject()
            .map_or(0, |subject| subject.n_heads(grid, layer_idx))
    }

    /// The prompt whose tokens are along one axis of the selected grid's maps.
    fn tokens_along(self, axis: Axis) -> Option<&'a Prompt> {
        let (run, at) = (self.run()?, self.selection);
        Some(match (at.stack, axis) {
            // Cross-attention reads what the last layer of the encoder gives.
            (Stack::Cross, Axis::Key) => run.prompt_in(Stack::Encoder, usize::MAX),
            (Stack::Cross, Axis::Query) => &run.prompt,
            (stack, Axis::Key) => run.keys_in(stack, at.layer_idx),
            (stack, Axis::Query) => run.prompt_in(stack, at.layer_idx),
        })
    }

    /// The picture whose patches are the tokens along an axis.
    pub fn picture_along(self, axis: Axis) -> Option<&'a Picture> {
        self.tokens_along(axis)?.picture.as_deref()
    }

    /// Number of tokens along an axis.
    pub fn n_along(self, axis: Axis) -> usize {
        self.tokens_along(axis)
            .map_or(0, |prompt| prompt.tokens.len())
    }

    /// The label of a token along an axis, on one line.
    pub fn token(self, axis: Axis, position_idx: usize) -> String {
        let prompt = self.tokens_along(axis);
        let label = prompt.and_then(|prompt| prompt.labels.get(position_idx));
        label.map_or_else(String::new, |label| token_label(label))
    }

    /// The label of the token at a position of the predicted text: the only one, or the decoder's.
    pub fn predicted_after(self, position_idx: usize) -> String {
        let labels = self.run().map(|run| &run.prompt.labels);
        let label = labels.and_then(|labels| labels.get(position_idx));
        label.map_or_else(String::new, |label| token_label(label))
    }

    /// A token along an axis as the tokenizer reads it.
    pub fn raw_token(self, axis: Axis, position_idx: usize) -> &'a str {
        let prompt = self.tokens_along(axis);
        let label = prompt.and_then(|prompt| prompt.labels.get(position_idx));
        label.map_or("", String::as_str)
    }

    pub fn token_id(self, axis: Axis, position_idx: usize) -> Option<u32> {
        let prompt = self.tokens_along(axis)?;
        prompt.tokens.get(position_idx).copied()
    }

    /// The attention of the selected layer.
    pub fn attention(self) -> Option<&'a AttentionSpec> {
        let Selection {
            stack, layer_idx, ..
        } = self.selection;
        self.subject()?.attention(stack, layer_idx)
    }

    /// The keys that the mask of the selected layer lets each query see; `None` if it hides none.
    pub fn visibility(self) -> Option<Visibility> {
        let mask = self.attention()?.mask;
        if !mask.causal && mask.window.is_none() {
            return None;
        }
        let [n_queries, n_keys] = [Axis::Query, Axis::Key].map(|axis| self.n_along(axis));
        Some(match self.selection.stack {
            Stack::Cross => Visibility::of_cross(mask, (n_queries, None), (n_keys, None)),
            _ => Visibility::of_self(mask, n_queries, None),
        })
    }

    /// The layers of a grid that have arrived.
    pub fn layers_of(self, grid: Stack) -> &'a [Arc<LayerReport>] {
        let layers = self.run().and_then(|run| run.layers.get(&grid));
        layers.map_or(&[], Vec::as_slice)
    }

    /// A layer's report in the run shown, once it has arrived.
    pub fn layer_of(self, grid: Stack, layer_idx: usize) -> Option<&'a LayerReport> {
        self.run()?.layer(grid, layer_idx)
    }

    /// The selected layer's report, once it has arrived.
    pub fn layer(self) -> Option<&'a LayerReport> {
        let at = self.selection;
        self.run()?.layer(at.stack, at.layer_idx)
    }

    /// The selected head at full resolution, once it has arrived.
    pub fn shown_detail(self) -> Option<&'a HeadDetail> {
        let detail = self.run()?.detail_of(self.wanted_head());
        detail.map(Arc::as_ref)
    }

    /// The selected head at full resolution, shared for use on another thread.
    pub fn detail_of_selection(self) -> Option<Arc<HeadDetail>> {
        self.run()?.detail_of(self.wanted_head()).cloned()
    }

    /// The map of the selected head that is shown: the chosen one, or the pattern if it needs value norms that are unknown.
    pub fn head_map(self) -> HeadMap {
        let chosen = self.head_view.map;
        if chosen == HeadMap::Contribution && !self.knows_value_norms() {
            HeadMap::Pattern
        } else {
            chosen
        }
    }

    /// The map after the current one: pattern, scores, then contribution if value norms are known.
    pub fn next_map(self) -> HeadMap {
        match self.head_map() {
            HeadMap::Pattern => HeadMap::Scores,
            HeadMap::Scores if self.knows_value_norms() => HeadMap::Contribution,
            HeadMap::Scores | HeadMap::Contribution => HeadMap::Pattern,
        }
    }

    /// Whether the norms of the selected head's outputs are known.
    pub fn knows_value_norms(self) -> bool {
        let layer = self.layer();
        let head = layer.and_then(|layer| layer.heads.get(self.selection.head_idx));
        head.is_some_and(|head| !head.summary.value_norms.is_empty())
    }

    /// The request for the selected head.
    pub fn wanted_head(self) -> HeadQuery {
        HeadQuery {
            stack: self.selection.stack,
            layer_idx: self.selection.layer_idx,
            head_idx: self.selection.head_idx,
            hides_first_key: self.head_view.hides_first_key,
            weighs_values: self.head_map() == HeadMap::Contribution,
        }
    }

    /// The class label of a model output, if its outputs are not words.
    fn class_label(self, id: u32) -> Option<String> {
        let Some(Subject::Model(model)) = self.subject() else {
            return None;
        };
        let labels = model.spec.head.as_ref()?.labels.as_ref()?;
        labels.names.get(id as usize).cloned()
    }

    /// The label of a model output.
    pub fn vocabulary_label(self, id: u32) -> String {
        if let Some(name) = self.class_label(id) {
            return name;
        }
        let label = self.run().and_then(|run| run.label(id));
        label.map_or_else(|| id.to_string(), str::to_owned)
    }

    /// The head types present in the run, in order, each with its number of heads.
    pub fn head_types(self) -> Vec<(HeadType, usize)> {
        let layers = self
            .run()
            .into_iter()
            .flat_map(|run| run.layers.values().flatten());
        let kinds = layers.flat_map(|layer| layer.heads.iter().map(|head| head.kind));
        let kinds: Vec<HeadType> = kinds.flatten().collect();
        let count = |kind: HeadType| kinds.iter().filter(|found| **found == kind).count();
        let counted = HeadType::ALL.into_iter().map(|kind| (kind, count(kind)));
        counted.filter(|(_, n)| *n > 0).collect()
    }

    /// Whether a head has the shown type, or all types are shown.
    pub fn is_of_shown_type(self, head: &HeadReport) -> bool {
        self.shown_type.is_none() || head.kind == self.shown_type
    }

    /// Whether a head is left out: of another type than the shown one, or not kept by the filter.
    pub fn is_left_out(self, place: Place, kind: Option<HeadType>) -> bool {
        self.shown_type.is_some() && kind != self.shown_type || self.leaves_out(place)
    }

    /// The worst finding of a head, or of a whole layer if no head is given; ignores notes.
    pub fn worst_at(
        self,
        grid: Stack,
        layer_idx: usize,
        head_idx: Option<usize>,
    ) -> Option<Severity> {
        let run = self.run()?;
        run.marks.get(&(grid, layer_idx, head_idx)).copied()
    }

    /// All findings of the run, the worst first; of equally bad ones the first layer's.
    pub fn findings(self) -> &'a [Finding] {
        self.run().map_or(&[], |run| &run.findings)
    }
}
