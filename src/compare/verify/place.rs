//! Place of an element in a hook's values, by the names of its axes.

use std::fmt;

use attnscope_compute::attention::AttentionSpec;
use attnscope_forward::Hook;

/// Place of a value; all indices count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValuePlace {
    /// A score or a probability.
    Cell {
        head_idx: usize,
        query_idx: usize,
        key_idx: usize,
    },
    /// A component of a query, or of a head's z.
    OfHead {
        position_idx: usize,
        head_idx: usize,
        value_idx: usize,
    },
    /// A component of a key or a value.
    OfKvHead {
        position_idx: usize,
        kv_head_idx: usize,
        value_idx: usize,
    },
    /// A component of the residual stream, or of a branch output.
    OfPosition {
        position_idx: usize,
        value_idx: usize,
    },
    /// A logit.
    OfToken { position_idx: usize, token: usize },
}

impl ValuePlace {
    /// Returns the place of an element of scores or pattern. // [head, query, key]
    pub(super) fn cell(element: usize, (n_queries, n_keys): (usize, usize)) -> Self {
        let row = element / n_keys.max(1);
        Self::Cell {
            head_idx: row / n_queries.max(1),
            query_idx: row % n_queries.max(1),
            key_idx: element % n_keys.max(1),
        }
    }

    /// Returns the place of an element of another hook. // [position, width]
    pub(super) fn of(
        hook: Hook,
        element: usize,
        width: usize,
        attention: Option<&AttentionSpec>,
    ) -> Self {
        let (position_idx, column) = (element / width.max(1), element % width.max(1));
        match (hook, attention) {
            (Hook::Q | Hook::RotQ | Hook::Z, Some(attention)) => {
                let d_head = (width / attention.n_heads.max(1)).max(1);
                Self::OfHead {
                    position_idx,
                    head_idx: column / d_head,
                    value_idx: column % d_head,
                }
            }
            (Hook::K | Hook::RotK | Hook::V, Some(attention)) => {
                let d_head = (width / attention.n_kv_heads.max(1)).max(1);
                Self::OfKvHead {
                    position_idx,
                    kv_head_idx: column / d_head,
                    value_idx: column % d_head,
                }
            }
            _ => Self::OfPosition {
                position_idx,
                value_idx: column,
            },
        }
    }
}

impl fmt::Display for ValuePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cell {
                head_idx,
                query_idx,
                key_idx,
            } => write!(f, "head {head_idx} query {query_idx} key {key_idx}"),
            Self::OfHead {
                position_idx,
                head_idx,
                value_idx,
            } => write!(
                f,
                "head {head_idx} position {position_idx} value {value_idx}"
            ),
            Self::OfKvHead {
                position_idx,
                kv_head_idx,
                value_idx,
            } => write!(
                f,
                "kv head {kv_head_idx} position {position_idx} value {value_idx}"
            ),
            Self::OfPosition {
                position_idx,
                value_idx,
            } => write!(f, "position {position_idx} value {value_idx}"),
            Self::OfToken {
                position_idx,
                token,
            } => write!(f, "position {position_idx} token {token}"),
        }
    }
}
