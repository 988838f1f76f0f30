//! What the Effect panel shows: the measure, what came of it last, and what is awaited.

use std::sync::Arc;

use attnscope_worker::{EffectQuery, EffectShown, Measure};

/// The measure that is chosen, what came last, and what is awaited.
#[derive(Debug, Default)]
pub struct EffectView {
    pub measure: Measure,
    pub shown: Option<(EffectQuery, Arc<EffectShown>)>,
    pub awaited: Option<EffectQuery>,
    /// Whether what is awaited is over, or was given up.
    pub is_over: bool,
}

impl EffectView {
    /// Drops what was computed, and what is awaited.
    pub fn forget(&mut self) {
        *self = Self {
            measure: self.measure,
            ..Self::default()
        };
    }

    /// Takes in that there will be no more of something; whether that is what is awaited.
    pub fn end(&mut self, of: EffectQuery) -> bool {
        let is_awaited = self.awaited == Some(of);
        self.is_over |= is_awaited;
        is_awaited
    }
}
