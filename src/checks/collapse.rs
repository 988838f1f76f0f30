//! Whether the attention of a head has collapsed, why, and whether its low entropy is by design. Checks and the Rows panel share
//! these answers.

use attnscope_compute::attention::{AttentionSpec, HeadSummary, Scale};

use super::thresholds::Thresholds;
use crate::stats::{
    HeadReport, HeadType, LayerReport, Stat, Values, commonest_distance, relative_over_keys,
};

/// Predicted standard deviation under 1/√d above which queries and keys count as too long.
const LONG: f64 = 3.0;
/// A scale of this many times 1/√d counts as missing.
pub(super) const UNSCALED: f64 = 2.0;
/// Variance of the scores up to which they saturate nothing.
const ORDINARY_VARIANCE: f64 = 2.0;
/// Standard deviation predicted from scale and norms above which scores are out of range, however queries and keys align. A
/// trained T5 with aligning heads reaches 4.2; a translator without scaling has 5.4 on average.
const OUT_OF_RANGE: f64 = 5.0;
/// If scores spread this many times wider than norms predict, the angles are the cause.
const ALIGNED_SPREAD: f64 = 2.0;
/// Mean cosine above which directions alone decide.
const ALIGNED: f64 = 0.7;

/// Whether a learned sink takes part of a head's rows.
pub(super) fn has_sink(layer: &LayerReport, head: &HeadReport) -> bool {
    let audit = head.audit.as_ref();
    layer.has_sinks || audit.is_some_and(|audit| audit.learned_sink.is_some())
}

/// Mean relative entropy of a head; with a learned sink, over the remaining probability. NaN if rows are not distributions.
pub fn relative_entropy(layer: &LayerReport, head: &HeadReport) -> f64 {
    // This statistic is NaN if rows are not distributions.
    if head.stats.of(Stat::EffectiveKeys).is_nan() {
        f64::NAN
    } else if has_sink(layer, head) {
        relative_over_keys(&head.summary, true)
    } else {
        head.stats.of(Stat::EntropyRelative)
    }
}

/// Whether enough rows see two keys to speak of a head: a step of a decoder has one row, which is sharp or not by its token. Ours.
pub(super) fn has_rows(head: &HeadReport) -> bool {
    const FEWEST: usize = 4;
    let rows = head.summary.rows.iter();
    let telling = rows.filter(|row| row.is_real && row.n_visible >= 2);
    telling.take(FEWEST).count() == FEWEST
}

/// How sharp the rows of a head are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharpness {
    /// Not sharp, or not distributions.
    Ordinary,
    /// Cross-attention whose queries each look at one or a few keys, but at different ones: word alignment.
    Alignment,
    /// Cross-attention as sharp as an alignment, but most heads of the layer have scores out of range: the scale and the lengths
    /// of queries and keys make it sharp, whether or not the words belong together.
    OutOfRange,
    /// All queries attend to one key.
    Collapsed,
}

/// Classifies a head by its mean relative entropy. NaN counts as ordinary.
pub fn sharpness(
    layer: &LayerReport,
    head: &HeadReport,
    relative_entropy: f64,
    thresholds: &Thresholds,
) -> Sharpness {
    let most_of_one = thresholds.entropy_collapse.by_design;
    let is_spread = || favourite(&head.summary).is_some_and(|(_, share)| share < most_of_one);
    let of = &thresholds.entropy_collapse;
    if layer.spec.is_cross && relative_entropy < of.alignment && is_spread() {
        let is_out = |head: &&HeadReport| {
            are_out_of_range(&head.stats) && self::relative_entropy(layer, head) < of.alignment
        };
        // Some heads of a layer learn to align. If scores alone make most heads as sharp, none has learned to.
        let n_out = layer.heads.iter().filter(is_out).count();
        if are_out_of_range(&head.stats) && 2 * n_out > layer.heads.len() {
            Sharpness::OutOfRange
        } else {
            Sharpness::Alignment
        }
    } else if relative_entropy < of.relative_entropy {
        Sharpness::Collapsed
    } else {
        Sharpness::Ordinary
    }
}

/// Whether this share of saturated rows leaves a head without a gradient.
pub fn is_saturated(share: f64, thresholds: &Thresholds) -> bool {
    share > thresholds.softmax_saturation.saturated_rows
}

/// Ratio of the observed to the predicted variance of the scores, or its inverse if that is larger; 1 if they agree.
pub fn spread_excess(stats: &Values) -> f64 {
    let ratio = stats.of(Stat::ScoreVarObserved) / stats.of(Stat::ScoreVarPredicted);
    if ratio < 1.0 { ratio.recip() } else { ratio }
}

/// The scale as a multiple of 1/√d; 1 for scales that differ from row to row.
pub fn times_inv_sqrt_d(spec: &AttentionSpec) -> f64 {
    let factor = f64::from(spec.scale.factor(spec.d_head));
    let usual = f64::from(Scale::InvSqrtD.factor(spec.d_head));
    if factor.is_nan() { 1.0 } else { factor / usual }
}

/// Whether queries and keys are so long that scores spread widely even with a scale of 1/√d; `None` if not measured.
pub fn are_too_long(spec: &AttentionSpec, stats: &Values) -> Option<bool> {
    let predicted = stats.of(Stat::ScoreVarPredicted).sqrt() / times_inv_sqrt_d(spec).max(1.0);
    (!predicted.is_nan()).then_some(predicted > LONG)
}

/// Whether scores spread beyond the range of a softmax, as scale and lengths alone predict. False if queries and keys were not
/// measured.
pub fn are_out_of_range(stats: &Values) -> bool {
    let [observed, predicted] =
        [Stat::ScoreVarObserved, Stat::ScoreVarPredicted].map(|stat| stats.of(stat).sqrt());
    observed > OUT_OF_RANGE && predicted > OUT_OF_RANGE
}

/// The cause of a head's score spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// There are no scores.
    NoScores,
    /// Scores spread, but queries and keys were not measured.
    NotMeasured,
    /// Scores hardly spread.
    Ordinary,
    /// A position bias.
    Bias,
    /// Long queries and keys.
    Norms,
    /// A scale far above 1/√d.
    Scale,
    /// Aligned queries and keys.
    Angles,
    /// Lengths and angles together, neither of them dominant.
    Both,
}

/// Finds the cause of a head's score spread.
pub fn cause(spec: &AttentionSpec, stats: &Values) -> Cause {
    let spread = stats.of(Stat::ScoreStd);
    let (raw, predicted) = (
        stats.of(Stat::ScoreVarObserved).sqrt(),
        stats.of(Stat::ScoreVarPredicted).sqrt(),
    );
    match are_too_long(spec, stats) {
        _ if spread.is_nan() => Cause::NoScores,
        _ if spread * spread <= ORDINARY_VARIANCE => Cause::Ordinary,
        _ if raw * raw <= ORDINARY_VARIANCE && spread > 2.0 * raw => Cause::Bias,
        None => Cause::NotMeasured,
        Some(true) => Cause::Norms,
        Some(false) if times_inv_sqrt_d(spec) >= UNSCALED => Cause::Scale,
        Some(false) if raw > ALIGNED_SPREAD * predicted || is_aligned(stats) => Cause::Angles,
        Some(false) => Cause::Both,
    }
}

/// Whether queries and keys point in the same or in opposite directions on average.
pub fn is_aligned(stats: &Values) -> bool {
    stats.of(Stat::QkCosine).abs() > ALIGNED
}

impl Cause {
    /// Advice on how to fix a collapse with this cause.
    pub fn advice(self) -> &'static str {
        match self {
            Self::NoScores => {
                "capture q, k and scores as well: the pattern alone does not say whether norms, cosine or scale are the cause"
            }
            Self::NotMeasured => {
                "scores spread widely: capture q and k as well, which say whether their lengths or their angles are the cause"
            }
            Self::Ordinary => {
                "the scores' spread is ordinary: look at what the few visible keys have in common"
            }
            Self::Bias => {
                "what position adds spreads the scores, not q·k: compare slopes or buckets of the bias with the training code's"
            }
            Self::Norms => {
                "queries and keys are too long: add QK-norm, or lower the learning rate of W_Q and W_K"
            }
            Self::Scale => {
                "the scale is far above 1/√d, and queries and keys are of ordinary length: divide by √d (--what-if scale=inv_sqrt_d)"
            }
            Self::Angles => {
                "queries and keys align more than their norms alone would have it: look at their cosine, and at a shared bias"
            }
            Self::Both => {
                "lengths and angles of queries and keys together spread the scores, and neither stands out: add QK-norm, or a temperature above 1"
            }
        }
    }
}

/// Why a low entropy is by design: where most of the probability goes, and how much of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    pub what: String,
    pub share: f64,
}

/// Kinds of places that heads attend to by design, with the statistic that measures each.
const PLACES: [(Stat, &str); 6] = [
    (Stat::SinkMass, "its learned sink"),
    (Stat::FirstKeyMass, "the first token"),
    (Stat::PreviousMass, "the previous token"),
    (Stat::DiagonalMass, "the query's own token"),
    (Stat::DuplicateMass, "earlier copies of the token"),
    (
        Stat::InductionMass,
        "what followed earlier copies of the token",
    ),
];

/// Returns what a head attends to by design: a kind of place, one distance, or one key that is a sink. A key is a sink if most
/// queries of the layer look at it, or if it is the first token or a delimiter. A key that only this head looks at is no excuse.
///
/// `is_delimiter` says whether a key is a token that separates others.
pub fn by_design(
    layer: &LayerReport,
    head: &HeadReport,
    is_delimiter: &dyn Fn(usize) -> bool,
    thresholds: &Thresholds,
) -> Option<Design> {
    let least = thresholds.entropy_collapse.by_design;
    let shares = PLACES.map(|(stat, what)| (head.stats.of(stat), what));
    // A kind of place that the text does not have is NaN, and fails every comparison.
    let strongest = shares
        .into_iter()
        .filter(|(share, _)| *share >= least)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((share, what)) = strongest {
        return Some(Design {
            what: what.to_owned(),
            share,
        });
    }
    if let Some(design) = one_distance(head).filter(|design| design.share >= least) {
        return Some(design);
    }
    let (key_idx, share) = favourite(&head.summary)?;
    let what = match () {
        () if share < least => return None,
        () if Some(key_idx) == first_real_key(&head.summary) => "the first token".to_owned(),
        () if is_delimiter(key_idx) => format!("key {key_idx}, a delimiter"),
        () if share_looking_at(layer, key_idx) > 0.5 => {
            format!("key {key_idx}, where most queries of the layer look")
        }
        () => return None,
    };
    Some(Design { what, share })
}

/// For a positional head: the distance that nearly all of its queries share, and their minimum share there.
fn one_distance(head: &HeadReport) -> Option<Design> {
    if head.kind != Some(HeadType::Positional) {
        return None;
    }
    let (distance, _) = commonest_distance(&head.summary)?;
    let rows = head.summary.rows.iter().enumerate();
    let rows = rows.filter(|(_, row)| row.is_real && row.n_visible >= 2);
    let given: Vec<f64> = rows
        .map(|(query_idx, row)| {
            let is_there = query_idx as isize - row.argmax as isize == distance;
            if is_there { f64::from(row.top1) } else { 0.0 }
        })
        .collect();
    let way = if distance < 0 { "ahead" } else { "back" };
    Some(Design {
        what: format!("the token {} {way}", distance.unsigned_abs()),
        share: given.iter().sum::<f64>() / given.len().max(1) as f64,
    })
}

/// The key with the most probability of a head, and its share of the total over all real queries.
pub(super) fn favourite(summary: &HeadSummary) -> Option<(usize, f64)> {
    let n = summary.rows.iter().filter(|row| row.is_real).count();
    let sums = summary.column_sums.iter().map(|sum| f64::from(*sum));
    let (key_idx, sum) = sums.enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((key_idx, sum / n.max(1) as f64))
}

fn first_real_key(summary: &HeadSummary) -> Option<usize> {
    match &summary.real_keys {
        Some(real) => real.iter().position(|is_real| *is_real),
        None => Some(0),
    }
}

/// Share of a layer's queries whose largest probability is on a key, among queries that may see this key and at least two in all.
fn share_looking_at(layer: &LayerReport, key_idx: usize) -> f64 {
    let (mut n, mut n_looking) = (0usize, 0usize);
    for head in &layer.heads {
        let rows = &head.summary.rows;
        let seeing = head.summary.queries_seeing(layer.spec.mask, key_idx);
        for row in seeing.flat_map(|range| &rows[range]) {
            if row.is_real && row.n_visible >= 2 {
                n += 1;
                n_looking += usize::from(row.argmax as usize == key_idx);
            }
        }
    }
    // With one head, the layer gives no evidence beyond the head itself.
    match layer.heads.len() {
        0 | 1 => 0.0,
        _ => n_looking as f64 / n.max(1) as f64,
    }
}
