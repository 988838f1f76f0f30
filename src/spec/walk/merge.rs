//! What changes the rows between two stages.

use super::Walk;
use crate::{BlockSpec, Joining, MergeSpec};

impl<'a> Walk<'_, 'a> {
    pub(super) fn end_of_stage(&mut self, name: &str, block: &'a BlockSpec) {
        if let Some(merge) = &block.merge {
            self.merge(name, merge);
        }
        self.table(format_args!("{name}joined"), block.joined.as_deref());
        if let Some(rows) = block.moments.as_deref() {
            self.vector(format_args!("{name}moments"), &rows.tensor, rows.shape());
        }
    }

    fn merge(&mut self, name: &str, merge: &'a MergeSpec) {
        if let Joining::Squares(squares) = &merge.joining {
            if let Some((hidden, _)) = &squares.hidden {
                self.linear(format_args!("{name}merge.hidden"), hidden);
            }
            self.linear(format_args!("{name}merge"), &squares.map);
        }
        if let Joining::Halves(module) = &merge.joining {
            self.convolution(&format!("{name}merge."), module);
        }
        if let Joining::Chain(chain) = &merge.joining {
            self.chain(&format!("{name}merge.chain"), chain);
        }
        for (nth, (tensor, shape)) in merge.tensors().enumerate() {
            self.vector(format_args!("{name}merge.{nth}"), tensor, shape);
        }
        for (nth, norm) in merge.norms().enumerate() {
            self.norm(format_args!("{name}merge.norm.{nth}"), Some(norm), None);
        }
    }
}
