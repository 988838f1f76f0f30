//! A head's bias as rows that a kernel can add: computed once per head if only distance or key matter, otherwise row by row.

use super::head_bias::HeadBias;
use super::row::HeadMath;
use super::spec::Bias;

/// Extra values after the last key, so that whole vectors can be read there.
const MARGIN: usize = 64;

/// Where a row's bias comes from.
#[derive(Debug)]
pub(super) enum RowBias {
    None,
    /// Indexed by key − query, from −(n_queries − 1) on.
    ByDistance(Vec<f32>),
    ByKey(Vec<f32>),
    /// Positions differ from indices, or the bias depends on content: computed for each row.
    EachRow,
}

impl RowBias {
    pub(super) fn of(math: &HeadMath<'_>) -> Self {
        let visibility = math.visibility;
        let (n_queries, n_keys) = (visibility.n_queries, visibility.n_keys);
        let padded = |values: &mut dyn Iterator<Item = f32>| {
            let margin = std::iter::repeat_n(0.0, MARGIN);
            values.chain(margin).collect()
        };
        match &math.spec.bias {
            Bias::None => Self::None,
            Bias::Buckets(_) => match math.learned.of_keys() {
                HeadBias::ByDistance(values) => {
                    Self::ByDistance(padded(&mut values.iter().copied()))
                }
                HeadBias::ByCell(_) => Self::EachRow,
                _ => Self::None,
            },
            Bias::OfValues => match math.learned.of_keys() {
                HeadBias::ByKey(values) => Self::ByKey(padded(&mut values.iter().copied())),
                _ => Self::None,
            },
            Bias::Relative(_)
            | Bias::Grid(_)
            | Bias::Pairs(_)
            | Bias::Steps(_)
            | Bias::Profiles(_) => Self::EachRow,
            Bias::Alibi(alibi) if alibi.rounds_to_bf16 => Self::ByKey(padded(
                &mut (0..n_keys).map(|key_idx| math.bias(0, key_idx)),
            )),
            Bias::Alibi(_) if math.counts_indices() => {
                // Distances of the last query to all keys, then of the first query to the keys after it.
                let last = n_queries.saturating_sub(1);
                let before = (0..last).map(|behind| math.bias(last, behind));
                let after = (0..n_keys).map(|key_idx| math.bias(0, key_idx));
                Self::ByDistance(padded(&mut before.chain(after)))
            }
            Bias::Alibi(_) => Self::EachRow,
        }
    }

    /// The bias of one row's keys; `spare` is a buffer for values computed for this row.
    pub(super) fn row<'a>(
        &'a self,
        math: &HeadMath<'_>,
        query_idx: usize,
        spare: &'a mut Vec<f32>,
    ) -> Option<&'a [f32]> {
        match self {
            Self::None => None,
            Self::ByDistance(values) => Some(&values[math.visibility.n_queries - 1 - query_idx..]),
            Self::ByKey(values) => Some(values),
            Self::EachRow => {
                spare.clear();
                let n_keys = math.visibility.n_keys;
                match math.learned.of_keys() {
                    HeadBias::BySteps(steps) => {
                        steps.row(query_idx, spare);
                        // A part of a picture has fewer keys than its grid has places.
                        spare.truncate(n_keys);
                    }
                    _ => spare.extend((0..n_keys).map(|key_idx| math.bias(query_idx, key_idx))),
                }
                spare.resize(n_keys + MARGIN, 0.0);
                Some(spare)
            }
        }
    }
}
