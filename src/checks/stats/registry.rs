//! The registry: each statistic once, with the name by which code accesses its value.

use super::{
    Compute, Statistic, concentration, contribution, entropy, norms, position, residual, scores,
    variance,
};

/// Lists every statistic, in the order of reports.
macro_rules! registry {
    ($($name:ident => $room:ident::$statistic:ident,)*) => {
        /// A statistic by name, so that a misspelt name does not compile. Its id in reports is the name in snake case.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Stat {
            $(#[doc = concat!("`", stringify!($room), "::", stringify!($statistic), "`")] $name,)*
        }

        /// Every statistic, in the order of reports.
        pub static STATISTICS: &[&Statistic] = &[$(&$room::$statistic,)*];

        impl Stat {
            /// Every name, in the order of [`STATISTICS`].
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

registry! {
    EntropyRelative => entropy::RELATIVE,
    Entropy => entropy::ENTROPY,
    EffectiveKeys => entropy::EFFECTIVE_KEYS,
    MaxProbability => concentration::MAX_PROBABILITY,
    SaturatedRows => concentration::SATURATED_ROWS,
    EmptyRows => concentration::EMPTY_ROWS,
    SinkMass => concentration::SINK_MASS,
    FirstKeyMass => position::FIRST_KEY_MASS,
    PreviousMass => position::PREVIOUS_MASS,
    DiagonalMass => position::DIAGONAL_MASS,
    DuplicateMass => position::DUPLICATE_MASS,
    InductionMass => position::INDUCTION_MASS,
    MeanDistance => position::MEAN_DISTANCE,
    LaterMass => position::LATER_MASS,
    PadMass => position::PAD_MASS,
    DocumentMass => position::DOCUMENT_MASS,
    TopKRecall => concentration::TOP_K_RECALL,
    ScoreMean => scores::MEAN,
    ScoreStd => scores::STD,
    ScoreMin => scores::MIN,
    ScoreMax => scores::MAX,
    ScoreRowNorm => scores::ROW_NORM,
    ScoreRowVariance => scores::ROW_VARIANCE,
    MaxAbsScore => scores::MAX_ABS,
    ScoreVarObserved => variance::OBSERVED,
    ScoreVarPredicted => variance::PREDICTED,
    ScoreVarRatio => variance::RATIO,
    QNorm => norms::Q_NORM,
    KNorm => norms::K_NORM,
    QkCosine => norms::COSINE,
    HeadOutputNorm => norms::OUTPUT_NORM,
    HeadOutputShare => norms::OUTPUT_SHARE,
    ContributionFirst => contribution::FIRST,
    ContributionEntropy => contribution::ENTROPY,
    ContributionTotal => contribution::TOTAL,
    ResidNorm => residual::RESID_NORM,
    AttnOutNorm => residual::ATTN_OUT_NORM,
    MlpOutNorm => residual::MLP_OUT_NORM,
    ResidSpread => residual::SPREAD,
    ResidCosine => residual::COSINE,
    ResidMaxAbs => residual::MAX_ABS,
    ResidMedianAbs => residual::MEDIAN_ABS,
}

/// Other accepted names, for users who look for a statistic by the type of a head.
const ALIASES: [(&str, Stat); 1] = [("current_mass", Stat::DiagonalMass)];

impl Stat {
    /// The index in [`STATISTICS`] and in [`Values`].
    pub fn idx(self) -> usize {
        self as usize
    }

    /// The registered statistic.
    pub fn statistic(self) -> &'static Statistic {
        STATISTICS[self.idx()]
    }

    /// The id in reports.
    pub fn id(self) -> &'static str {
        self.statistic().id
    }

    /// The statistic with this id or alias.
    pub fn named(id: &str) -> Option<Self> {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == id);
        let by_id = || Self::ALL.iter().copied().find(|stat| stat.id() == id);
        alias.map(|(_, stat)| *stat).or_else(by_id)
    }
}

/// The index of a statistic in [`STATISTICS`], by its id or alias.
pub fn index_of(id: &str) -> Option<usize> {
    Stat::named(id).map(Stat::idx)
}

/// The values of all statistics at one place, in the registry's order. A statistic that has no meaning at the place is absent,
/// which is not the same as a value that is NaN because the run is broken.
#[derive(Debug, Clone, PartialEq)]
pub struct Values(pub(super) Vec<Option<f64>>);

impl Values {
    /// The value of a statistic by its index in [`STATISTICS`]; `None` where it is absent.
    pub fn measured(&self, statistic_idx: usize) -> Option<f64> {
        self.0[statistic_idx]
    }

    /// All values, in the registry's order.
    pub fn iter(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        self.0.iter().copied()
    }

    /// The value of a statistic by its index, for arithmetic: NaN where it is absent.
    pub fn at(&self, statistic_idx: usize) -> f64 {
        self.measured(statistic_idx).unwrap_or(f64::NAN)
    }

    /// The value of a statistic, for arithmetic: NaN where it is absent.
    pub fn of(&self, stat: Stat) -> f64 {
        self.at(stat.idx())
    }

    /// Collects values computed elsewhere, by their ids; `None` for those that are absent.
    pub fn by_id(of: impl Fn(&str) -> Option<f64>) -> Self {
        Self(Stat::ALL.iter().map(|stat| of(stat.id())).collect())
    }
}

impl Statistic {
    /// Whether single heads have this statistic.
    pub fn is_per_head(&self) -> bool {
        matches!(self.compute, Compute::Head(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_its_name_in_snake_case() {
        assert_eq!(Stat::ALL.len(), STATISTICS.len());
        for stat in Stat::ALL {
            let mut id = String::new();
            for letter in format!("{stat:?}").chars() {
                if letter.is_ascii_uppercase() && !id.is_empty() {
                    id.push('_');
                }
                id.push(letter.to_ascii_lowercase());
            }
            assert_eq!(stat.id(), id);
            assert_eq!(Stat::named(&id), Some(*stat));
        }
    }

    #[test]
    fn no_alias_equals_the_id_of_a_statistic() {
        for (alias, stat) in ALIASES {
            assert!(STATISTICS.iter().all(|other| other.id != alias));
            assert_eq!(Stat::named(alias), Some(stat));
        }
        assert_eq!(Stat::named("no_such"), None);
    }
}
