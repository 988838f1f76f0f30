//! What leads to the narrower residual of a block, and back.

use std::fmt::Arguments;

use super::Walk;
use crate::{BlockSpec, NormedMap};

impl<'a> Walk<'_, 'a> {
    pub(super) fn enter_bottleneck(&mut self, name: &str, block: &'a BlockSpec) {
        if let Some(bottleneck) = &block.bottleneck {
            self.normed_map(format_args!("{name}into"), &bottleneck.into);
        }
    }

    pub(super) fn normed_map(&mut self, key: Arguments<'_>, normed: &'a NormedMap) {
        self.linear(format_args!("{key}"), &normed.map);
        self.norm(format_args!("{key}.norm"), Some(&normed.norm), None);
    }

    /// The layers between attention and the block's own feed-forward layer, and the map behind that.
    pub(super) fn leave_bottleneck(&mut self, name: &str, block: &'a BlockSpec) {
        let Some(bottleneck) = &block.bottleneck else {
            return;
        };
        for (nth, (mlp, norm)) in bottleneck.layers.iter().enumerate() {
            self.mlp(&format!("{name}layer.{nth}"), mlp);
            self.norm(format_args!("{name}layer.{nth}.post"), Some(norm), None);
        }
        self.linear(format_args!("{name}out"), &bottleneck.out);
        let norm = Some(&bottleneck.out_norm);
        self.norm(format_args!("{name}out.post"), norm, None);
    }
}
