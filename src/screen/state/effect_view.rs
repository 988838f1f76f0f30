//! State of the Effect panel: the chosen measure, its last result, and the pending request.

use std::sync::Arc;

use attnscope_worker::{EffectQuery, EffectShown, Measure};

/// The chosen measure, its last result, and the pending request.
#[derive(Debug, Default)]
pub struct EffectView {
    pub measure: Measure,
    pub shown: Option<(EffectQuery, Arc<EffectShown>)>,
    pub awaited: Option<EffectQuery>,
    /// Whether the pending request has finished or was cancelled.
    pub is_over: bool,
}

impl EffectView {
    /// Drops the result and the pending request.
    pub fn forget(&mut self) {
        *self = Self {
            measure: self.measure,
            ..Self::default()
        };
    }

    /// Marks a request as finished; returns whether it is the pending one.
    pub fn end(&mut self, of: EffectQuery) -> bool {
        let is_awaited = self.awaited == Some(of);
        self.is_over |= is_awaited;
        is_awaited
    }
}
