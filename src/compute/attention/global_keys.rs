//! Keys and values of global tokens: they look by weights of their own.

use super::head::HeadInput;

/// Keys and values of all heads that global tokens see, in place of those that the other tokens see.
#[derive(Debug, Clone, PartialEq)]
pub struct GlobalKeys {
    /// Which tokens are global. // [token]
    pub tokens: Vec<bool>,
    /// [key, n_kv_heads · d_head]
    pub k: Vec<f32>,
    /// [key, n_kv_heads · d_value]
    pub v: Vec<f32>,
    /// ‖v W_O‖ of every head, where it is known. // [head][key]
    pub value_norms: Option<Vec<Vec<f32>>>,
}

impl GlobalKeys {
    /// What global tokens have for input, among the queries of all tokens.
    pub(super) fn input<'a>(&'a self, q: &'a [f32]) -> HeadInput<'a> {
        HeadInput {
            q,
            k: &self.k,
            v: &self.v,
        }
    }

    /// ‖v W_O‖ of what a query looks at in a head, where the query is global and it is known.
    pub fn norms_of_query(&self, head_idx: usize, query_idx: usize) -> Option<&[f32]> {
        let is_global = self.tokens.get(query_idx) == Some(&true);
        self.value_norms_of(head_idx).filter(|_| is_global)
    }

    /// ‖v W_O‖ of a head's keys, where it is known.
    pub(super) fn value_norms_of(&self, head_idx: usize) -> Option<&[f32]> {
        Some(self.value_norms.as_ref()?.get(head_idx)?.as_slice())
    }
}
