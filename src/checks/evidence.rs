//! The evidence that checks judge: layers of a run or a trace, and results of probes.

use std::collections::BTreeMap;
use std::sync::Arc;

use attnscope_compute::attention::{Pooled, SoftmaxAxis};
use attnscope_prompt::TokenizerLoss;
use attnscope_spec::{Place, Stack};

use super::collapse::{Design, by_design, has_sink};
use super::noise::Noise;
use super::thresholds::Thresholds;
use super::verdict::{Tester, Verdict};
use super::weights_seen::Weights;
use crate::stats::{HeadReport, LayerReport};

/// The origin of the attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A checkpoint that attnscope ran: mask, axis and window are attnscope's own.
    Checkpoint,
    /// A recording of other code.
    Trace,
    /// Reactions of another program's model to changed inputs.
    Probe,
}

/// A layer with weights that ran as a statement of its own, so that nothing takes what it gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discarded {
    /// Its path in the model, and its class.
    pub module: String,
    pub class: String,
    /// File and line of the call.
    pub place: String,
    /// The part of the result that nothing reads, in words, where the others are read.
    pub part: Option<String>,
}

/// All evidence that a check may use.
#[derive(Debug, Clone)]
pub struct Evidence<'a> {
    pub subject: Subject,
    /// Layers, in the order of execution.
    pub layers: &'a [Arc<LayerReport>],
    /// Tolerance for the deviation of row sums from 1, by the dtype of the stored pattern.
    pub row_tolerance: f64,
    /// The first NaN or infinity: its place, and a description.
    pub first_nonfinite: Option<(Place, String)>,
    /// Whether a stored weight is that NaN or infinity.
    pub is_in_weights: bool,
    /// Why the model does not look trained, if the code that recorded it found so.
    pub untrained: Option<&'a str>,
    /// Layers with weights whose results the code throws away; `None` where no code was watched.
    pub discarded: Option<&'a [Discarded]>,
    /// The dtype and the largest |value| of the residual, for checkpoints stored in a dtype of narrow range (f16).
    pub narrow_dtype: Option<(&'static str, f64)>,
    /// Names what a trace or probe does not contain. On a probe, it is the reason why checks of layers do not apply.
    pub lacks: Option<String>,
    pub probes: &'a Probes,
    /// Number of positions in the model's configuration.
    pub n_ctx: Option<usize>,
    /// Mean next-token loss, if the model has one.
    pub loss: Option<f64>,
    /// Losses of the tokens after each position, in nats. // [position − 1]
    pub next_losses: Option<&'a [f32]>,
    /// Where the model begins to compute otherwise, the nearest first.
    pub boundaries: Vec<Boundary>,
    /// Whether the text is noise to any model.
    pub noise: Option<Noise>,
    /// An earlier report on the same prompt.
    pub baseline: Option<&'a Baseline>,
    /// Which tokens are delimiters.
    pub delimiters: Delimiters<'a>,
    /// How badly the text, or the ids given in its place, fit the tokenizer.
    pub lost: TokenizerLoss,
}

/// A number of tokens beyond which a model computes otherwise than before.
#[derive(Debug, Clone, PartialEq)]
pub struct Boundary {
    /// As in “the loss before …”.
    pub what: String,
    pub n_tokens: usize,
    /// What to look at where the loss rises beyond it.
    pub advice: &'static str,
}

/// Whether a token separates others: punctuation, a line break, a special token. A function, called only where needed, since it
/// may need a vocabulary.
#[derive(Clone, Copy, Default)]
pub struct Delimiters<'a>(pub Option<&'a dyn Fn(Stack, usize) -> bool>);

impl std::fmt::Debug for Delimiters<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = if self.0.is_some() {
            "known"
        } else {
            "not known"
        };
        f.debug_tuple("Delimiters").field(&known).finish()
    }
}

/// Statistics by id.
pub type BaselineValues = BTreeMap<String, f64>;

/// One prompt of an earlier report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Baseline {
    pub loss: Option<f64>,
    /// Statistics by stack, layer and head; without a head, those of the layer.
    pub places: BTreeMap<(Stack, usize, Option<usize>), BaselineValues>,
}

/// Maximum probability on forbidden keys, over a whole head, that leaves its entropy meaningful.
const LEAKED: f64 = 1e-3;

impl<'a> Evidence<'a> {
    /// Evidence with only layers.
    pub fn of_layers(
        subject: Subject,
        layers: &'a [Arc<LayerReport>],
        probes: &'a Probes,
        row_tolerance: f64,
    ) -> Self {
        Self {
            subject,
            layers,
            row_tolerance,
            first_nonfinite: None,
            is_in_weights: false,
            untrained: None,
            discarded: None,
            narrow_dtype: None,
            lacks: None,
            probes,
            n_ctx: None,
            loss: None,
            next_losses: None,
            boundaries: Vec::new(),
            noise: None,
            baseline: None,
            delimiters: Delimiters::default(),
            lost: TokenizerLoss::default(),
        }
    }

    /// The results on the weights, or the verdict if they were not examined.
    pub(super) fn weights(&self) -> Result<&'a Weights, Verdict> {
        match self.subject {
            Subject::Checkpoint => self.probes.weights.seen().map(|weights| &**weights),
            Subject::Trace | Subject::Probe => {
                Err(Verdict::not_applicable("there are no weights to look at"))
            }
        }
    }

    /// Every head of every layer.
    pub fn heads(
        &self,
    ) -> impl Iterator<Item = (&'a LayerReport, usize, &'a HeadReport)> + use<'a> {
        self.layers.iter().flat_map(|layer| {
            let heads = layer.heads.iter().enumerate();
            heads.map(move |(head_idx, head)| (&**layer, head_idx, head))
        })
    }

    /// Whether rows of a head are distributions over keys, so that entropy has a meaning.
    pub fn has_distributions(&self, layer: &LayerReport, head: &HeadReport) -> bool {
        // Probability on forbidden keys makes an entropy over the allowed keys meaningless.
        let audit = head.audit.as_ref();
        if audit.is_some_and(|audit| audit.forbidden_mass() > LEAKED) {
            return false;
        }
        let tolerance = self.row_tolerance;
        let is_distribution = |mass: f64| {
            mass.is_nan()
                || (mass - 1.0).abs() <= tolerance
                || (mass < 1.0 && has_sink(layer, head))
        };
        let rows = head.summary.rows.iter();
        let seeing = rows.filter(|row| row.is_real && row.n_visible > 0 && row.mass != 0.0);
        layer.spec.softmax_axis == SoftmaxAxis::Keys
            && seeing.map(|row| f64::from(row.mass)).all(is_distribution)
    }

    /// Returns what a head attends to by design, if anything.
    pub(super) fn by_design(
        &self,
        layer: &LayerReport,
        head: &HeadReport,
        thresholds: &Thresholds,
    ) -> Option<Design> {
        // Without known tokens, nothing is a delimiter.
        let is_delimiter = |key_idx| self.delimiters.0.is_some_and(|is| is(layer.stack, key_idx));
        by_design(layer, head, &is_delimiter, thresholds)
    }
}

/// The row whose sum deviates most from 1, among real queries that see a key. NaN rows are left to `nan-or-inf`. Rows of zeros
/// count as seeing no key, unless all rows are zero or dropout zeroed them.
pub(super) fn worst_row(head: &HeadReport) -> Option<(usize, f64)> {
    let rows = head.summary.rows.iter().enumerate();
    let rows = rows.filter(|(_, row)| row.is_real && row.n_visible > 0 && row.mass.is_finite());
    let masses = rows.map(|(query_idx, row)| (query_idx, f64::from(row.mass)));
    let by_distance =
        |a: &(usize, f64), b: &(usize, f64)| (a.1 - 1.0).abs().total_cmp(&(b.1 - 1.0).abs());
    let audit = head.audit.as_ref();
    let is_dropped = audit.is_some_and(|audit| audit.dropout.is_some());
    let used = masses.clone();
    let used = used.filter(|(_, mass)| is_dropped || *mass != 0.0);
    used.max_by(by_distance)
        .or_else(|| masses.max_by(by_distance))
}

/// The result of a probe, or why it was not run.
#[derive(Debug, Clone)]
pub enum Probed<T> {
    /// It cannot run here; the text says what it would need.
    Not(String),
    /// It can run here but has not; the text says what runs it.
    Untried(String),
    /// It ran, and its result decides nothing; the text says why.
    Undecided(String),
    Ran(T),
}

impl<T> Probed<T> {
    /// The result, or the verdict if the probe was not run.
    pub(super) fn seen(&self) -> Result<&T, Verdict> {
        match self {
            Self::Not(why) => Err(Verdict::not_applicable(why.clone())),
            Self::Untried(why) => Err(Verdict::not_tested(why.clone(), Tester::Probes)),
            Self::Undecided(why) => Err(Verdict::undecidable(why.clone())),
            Self::Ran(seen) => Ok(seen),
        }
    }
}

/// Results of runs on changed prompts.
#[derive(Debug, Clone)]
pub struct Probes {
    pub future: Probed<FutureProbe>,
    pub padding: Probed<InvarianceProbe>,
    pub batch: Probed<InvarianceProbe>,
    pub documents: Probed<InvarianceProbe>,
    /// The same prompt, from another random state.
    pub repeat: Probed<InvarianceProbe>,
    /// The first tokens alone, compared with the whole prompt.
    pub length: Probed<InvarianceProbe>,
    /// The prompt in parts with a KV cache, compared with the whole prompt.
    pub cache: Probed<InvarianceProbe>,
    pub order: Probed<OrderProbe>,
    /// Other tokens in place of the earlier ones.
    pub context: Probed<ContextProbe>,
    pub labels: Probed<LabelsProbe>,
    pub training: Probed<TrainingProbe>,
    /// The weights alone, without a text.
    pub weights: Probed<Arc<Weights>>,
    /// The first module of a probed model whose output is not finite, before anything was changed.
    pub nonfinite: Option<NonfiniteModule>,
    /// The functions that drew all random numbers of a pass, where each of them chooses among positions and none drops values.
    pub sampled: Option<String>,
}

/// A module that gives NaN or infinity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NonfiniteModule {
    pub name: String,
    /// How many modules give one.
    pub n_modules: usize,
    /// Whether the model's output is not finite either.
    pub reaches_output: bool,
}

impl Probes {
    /// No probe was run.
    pub fn none(why: &str) -> Self {
        Self {
            future: Probed::Not(why.to_owned()),
            padding: Probed::Not(why.to_owned()),
            batch: Probed::Not(why.to_owned()),
            documents: Probed::Not(why.to_owned()),
            repeat: Probed::Not(why.to_owned()),
            length: Probed::Not(why.to_owned()),
            cache: Probed::Not(why.to_owned()),
            order: Probed::Not(why.to_owned()),
            context: Probed::Not(why.to_owned()),
            labels: Probed::Not(why.to_owned()),
            training: Probed::Not(why.to_owned()),
            weights: Probed::Not(why.to_owned()),
            nonfinite: None,
            sampled: None,
        }
    }
}

/// A value that moved although it should not have.
#[derive(Debug, Clone, PartialEq)]
pub struct Movement {
    pub place: Place,
    /// Its name, if the layer number is not enough.
    pub name: Option<String>,
    /// Largest |difference|, divided by the largest |value|.
    pub amount: f64,
}

/// The pair of positions with the clearest leak.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worst {
    pub changed: usize,
    pub moved: usize,
    pub amount: f64,
}

/// How far each position moved when another one was changed. // moved: [changed, position]
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Influence {
    pub changed: Vec<usize>,
    pub n_positions: usize,
    pub moved: Vec<f32>,
}

impl Influence {
    /// A map with at most this many cells per side. // [changed, position]
    pub fn map(&self, most_cells: usize) -> Pooled {
        let mut map = Pooled::with_cells(self.changed.len(), self.n_positions, most_cells);
        for (row_idx, row) in self.moved.chunks(self.n_positions.max(1)).enumerate() {
            map.add_row(row_idx, row);
        }
        map
    }
}

/// Result of changing tokens, after which nothing before them may move.
#[derive(Debug, Clone, PartialEq)]
pub struct FutureProbe {
    /// Movements up to this size are rounding.
    pub tolerance: f64,
    /// The first layer and head whose pattern moved, and the first residual that moved.
    pub first_pattern: Option<Movement>,
    pub first_residual: Option<Movement>,
    pub worst: Option<Worst>,
    pub influence: Influence,
}

/// Result of changes that must have no effect: each case, and what moved first.
#[derive(Debug, Clone, PartialEq)]
pub struct InvarianceProbe {
    pub tolerance: f64,
    pub cases: Vec<(String, Option<Movement>)>,
    /// The largest movement of any case, whether it is a leak or not.
    pub largest: f64,
}

/// How far the last position moved, relative to the largest value.
#[derive(Debug, Clone, PartialEq)]
pub struct Reordered {
    /// Its name, if its place is not enough.
    pub name: Option<String>,
    pub place: Place,
    /// Movement when the tokens before it were reordered.
    pub by_order: f64,
    /// Movement when the tokens before it were replaced.
    pub by_content: f64,
}

/// Result of shuffling earlier tokens, after which the last position must move.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderProbe {
    /// Movements up to this size are rounding.
    pub tolerance: f64,
    /// The model's dtype may hide movements smaller than this.
    pub resolution: f64,
    /// The first layer that mixes tokens.
    pub first: Reordered,
    /// The last layer or module.
    pub output: Reordered,
    /// The model is declared to have no positions.
    pub declares_none: bool,
}

/// Result of replacing earlier tokens, after which the output must move.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextProbe {
    /// The output does not move at all, although modules inside do.
    pub is_deaf: bool,
    /// Nothing of the output moves when every token of the source beside the target is another.
    pub is_source_blind: bool,
    /// The first module whose last position moves.
    pub first: Option<Movement>,
    /// The layer that itself does not move although modules inside it do.
    pub lost_in: Option<String>,
    /// Why the model does not look trained, if the probe's recorder found so.
    pub untrained: Option<String>,
}

/// Losses of each output against tokens at several offsets, in nats.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelsProbe {
    /// Against the token at the same position, the next one, and the one after. // [offset][position]
    pub losses: [Vec<f32>; 3],
    /// Loss of guessing by the text's own token frequencies.
    pub unigram_loss: f64,
}

/// Whether, under a reading, a token's loss may depend on the token itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeesLabels {
    Not,
    /// With a small weight, or in some places only.
    Faintly,
    Plainly,
}

/// A reading: a hypothesis on how the weights were trained, and in which layers.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingHypothesis {
    /// Readings of one family change the same thing in different ways.
    pub family: &'static str,
    /// Its name, worded to follow “trained with”.
    pub name: String,
    /// Names of the combined readings, if it consists of several.
    pub parts: Vec<String>,
    /// Flags that run the checkpoint this way, or what to correct; may be empty.
    pub advice: String,
    /// Whether it changes layers, each of which may have been trained in its own way, and not what stands around them.
    pub is_of_layers: bool,
    /// The only layer and head that it changes, if not all.
    pub layer_idx: Option<usize>,
    pub head_idx: Option<usize>,
    pub sees_labels: SeesLabels,
    /// Makes attention smoother, which improves every broken model.
    pub smooths: bool,
    /// A reading that leaks everything this one leaks, and more. A model trained with it does well under this one too.
    pub shown_by: Option<&'static str>,
}

/// The family of readings that leave a part out. They are compared with other readings, and never believed themselves.
pub const SILENCE: &str = "silence";

/// A reading that was tried, with the model's losses under it.
#[derive(Debug, Clone, PartialEq)]
pub struct TestedHypothesis {
    pub hypothesis: TrainingHypothesis,
    /// Its index in the catalogue, which lists the most common mistakes of a family first.
    pub order: usize,
    /// Losses in nats, at the positions of one round. // [position]
    pub losses: Vec<f32>,
    /// The last round that it took part in.
    pub round: usize,
    /// Losses in nats on the beginnings of the texts; empty if not measured. // [position of all beginnings]
    pub of_beginnings: Vec<f32>,
    /// Mean loss as declared, but without attention, or without feed-forward layers, where it changes the model: in its layer, or
    /// in all. `None` if not measured.
    pub silenced: Option<f64>,
    /// Mean loss of the same reading where no layer adds anything to the residual: what the embedding tells of a label that a
    /// position sees. `None` if it sees none.
    pub by_embedding: Option<f64>,
}

impl TrainingProbe {
    /// Number of positions compared, and what they are of.
    pub(super) fn positions(&self) -> String {
        let n = self.declared.last().map_or(0, Vec::len);
        match &self.added {
            Some(added) => format!("{n} positions of the prompt and {added}"),
            None => format!("{n} positions"),
        }
    }
}

impl TestedHypothesis {
    /// The same reading with its losses on beginnings; `None` if not measured.
    pub(super) fn in_beginnings(&self) -> Option<Self> {
        (!self.of_beginnings.is_empty()).then(|| Self {
            losses: self.of_beginnings.clone(),
            of_beginnings: Vec::new(),
            silenced: None,
            by_embedding: None,
            ..self.clone()
        })
    }
}

/// Losses under every reading.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingProbe {
    /// Losses as declared, in nats; later rounds have more positions. // [round][position]
    pub declared: Vec<Vec<f32>>,
    /// Texts that were added to prompts too short to tell, in words.
    pub added: Option<String>,
    /// Whether all texts together are noise to any model.
    pub noise: Option<Noise>,
    /// Whether losses are of next tokens, for which a beginning is a complete task; otherwise of masked tokens, which see the
    /// whole text.
    pub tells_next: bool,
    /// The index of each position of the last round within its text. // [position]
    pub places: Vec<usize>,
    /// Losses as declared on the beginnings of the texts; empty if no text is longer. // [position of all beginnings]
    pub of_beginnings: Vec<f32>,
    pub readings: Vec<TestedHypothesis>,
    /// Number of readings skipped, or dropped before a decision, because of their cost.
    pub n_left_out: usize,
    /// Seconds that those would take at least, as budgets count them.
    pub seconds_left_out: f64,
    /// Loss of guessing by the text's own token frequencies, in nats.
    pub unigram_loss: f64,
    /// Loss of guessing by what followed each token so far, starting from a uniform distribution.
    pub pair_loss: f64,
    /// Loss as declared on the second copies of repeated texts: low if the model can copy. NaN if no reading that may win reveals
    /// labels.
    pub copy_loss: f64,
}
