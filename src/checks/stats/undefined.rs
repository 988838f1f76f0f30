//! Why a statistic is undefined on a run: the text, the mask or the layer lacks what it needs. A value that is not finite but
//! should be has no such reason.

use attnscope_compute::attention::{HeadSummary, RowSummary, Scale};
use attnscope_spec::Stack;

use super::position::has_previous;
use super::{LayerReport, Stat, distributions_over, rows_seeing};

/// No query sees an earlier copy of its token, or none sees the key after one.
const NO_REPEAT: &str = "no token repeats where a query sees it";

/// The basis of a head's statistics, as a layer's report keeps it.
struct Evidence<'a> {
    layer: &'a LayerReport,
    summary: &'a HeadSummary,
}

impl LayerReport {
    /// Marks statistics as absent where there is a reason why they have no value. What remains NaN is broken.
    #[must_use]
    pub fn with_absent(mut self) -> Self {
        let idxs = 0..Stat::ALL.len();
        let layer = idxs.clone().map(|idx| self.why_undefined(idx, None));
        let layer: Vec<bool> = layer.map(|why| why.is_some()).collect();
        let of_head = |head_idx| {
            let whys = idxs
                .clone()
                .map(move |idx| (idx, head_idx))
                .filter(|(idx, head_idx)| self.why_undefined(*idx, Some(*head_idx)).is_some());
            whys.map(|(idx, _)| idx).collect::<Vec<_>>()
        };
        let heads: Vec<Vec<usize>> = (0..self.heads.len()).map(of_head).collect();
        for (head, absent) in self.heads.iter_mut().zip(heads) {
            absent.into_iter().for_each(|idx| head.stats.0[idx] = None);
        }
        for (value, is_absent) in self.stats.0.iter_mut().zip(layer) {
            *value = value.filter(|_| !is_absent);
        }
        self
    }

    /// The reason why a statistic of a head is undefined, or of the layer if no head is given. `None` if it has a value, or
    /// should have one.
    pub fn why_undefined(
        &self,
        statistic_idx: usize,
        head_idx: Option<usize>,
    ) -> Option<&'static str> {
        let stat = *Stat::ALL.get(statistic_idx)?;
        if !stat.statistic().is_per_head() {
            let is_absent = self.stats.measured(statistic_idx).is_none();
            return is_absent.then_some(why_of_layer(stat));
        }
        if let Some(head_idx) = head_idx {
            return self.why_of_head(stat, head_idx);
        }
        if self.heads.is_empty() {
            return Some("the layer has no heads");
        }
        if !self.stats.of(stat).is_nan() {
            return None;
        }
        let heads = 0..self.heads.len();
        let unknown = heads.filter(|idx| self.heads[*idx].stats.of(stat).is_nan());
        let mut reasons = unknown.map(|head_idx| self.why_of_head(stat, head_idx));
        let first = reasons.next().flatten()?;
        reasons.all(|reason| reason.is_some()).then_some(first)
    }

    fn why_of_head(&self, stat: Stat, head_idx: usize) -> Option<&'static str> {
        let head = self.heads.get(head_idx)?;
        let evidence = Evidence {
            layer: self,
            summary: &head.summary,
        };
        let is_absent = head.stats.measured(stat.idx()).is_none();
        let why = evidence.why(stat).filter(|_| head.stats.of(stat).is_nan());
        why.or_else(|| is_absent.then_some(why_not_given(stat)))
    }
}

/// Why a layer has no value of a statistic of the residual stream.
fn why_of_layer(stat: Stat) -> &'static str {
    match stat {
        Stat::AttnOutNorm => "what attention adds to the residual is not known",
        Stat::MlpOutNorm => "what the feed-forward layer adds to the residual is not known",
        Stat::ResidSpread => "no residual other than 0 is known",
        Stat::ResidCosine => "no residual of two tokens is known",
        _ => "the residual is not known",
    }
}

/// Why a head has no value of a statistic although its rows would allow one: the run does not have what it is computed from.
fn why_not_given(stat: Stat) -> &'static str {
    match stat {
        Stat::HeadOutputNorm | Stat::HeadOutputShare => "the head's output is not known",
        _ => "the run does not have what it is computed from",
    }
}

impl<'a> Evidence<'a> {
    fn seeing(&self, n: u32) -> impl Iterator<Item = &'a RowSummary> + use<'a> {
        rows_seeing(self.summary, n)
    }

    fn why(&self, stat: Stat) -> Option<&'static str> {
        // Broken numbers are a fault, not a matter of definition.
        let is_broken = |row: &RowSummary| row.is_nonfinite || row.mass.is_nan();
        if self.seeing(1).any(is_broken) {
            return None;
        }
        if let Some(reason) = self.not_recorded(stat) {
            return Some(reason);
        }
        match stat {
            Stat::DocumentMass if !self.layer.spec.is_cross => Some("no other document is known"),
            Stat::SinkMass if !self.layer.has_sinks => Some("the layer has no learned sink"),
            Stat::TopKRecall if self.layer.spec.top_keys.is_none() => {
                Some("attention sees all visible keys")
            }
            Stat::TopKRecall => self
                .unmarked(|row| row.recall)
                .then_some("no query sees more keys than it keeps"),
            Stat::PreviousMass
            | Stat::DiagonalMass
            | Stat::MeanDistance
            | Stat::LaterMass
            | Stat::DocumentMass
            | Stat::DuplicateMass
            | Stat::InductionMass
                if self.layer.spec.is_cross =>
            {
                Some(if self.layer.stack == Stack::Cross {
                    "queries and keys are tokens of two texts"
                } else {
                    "queries and keys are not the same positions"
                })
            }
            Stat::ContributionFirst | Stat::ContributionEntropy | Stat::ContributionTotal
                if self.summary.value_norms.is_empty() =>
            {
                Some("lengths of values are not known")
            }
            Stat::ContributionFirst if self.seeing(1).all(|row| row.contribution == 0.0) => {
                Some("the head carries nothing")
            }
            Stat::ScoreVarPredicted | Stat::ScoreVarRatio
                if matches!(self.layer.spec.scale, Scale::OfKeys(_)) =>
            {
                Some("each score has a factor of its own")
            }
            Stat::ScoreVarRatio if self.has_no_length() => {
                Some("all queries or all keys have length 0")
            }
            Stat::PadMass => {
                let is_padded = |real: &Vec<bool>| real.contains(&false);
                let has_none = !self.summary.real_keys.as_ref().is_some_and(is_padded);
                has_none.then_some("no key is padding")
            }
            Stat::PreviousMass => {
                let has_none = has_previous(self.summary).next().is_none();
                has_none.then_some("no query has a previous token")
            }
            Stat::DuplicateMass => self.unmarked(|row| row.duplicate_mass).then_some(NO_REPEAT),
            Stat::InductionMass => self.unmarked(|row| row.induction_mass).then_some(NO_REPEAT),
            Stat::EntropyRelative | Stat::SaturatedRows => self.no_distribution_over(2),
            Stat::Entropy | Stat::EffectiveKeys => self.no_distribution_over(1),
            Stat::MaxProbability | Stat::ScoreRowVariance => self.none_seeing(2),
            _ => self.none_seeing(1),
        }
    }

    /// What a trace without the values leaves open.
    fn not_recorded(&self, stat: Stat) -> Option<&'static str> {
        let has_scores = || self.seeing(1).any(|row| !row.score_mean.is_nan());
        let has_queries = || self.seeing(1).any(|row| !row.q_norm.is_nan());
        let has_keys = || self.summary.k_norms.iter().any(|norm| !norm.is_nan());
        match stat {
            _ if self.seeing(1).next().is_none() => None,
            Stat::ScoreMean
            | Stat::ScoreStd
            | Stat::ScoreMin
            | Stat::ScoreMax
            | Stat::ScoreRowNorm
            | Stat::ScoreRowVariance
            | Stat::MaxAbsScore
            | Stat::ScoreVarObserved => (!has_scores()).then_some("scores are not known"),
            Stat::QNorm | Stat::QkCosine | Stat::ScoreVarPredicted | Stat::ScoreVarRatio => {
                (!has_queries()).then_some("queries and keys are not known")
            }
            Stat::KNorm => (!has_keys()).then_some("keys are not known"),
            _ => None,
        }
    }

    fn none_seeing(&self, n: u32) -> Option<&'static str> {
        let is_none = self.seeing(n).next().is_none();
        is_none.then_some(match n {
            1 => "no query sees a key",
            _ => "no query sees two keys",
        })
    }

    fn no_distribution_over(&self, n: u32) -> Option<&'static str> {
        let has_one = distributions_over(self.summary, self.layer.has_sinks, n)
            .next()
            .is_some();
        match self.none_seeing(n) {
            Some(reason) => Some(reason),
            None if has_one => None,
            None => Some("rows do not sum to 1, as after a softmax over queries"),
        }
    }

    fn unmarked(&self, marked: impl Fn(&RowSummary) -> f32) -> bool {
        self.seeing(1).all(|row| marked(row).is_nan())
    }

    fn has_no_length(&self) -> bool {
        let queries = self.seeing(1).all(|row| row.q_norm == 0.0);
        queries || self.summary.k_norms.iter().all(|norm| *norm == 0.0)
    }
}
