//! Readings: ways in which a checkpoint's weights may have been meant, and what the model loses under each.
//!
//! A reading changes the spec, or deviates from what any spec can say. Loss on text decides between readings: the one that the
//! weights were trained with brings back the loss of the training. One file per family of readings; [`FAMILIES`] lists them.

mod after_race;
mod as_it_stands;
mod axis;
mod beginnings;
mod block;
mod budget;
mod candidate_readings;
mod engines;
mod evaluate;
mod labels;
mod latent;
mod layout;
mod mask;
mod page;
mod position;
mod qk_norm;
mod race;
mod rounded;
mod router;
mod scale;
mod silence;
mod softmax;
mod texts;
mod vocabulary;

pub use engines::{DIALS, Dial, engine_readings, layers_of, with_second};
pub use evaluate::losses;
pub use rounded::rounded_readings;

pub use page::readings_page;
pub use race::{Lines, losses_of_all_readings, probe_readings};

pub use texts::{Text, blind_loss, unigram_loss};

use std::sync::Arc;

use attnscope_checks::{SeesLabels, TrainingHypothesis};
use attnscope_compute::attention::{AttentionOverride, MaskOverride, Scale, only_change};
use attnscope_forward::{Cut, Deviation, DroppedResiduals, Sequence};
use attnscope_spec::{BlockSpec, Model, ModelSpec, StackSpec};

use self::rounded::Rounded;

/// A family of readings: different ways in which one part of the model may have been computed in training.
pub struct Family {
    pub id: &'static str,
    /// Source of the family's own file, whose doc comment is its page.
    source: &'static str,
    readings: fn(&Known<'_>) -> Vec<Reading>,
}

/// Every family, one per line, in the order of the docs.
pub static FAMILIES: &[Family] = &[
    axis::FAMILY,
    scale::FAMILY,
    softmax::FAMILY,
    mask::FAMILY,
    position::FAMILY,
    layout::FAMILY,
    latent::FAMILY,
    block::FAMILY,
    router::FAMILY,
    qk_norm::FAMILY,
    vocabulary::FAMILY,
    labels::FAMILY,
    silence::FAMILY,
];

/// Facts about a model that decide which readings apply to it.
struct Known<'a> {
    model: &'a Model,
    /// Tokens of the longest text.
    n_longest: usize,
    /// Smallest position index of the texts.
    first_position: usize,
    /// Smallest and largest token id of the texts.
    ids: [u32; 2],
    /// A token that begins texts and stands inside them too: the first of a document.
    separator: Option<u32>,
}

impl<'a> Known<'a> {
    fn spec(&self) -> &'a ModelSpec {
        &self.model.spec
    }

    /// Blocks of all stacks.
    fn blocks(&self) -> impl Iterator<Item = &'a BlockSpec> + use<'a> {
        self.model
            .spec
            .stacks
            .iter()
            .flat_map(|stack| stack.blocks())
    }

    /// Spec with all blocks changed, from the first to the last; `None` if the change has no effect.
    fn with_blocks(&self, mut change: impl FnMut(&mut BlockSpec)) -> Option<Arc<ModelSpec>> {
        let mut spec = self.model.spec.clone();
        for stack in &mut spec.stacks {
            stack.blocks_mut().iter_mut().for_each(&mut change);
        }
        (spec != self.model.spec).then(|| Arc::new(spec))
    }

    /// Factor of q·k and head width, if all layers have the same.
    fn scale(&self) -> Option<(f32, usize)> {
        let mut all = self
            .blocks()
            .filter_map(BlockSpec::attention)
            .map(|attention| {
                let is_fixed = !matches!(attention.scale, Scale::OfKeys(_));
                (
                    is_fixed,
                    attention.scale.factor(attention.d_head),
                    attention.d_head,
                )
            });
        let (is_fixed, factor, d_head) = all.next()?;
        let agree = all.all(|(_, other, _)| other == factor);
        (is_fixed && agree).then_some((factor, d_head))
    }
}

/// Position indices given to a text's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PositionsAs {
    Declared,
    Shifted(isize),
    /// Counted from the start again after this many tokens.
    Restarting(usize),
    /// Counted from the start again at each of these tokens.
    RestartingAt(u32),
    /// From token `at` on moved by `by`, as if the tokens before it were more or fewer.
    MovedFrom {
        at: usize,
        by: isize,
    },
}

impl PositionsAs {
    fn of(self, sequence: &Sequence) -> Sequence {
        let first = sequence.positions.first().copied().unwrap_or(0);
        let mut begun = first;
        let mut idx = 0;
        let move_one = |(token, position): (&u32, &usize)| match self {
            Self::Declared => *position,
            Self::MovedFrom { at, by } => {
                idx += 1;
                if idx > at {
                    position.saturating_add_signed(by)
                } else {
                    *position
                }
            }
            Self::Shifted(by) => position.saturating_add_signed(by),
            Self::Restarting(after) => first + (position - first.min(*position)) % after,
            Self::RestartingAt(separator) => {
                if *token == separator {
                    begun = *position;
                }
                first + (position - begun.min(*position))
            }
        };
        let tokens = sequence.tokens.iter();
        let positions = tokens.zip(&sequence.positions).map(move_one).collect();
        Sequence {
            positions,
            ..sequence.clone()
        }
    }
}

/// One way in which the weights may be meant to be used.
#[derive(Debug, Clone)]
pub struct Reading {
    pub hypothesis: TrainingHypothesis,
    /// Whether it is also tried in a single layer or head.
    is_local: IsLocal,
    /// Whether it changes little but far into a text, as a window or a rotary base does.
    acts_far: bool,
    deviation: Deviation,
    dropped: DroppedResiduals,
    /// `None` for the declared spec.
    spec: Option<Arc<ModelSpec>>,
    /// Whether the spec changes attention only, with the declared weights and norms.
    shares_weights: bool,
    positions: PositionsAs,
    /// Distance from a position to the token that it predicts.
    offset: usize,
    /// Number of rows by which tokens stand later in the tables than their ids say.
    rows_late: i32,
    /// Rounds what the layers pass on, as 16-bit arithmetic does.
    rounded: Option<Rounded>,
}

/// Smallest part of a model in which a reading is tried alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum IsLocal {
    No,
    InLayers,
    InHeads,
}

impl Reading {
    /// Reading of the declared model.
    pub fn declared() -> Self {
        Self::new("declared", "what is declared", "")
    }

    /// Whether it changes what a model says of a text only from some token on.
    pub fn acts_late(&self) -> bool {
        let is_moved = matches!(self.positions, PositionsAs::MovedFrom { .. });
        let sees_less = matches!(
            self.deviation.attention.sight,
            Some(MaskOverride::Window(_))
        );
        let keeps = ["top_k_keys=", "kv_window=", "window"];
        let names = keeps.iter();
        self.acts_far
            || is_moved
            || sees_less
            || names
                .into_iter()
                .any(|name| self.hypothesis.name.contains(name))
    }

    /// Whether it keeps the model and rounds its weights or its cache.
    pub fn rounds(&self) -> bool {
        let name = &self.hypothesis.name;
        name.starts_with("kv=") || name.starts_with("weights=")
    }

    /// Reading of any other spec.
    pub fn of_spec(spec: Arc<ModelSpec>) -> Self {
        Self::new("guess", "", "").with_weights(spec)
    }

    fn new(family: &'static str, name: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            hypothesis: TrainingHypothesis {
                family,
                name: name.into(),
                parts: Vec::new(),
                advice: advice.into(),
                is_of_layers: false,
                layer_idx: None,
                head_idx: None,
                sees_labels: SeesLabels::Not,
                smooths: false,
                shown_by: None,
            },
            is_local: IsLocal::No,
            acts_far: false,
            deviation: Deviation::NONE,
            dropped: DroppedResiduals::default(),
            spec: None,
            shares_weights: true,
            positions: PositionsAs::Declared,
            offset: 1,
            rows_late: 0,
            rounded: None,
        }
    }

    /// Overrides how attention is computed.
    fn odd(self, attention: AttentionOverride) -> Self {
        self.deviating(Deviation {
            attention,
            ..Deviation::NONE
        })
    }

    fn deviating(self, deviation: Deviation) -> Self {
        Self { deviation, ..self }
    }

    fn seeing_labels(mut self, sees_labels: SeesLabels) -> Self {
        self.hypothesis.sees_labels = sees_labels;
        self
    }

    fn smoothing(mut self, smooths: bool) -> Self {
        self.hypothesis.smooths = smooths;
        self
    }

    fn acting_far(self) -> Self {
        Self {
            acts_far: true,
            ..self
        }
    }

    /// Also tries it in single layers or heads.
    fn local(mut self, is_local: IsLocal) -> Self {
        self.hypothesis.is_of_layers = is_local > IsLocal::No;
        Self { is_local, ..self }
    }

    /// Sets a spec that differs in attention only.
    fn with_attention(self, spec: Arc<ModelSpec>) -> Self {
        Self {
            spec: Some(spec),
            ..self
        }
    }

    /// Sets a spec that differs in weights, norms or the parts around blocks.
    fn with_weights(self, spec: Arc<ModelSpec>) -> Self {
        Self {
            spec: Some(spec),
            shares_weights: false,
            ..self
        }
    }

    /// Restricts the reading to one layer, or to one of its heads.
    fn at(&self, layer_idx: usize, head_idx: Option<usize>) -> Self {
        let mut reading = self.clone();
        reading.hypothesis.layer_idx = Some(layer_idx);
        reading.hypothesis.head_idx = head_idx;
        reading.deviation.attention.head_idx = head_idx;
        reading
    }

    /// Combines two readings of whole models; `None` if they change the same thing. `other` must have been made for the spec of
    /// this one.
    fn and(&self, other: &Self) -> Option<Self> {
        let are_whole = self.hypothesis.layer_idx.is_none() && other.hypothesis.layer_idx.is_none();
        let family = self.hypothesis.family;
        let is_of_parts =
            [layout::FAMILY.id, latent::FAMILY.id, block::FAMILY.id].contains(&family);
        if !are_whole || (family == other.hypothesis.family && !is_of_parts) {
            return None;
        }
        let plain = Self::declared();
        let mut both = self.clone();
        both.deviation = self.deviation.and(&other.deviation)?;
        both.dropped = only_change(self.dropped, other.dropped, DroppedResiduals::default())?;
        both.positions = only_change(self.positions, other.positions, plain.positions)?;
        both.offset = only_change(self.offset, other.offset, plain.offset)?;
        both.rows_late = only_change(self.rows_late, other.rows_late, plain.rows_late)?;
        both.spec = other.spec.clone().or(both.spec);
        both.shares_weights &= other.shares_weights;
        both.hypothesis.family = "several";
        both.hypothesis.name = format!("{} and {}", self.hypothesis.name, other.hypothesis.name);
        let names = |reading: &Self| {
            if reading.hypothesis.parts.is_empty() {
                vec![reading.hypothesis.name.clone()]
            } else {
                reading.hypothesis.parts.clone()
            }
        };
        both.hypothesis.parts = [names(self), names(other)].concat();
        both.hypothesis.advice = [
            self.hypothesis.advice.as_str(),
            other.hypothesis.advice.as_str(),
        ]
        .join(" ")
        .trim()
        .to_owned();
        both.hypothesis.sees_labels = self
            .hypothesis
            .sees_labels
            .max(other.hypothesis.sees_labels);
        both.hypothesis.smooths &= other.hypothesis.smooths;
        both.hypothesis.is_of_layers &= other.hypothesis.is_of_layers;
        both.is_local = IsLocal::No;
        Some(both)
    }

    /// A text as this reading gives it to the model.
    fn sequence(&self, declared: &Sequence) -> Sequence {
        let late = self.rows_late;
        let mut sequence = self.positions.of(declared);
        if late != 0 {
            let move_one = |id: &mut u32| *id = id.saturating_add_signed(late);
            sequence.tokens.iter_mut().for_each(move_one);
        }
        sequence
    }

    /// Number of leading tokens that every position sees, if the reading overrides it.
    fn n_shown(&self) -> Option<usize> {
        match self.deviation.attention.sight {
            Some(MaskOverride::Prefix(n)) => Some(n),
            _ => None,
        }
    }

    /// Its spec of everything but blocks. A reading of one layer changes nothing else.
    fn spec_of<'a>(&'a self, model: &'a Model) -> &'a ModelSpec {
        let is_whole = self.hypothesis.layer_idx.is_none();
        let own = self.spec.as_deref().filter(|_| is_whole);
        own.unwrap_or(&model.spec)
    }

    /// Its spec of a block.
    fn block<'a>(&'a self, model: &'a Model, stack_idx: usize, layer_idx: usize) -> &'a BlockSpec {
        &self.stack(model, stack_idx, layer_idx).blocks()[layer_idx]
    }

    /// The spec of a stack that has its spec of a block.
    fn stack<'a>(&'a self, model: &'a Model, stack_idx: usize, layer_idx: usize) -> &'a StackSpec {
        let only = self.hypothesis.layer_idx;
        let own = self.spec.as_deref();
        let own = own.filter(|_| only.is_none_or(|only| only == layer_idx));
        &own.unwrap_or(&model.spec).stacks[stack_idx]
    }

    /// Whether it does what another one does, under whatever name.
    fn does_the_same(&self, other: &Self) -> bool {
        let what = |one: &Self| {
            (
                one.deviation,
                one.dropped,
                one.positions,
                one.offset,
                one.rows_late,
            )
        };
        what(self) == what(other) && self.spec == other.spec
    }

    /// Whether its effect on a token depends on the length of the whole text, so that results on a beginning do not apply.
    fn depends_on_length(&self) -> bool {
        [self.deviation.cut, self.deviation.joined].contains(&Cut::AsTheyLie)
    }

    /// Deviation in a given layer.
    fn in_layer(&self, layer_idx: usize) -> (Deviation, DroppedResiduals) {
        if self
            .hypothesis
            .layer_idx
            .is_none_or(|only| only == layer_idx)
        {
            (self.deviation, self.dropped)
        } else {
            (Deviation::NONE, DroppedResiduals::default())
        }
    }
}

/// All readings of a model, each applied to all layers.
fn everywhere(known: &Known<'_>) -> Vec<Reading> {
    FAMILIES
        .iter()
        .flat_map(|family| (family.readings)(known))
        .collect()
}

/// Readings that change self-attention only, for models with cross-attention.
fn in_self_attention(model: &Model, readings: &[Reading]) -> Vec<Reading> {
    let has_cross = |block: &BlockSpec| block.cross.is_some();
    if !model.spec.main_stack().blocks().iter().any(has_cross) {
        return Vec::new();
    }
    let reaches_cross = |reading: &&Reading| {
        let odd = &reading.deviation.attention;
        odd.softmax.is_some() || odd.scale != 1.0
    };
    let alone = |reading: &Reading| {
        let mut alone = reading.clone();
        alone.hypothesis.name.push_str(" in self-attention");
        alone.hypothesis.advice.clear();
        alone.deviation.spares_cross = true;
        alone
    };
    readings.iter().filter(reaches_cross).map(alone).collect()
}

/// Readings that change only one layer, or only one head.
fn local(model: &Model, readings: &[Reading], least: IsLocal) -> Vec<Reading> {
    let blocks = model.spec.main_stack().blocks();
    if model.spec.stacks.len() != 1 || blocks.iter().map(n_heads).sum::<usize>() < 2 {
        return Vec::new();
    }
    let mut all = Vec::new();
    for (layer_idx, block) in blocks.iter().enumerate() {
        // A layer without attention is no other unless its spec is.
        let changes = |reading: &&Reading| {
            block.own().is_some() || reading.block(model, 0, layer_idx) != block
        };
        let asked = readings.iter().filter(|reading| reading.is_local >= least);
        for reading in asked.filter(changes) {
            match least {
                IsLocal::InHeads if n_heads(block) > 1 => {
                    all.extend(
                        (0..n_heads(block)).map(|head_idx| reading.at(layer_idx, Some(head_idx))),
                    );
                }
                IsLocal::InLayers if blocks.len() > 1 => all.push(reading.at(layer_idx, None)),
                _ => {}
            }
        }
    }
    all
}

fn n_heads(block: &BlockSpec) -> usize {
    block.attention().map_or(0, |attention| attention.n_heads)
}
