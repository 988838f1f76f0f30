//! The convolution of a Conformer.

use super::Walk;
use crate::ConvolutionModule;

impl<'a> Walk<'_, 'a> {
    /// The convolution of a Conformer, in its block or between two.
    pub(super) fn convolution(&mut self, name: &str, module: &'a ConvolutionModule) {
        let keys = ["expand", "out", "mixed"];
        let maps = [&module.expand, &module.out].into_iter();
        let maps = maps.chain(&module.mixed);
        self.linears(format_args!("{name}"), &keys, maps);
        for (nth, norm) in module.norms().enumerate() {
            let key = format_args!("{name}norm.{nth}");
            self.norm(key, Some(norm), None);
        }
        for (nth, (tensor, shape)) in module.vectors().into_iter().enumerate() {
            self.vector(format_args!("{name}{nth}"), tensor, shape);
        }
    }
}
