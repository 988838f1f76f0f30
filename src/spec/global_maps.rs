//! Linear maps that only global tokens use (Longformer).

use super::source::LinearSource;

/// The maps of global tokens, in place of those that other tokens have.
#[derive(Debug, Clone, PartialEq)]
pub struct GlobalMaps {
    pub q: LinearSource,
    pub k: LinearSource,
    pub v: LinearSource,
}

impl GlobalMaps {
    pub fn linears(&self) -> [&LinearSource; 3] {
        [&self.q, &self.k, &self.v]
    }
}
