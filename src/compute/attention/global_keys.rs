//! Keys and values of global tokens, which have projections of their own.

use super::head::HeadInput;

/// Keys and values of all heads as global tokens see them, in place of those that other tokens see.
#[derive(Debug, Clone, PartialEq)]
pub struct GlobalKeys {
    /// Which tokens are global. // [token]
    pub tokens: Vec<bool>,
    /// [key, n_kv_heads · d_head]
    pub k: Vec<f32>,
    /// [key, n_kv_heads · d_value]
    pub v: Vec<f32>,
    /// ‖v W_O‖ of every head, if known. // [head][key]
    pub value_norms: Option<Vec<Vec<f32>>>,
}

impl GlobalKeys {
    /// Input of global tokens, whose queries are among those of all tokens.
    pub(super) fn input<'a>(&'a self, q: &'a [f32]) -> HeadInput<'a> {
        HeadInput {
            q,
            k: &self.k,
            v: &self.v,
        }
    }

    /// ‖v W_O‖ of the keys that a query attends to in a head, if the query is global and the norms are known.
    pub fn norms_of_query(&self, head_idx: usize, query_idx: usize) -> Option<&[f32]> {
        let is_global = self.tokens.get(query_idx) == Some(&true);
        self.value_norms_of(head_idx).filter(|_| is_global)
    }

    /// ‖v W_O‖ of a head's keys, if known.
    pub(super) fn value_norms_of(&self, head_idx: usize) -> Option<&[f32]> {
        Some(self.value_norms.as_ref()?.get(head_idx)?.as_slice())
    }
}
