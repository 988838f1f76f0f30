//! The stored values of a norm.

use std::fmt::Arguments;

use super::Walk;
use crate::NormSource;
use crate::roles::{Division, Heads, Source};

impl<'a> Walk<'_, 'a> {
    pub(super) fn norm(
        &mut self,
        key: Arguments<'_>,
        norm: Option<&'a NormSource>,
        heads: Option<Heads>,
    ) {
        let Some(norm) = norm else { return };
        let division = heads
            .filter(|heads| norm.width == heads.width || norm.width == heads.n * heads.width)
            .map_or(Division::None, |heads| {
                Division::Rotating(Heads {
                    n: norm.width / heads.width,
                    ..heads
                })
            });
        let gains = norm.gain.iter().map(|name| ("gain", name));
        let bias = norm.bias.iter().map(|name| ("bias", name));
        for (nth, (what, tensor)) in gains.chain(bias).enumerate() {
            let shape = norm.gain_shape.clone();
            let source = Source::Vector { tensor, shape };
            if norm.gain.len() > 1 {
                self.push(format_args!("{key}.{what}.{nth}"), source, division);
            } else {
                self.push(format_args!("{key}.{what}"), source, division);
            }
        }
        for (what, tensor) in ["mean", "variance"]
            .iter()
            .zip(norm.statistics.iter().flatten())
        {
            self.vector(format_args!("{key}.{what}"), tensor, vec![norm.width]);
        }
        if let Some(alpha) = &norm.alpha {
            self.vector(format_args!("{key}.alpha"), alpha, Vec::new());
        }
        if let Some(factors) = &norm.factors {
            let shape = factors.stored_shape(norm.width);
            self.vector(format_args!("{key}.factors"), &factors.tensor, shape);
        }
        if let Some(grown) = &norm.grown {
            self.linear(format_args!("{key}.growth.into"), &grown.into);
            self.linear(format_args!("{key}.growth.out"), &grown.out);
        }
        if let Some(gate) = &norm.gate {
            self.mlp(&format!("{key}.gate"), gate);
        }
        if let Some((_, firsts)) = norm.of_firsts.as_deref() {
            self.norm(format_args!("{key}.firsts"), Some(firsts), heads);
        }
    }
}
