//! Linear maps that only global tokens use (Longformer).

use super::source::LinearSource;

/// Linear maps of global tokens, used instead of the other tokens' maps.
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
