//! What checks look at: layers of a run or of a trace, and what probes saw.

use std::collections::BTreeMap;
use std::sync::Arc;

use attnscope_compute::attention::{LayerAudit, Pooled, SoftmaxAxis};
use attnscope_prompt::Lost;
use attnscope_spec::{Place, Stack};

use super::collapse::{Design, by_design, has_sink};
use super::thresholds::Thresholds;
use super::verdict::Verdict;
use super::weights_seen::Weights;
use crate::stats::{HeadReport, LayerReport};

/// Whose attention it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A checkpoint that we ran: mask, axis and window are ours.
    Checkpoint,
    /// What somebody else's code computed.
    Trace,
    /// What moved in somebody else's model when its input was changed.
    Probe,
}

/// Everything a check may look at.
#[derive(Debug, Clone)]
pub struct Evidence<'a> {
    pub subject: Subject,
    /// In the order in which they run.
    pub layers: &'a [Arc<LayerReport>],
    /// How far a row's sum may lie from 1, by the dtype in which the pattern was stored.
    pub row_tolerance: f64,
    /// The first NaN or infinity: where, and in words.
    pub first_nonfinite: Option<(Place, String)>,
    /// Largest |value| of a residual that the checkpoint's own dtype could not hold, and that dtype's name.
    pub narrow_dtype: Option<(&'static str, f64)>,
    /// What a trace lacks, in words, for checks that need it.
    pub lacks: Option<String>,
    pub probes: &'a Probes,
    /// Positions that a model's configuration names.
    pub n_ctx: Option<usize>,
    /// Mean next-token loss, where the model has one.
    pub loss: Option<f64>,
    /// What an earlier report says of the same prompt.
    pub baseline: Option<&'a Baseline>,
    /// Which tokens separate others.
    pub delimiters: Delimiters<'a>,
    /// How much of the text its tokenizer does not know.
    pub lost: Lost,
}

/// Tells whether a token separates others: punctuation, a line break, a special token. Asked only where it matters, since it
/// may take a vocabulary.
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
pub type Then = BTreeMap<String, f64>;

/// One prompt of an earlier report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Baseline {
    pub loss: Option<f64>,
    /// By stack, layer and head; of the layer itself without a head.
    pub places: BTreeMap<(Stack, usize, Option<usize>), Then>,
}

/// Probability on forbidden keys, over a whole head, that still leaves its entropy what it is.
const LEAKED: f64 = 1e-3;

impl<'a> Evidence<'a> {
    /// Of layers alone: nothing else is known.
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
            narrow_dtype: None,
            lacks: None,
            probes,
            n_ctx: None,
            loss: None,
            baseline: None,
            delimiters: Delimiters::default(),
            lost: Lost::default(),
        }
    }

    /// What a look at the weights showed, or the verdict where there was none.
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

    /// Whether rows of a head are distributions over keys, so that an entropy means something.
    pub fn has_distributions(&self, layer: &LayerReport, head: &HeadReport) -> bool {
        // Mass on keys that a query may not see makes an entropy over those it may see meaningless.
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

    /// What a head attends to by design, where it does.
    pub(super) fn by_design(
        &self,
        layer: &LayerReport,
        head: &HeadReport,
        thresholds: &Thresholds,
    ) -> Option<Design> {
        // Nothing is a delimiter where tokens are not known.
        let is_delimiter = |key_idx| self.delimiters.0.is_some_and(|is| is(layer.stack, key_idx));
        by_design(layer, head, &is_delimiter, thresholds)
    }
}

/// What the arrays of a whole layer showed.
pub(super) fn layer_audit(layer: &LayerReport) -> Option<&LayerAudit> {
    layer.heads.first()?.audit.as_ref()?.of_layer.as_deref()
}

/// The row whose mass lies farthest from 1, among real queries that see a key. A NaN is left to `nan-or-inf`, and a row of
/// zeros sees no key, unless all rows are such or dropout made it so.
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

/// Something that was tried, or why it was not.
#[derive(Debug, Clone)]
pub enum Probed<T> {
    /// It cannot be tried here. In words: what it would need.
    Not(String),
    /// It can be tried here, and was not yet. In words: what runs it.
    Untried(String),
    Ran(T),
}

impl<T> Probed<T> {
    /// What it showed, or the verdict where it was not run.
    pub(super) fn seen(&self) -> Result<&T, Verdict> {
        match self {
            Self::Not(why) => Err(Verdict::not_applicable(why.clone())),
            Self::Untried(why) => Err(Verdict::not_tested(why.clone())),
            Self::Ran(seen) => Ok(seen),
        }
    }
}

/// What runs on changed prompts showed.
#[derive(Debug, Clone)]
pub struct Probes {
    pub future: Probed<FutureProbe>,
    pub padding: Probed<InvarianceProbe>,
    pub batch: Probed<InvarianceProbe>,
    pub documents: Probed<InvarianceProbe>,
    /// The prompt again, from another random state.
    pub repeat: Probed<InvarianceProbe>,
    /// The first tokens alone against the whole prompt.
    pub length: Probed<InvarianceProbe>,
    /// The prompt in parts with a cache against the whole prompt.
    pub cache: Probed<InvarianceProbe>,
    pub order: Probed<OrderProbe>,
    pub labels: Probed<LabelsProbe>,
    pub training: Probed<TrainingProbe>,
    /// The weights alone, without text.
    pub weights: Probed<Arc<Weights>>,
}

impl Probes {
    /// None was run.
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
            labels: Probed::Not(why.to_owned()),
            training: Probed::Not(why.to_owned()),
            weights: Probed::Not(why.to_owned()),
        }
    }
}

/// Something that moved though it should not have.
#[derive(Debug, Clone, PartialEq)]
pub struct Movement {
    pub place: Place,
    /// What it is called where a layer's number does not say it.
    pub name: Option<String>,
    /// Largest |difference|, divided by the largest |value|.
    pub amount: f64,
}

/// The pair that shows a leak best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Worst {
    pub changed: usize,
    pub moved: usize,
    pub amount: f64,
}

/// How far each position moved when another was changed. // moved: [changed, position]
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Influence {
    pub changed: Vec<usize>,
    pub n_positions: usize,
    pub moved: Vec<f32>,
}

impl Influence {
    /// As a map of at most so many cells on a side. // [changed, position]
    pub fn map(&self, most_cells: usize) -> Pooled {
        let mut map = Pooled::with_cells(self.changed.len(), self.n_positions, most_cells);
        for (row_idx, row) in self.moved.chunks(self.n_positions.max(1)).enumerate() {
            map.add_row(row_idx, row);
        }
        map
    }
}

/// Tokens were changed, and nothing before them may move.
#[derive(Debug, Clone, PartialEq)]
pub struct FutureProbe {
    /// Movements up to here are rounding.
    pub tolerance: f64,
    /// The first layer and head whose pattern moved, and the first residual.
    pub first_pattern: Option<Movement>,
    pub first_residual: Option<Movement>,
    pub worst: Option<Worst>,
    pub influence: Influence,
}

/// Something was changed that may not matter: each case, and what moved first.
#[derive(Debug, Clone, PartialEq)]
pub struct InvarianceProbe {
    pub tolerance: f64,
    pub cases: Vec<(String, Option<Movement>)>,
    /// The largest movement of any case, leak or not.
    pub largest: f64,
}

/// How far the last position of something moved, relative to the largest value.
#[derive(Debug, Clone, PartialEq)]
pub struct Reordered {
    /// What it is called where its place does not say it.
    pub name: Option<String>,
    pub place: Place,
    /// When the tokens before it stood in another order.
    pub by_order: f64,
    /// When they were other tokens.
    pub by_content: f64,
}

/// Earlier tokens were shuffled, and the last position has to move.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderProbe {
    /// Movements up to here are rounding.
    pub tolerance: f64,
    /// The dtype of the model may hide smaller movements than this.
    pub resolution: f64,
    /// Where tokens meet for the first time.
    pub first: Reordered,
    /// The last layer or module.
    pub output: Reordered,
    /// The model is meant to have no positions.
    pub declares_none: bool,
}

/// Losses of every output against tokens at several distances from it, in nats.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelsProbe {
    /// Against the token that it stands on, the next one, and the one after. // [offset][position]
    pub losses: [Vec<f32>; 3],
    /// What guessing by the text's own frequencies would lose.
    pub unigram_loss: f64,
}

/// Whether a token's loss may depend on the token under a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeesLabels {
    Not,
    /// With a small weight, or in some places.
    Faintly,
    Plainly,
}

/// What a reading of the weights says: how they may have been meant, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Readings of one family change one thing in different ways.
    pub family: &'static str,
    /// As it reads after “trained with”.
    pub name: String,
    /// Names of the readings that it is made of, where it is made of several.
    pub parts: Vec<String>,
    /// Flags that run the checkpoint so, or what to correct; may be empty.
    pub advice: String,
    /// The only layer, and its only head, that it is about.
    pub layer_idx: Option<usize>,
    pub head_idx: Option<usize>,
    pub sees_labels: SeesLabels,
    /// Makes attention smoother, which every broken model likes.
    pub smooths: bool,
    /// A reading that shows all of the label that this one shows, and more: a model trained with that one does well with both.
    pub shown_by: Option<&'static str>,
}

/// One way in which the weights may have been meant, and what the model would have lost.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    pub claim: Claim,
    /// Its place in the catalogue, which lists the most usual mistakes of a family first.
    pub order: usize,
    /// Losses in nats, on the positions of one round. // [position]
    pub losses: Vec<f32>,
    /// The last round that it stayed in.
    pub round: usize,
    /// Losses in nats on the beginnings of the texts; empty where it was not asked. // [position of all beginnings]
    pub of_beginnings: Vec<f32>,
}

impl Tried {
    /// What it loses on beginnings in place of whole texts; `None` where it was not asked there.
    pub(super) fn in_beginnings(&self) -> Option<Self> {
        (!self.of_beginnings.is_empty()).then(|| Self {
            losses: self.of_beginnings.clone(),
            of_beginnings: Vec::new(),
            ..self.clone()
        })
    }
}

/// Losses under every reading.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingProbe {
    /// Losses of what is declared, in nats; a later round has more positions. // [round][position]
    pub declared: Vec<Vec<f32>>,
    /// Whether losses are those of tokens that follow, of which a beginning is whole; else of hidden ones, which see all of a text.
    pub tells_next: bool,
    /// Where each position of the last round stands in its text. // [position]
    pub places: Vec<usize>,
    /// Losses of what is declared on the beginnings of the texts; empty where no text is longer. // [position of all beginnings]
    pub of_beginnings: Vec<f32>,
    pub readings: Vec<Tried>,
    /// Readings that were not tried, or given up before they were decided, since they would have cost too much.
    pub n_left_out: usize,
    /// What guessing by the text's own frequencies would lose, in nats.
    pub unigram_loss: f64,
    /// What guessing by the frequencies of the tokens before would lose, beginning with all tokens alike.
    pub blind_loss: f64,
    /// What the declared model loses on second copies of texts said twice: little, where it can copy. NaN where no reading
    /// that may win shows labels.
    pub copy_loss: f64,
}
