//! What a map reads besides its matrix and its bias.

use std::fmt::Arguments;

use super::Walk;
use crate::LinearSource;

impl<'a> Walk<'_, 'a> {
    pub(super) fn parts(&mut self, key: Arguments<'_>, linear: &'a LinearSource) {
        if let Some((tensor, shape)) = &linear.second_bias {
            self.vector(format_args!("{key}.second_bias"), tensor, shape.clone());
        }
        if let Some(added) = &linear.low_rank {
            for (what, (tensor, shape)) in ["down", "up"].iter().zip(added.tensors(linear)) {
                self.vector(format_args!("{key}.low_rank.{what}"), tensor, shape);
            }
        }
        if let Some(last) = &linear.last_inputs {
            let shape = vec![last.n, linear.n_stored_out];
            self.vector(format_args!("{key}.last_inputs"), &last.tensor, shape);
        }
        if let Some(factors) = &linear.factors {
            let shape = factors.stored_shape(linear.n_out());
            self.vector(format_args!("{key}.factors"), &factors.tensor, shape);
        }
        if let Some(then) = &linear.then {
            self.linear(format_args!("{key}.then"), then);
        }
    }
}
