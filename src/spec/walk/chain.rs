//! The stored values of a chain of convolutions.

use super::Walk;
use crate::{Chain, ChainStep};

impl<'a> Walk<'_, 'a> {
    pub(super) fn chain(&mut self, name: &str, chain: &'a Chain) {
        for (nth, step) in chain.steps.iter().enumerate() {
            let key = format!("{name}.{nth}");
            match step {
                ChainStep::Convolution(convolution) => self.vectors(&key, convolution.tensors()),
                ChainStep::Moments(moments) => self.vectors(&key, moments.tensors()),
                ChainStep::Map(map) => self.linear(format_args!("{key}"), map),
                ChainStep::Norm(norm) => self.norm(format_args!("{key}"), Some(norm), None),
                ChainStep::Sum(chains) => {
                    for (what, chain) in ["branch", "beside"].iter().zip(chains.iter()) {
                        self.chain(&format!("{key}.{what}"), chain);
                    }
                }
                ChainStep::Activation(_)
                | ChainStep::Leaky(_)
                | ChainStep::Keep
                | ChainStep::AddKept
                | ChainStep::BesideKept
                | ChainStep::Squares(_)
                | ChainStep::Repeat(_) => {}
            }
        }
    }

    fn vectors(&mut self, key: &str, tensors: impl Iterator<Item = (&'a String, Vec<usize>)>) {
        for (what, (tensor, shape)) in ["weight", "bias"].iter().zip(tensors) {
            self.vector(format_args!("{key}.{what}"), tensor, shape);
        }
    }
}
