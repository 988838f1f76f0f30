//! Reruns a layer of B in isolation, on A's input.

use attnscope_compute::attention::{AttentionSpec, BlockSink, RopeScaling, Scale, SoftmaxAxis};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_forward::{Hook, Hooks, LayerWeights, Scratch, Sequence};
use attnscope_run::Pass;
use attnscope_spec::{ModelSpec, Stack, StackSpec};

use super::exchange::{Compared, Exchange, is_value};
use super::noise::routes;

/// Number of leading positions that show whether a layer with other weights differs, under causal attention.
const FIRST: usize = 16;

/// Number of leading positions for layers with experts: more tokens reach an expert that differs.
const FIRST_ROUTED: usize = 128;

/// Largest relative differences of a layer that exceed their tolerances.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beyond {
    /// Of the layer's branch outputs and output residual.
    added: f64,
    /// Of any hook of the layer.
    any: f64,
}

impl Beyond {
    pub fn take(&mut self, hook: Hook, relative: f64, tolerance: f64) {
        // The input is not the layer's own result.
        if hook == Hook::ResidPre || relative <= tolerance {
            return;
        }
        self.any = self.any.max(relative);
        if matches!(hook, Hook::AttnOut | Hook::MlpOut | Hook::ResidPost) {
            self.added = self.added.max(relative);
        }
    }

    /// Returns how far the layer differs: by its outputs, or if those agree, by its intermediate values. 0 if nothing differs.
    pub fn largest(self) -> f64 {
        if self.added > 0.0 {
            self.added
        } else {
            self.any
        }
    }
}

/// Returns the leading tokens that a layer of B needs to run on; `None` for all of them.
///
/// Under causal attention, later positions cannot change earlier ones, so the leading positions already show changed weights.
/// Other knobs, such as a window, may show only far from the beginning.
pub(super) fn first_tokens(
    specs: [&ModelSpec; 2],
    (stack, layers): (Stack, [usize; 2]),
    tokens: &Sequence,
    has_other_knobs: bool,
) -> Option<Sequence> {
    let is_causal = |(spec, layer_idx): (&ModelSpec, usize)| {
        let attention = spec.attention(stack, layer_idx);
        let exceptions = spec.exceptions(stack, layer_idx);
        attention.is_some_and(looks_back)
            && exceptions.is_some_and(attnscope_spec::Exceptions::is_empty)
    };
    let n = if routes(specs[0].stack_of(stack), layers[0]) {
        FIRST_ROUTED
    } else {
        FIRST
    };
    let is_worth_it = tokens.len() > 2 * n && tokens.real.is_none() && !has_other_knobs;
    (is_worth_it && specs.into_iter().zip(layers).all(is_causal)).then(|| tokens.first(n))
}

/// Whether no row of an attention depends on later tokens or on the sequence length.
fn looks_back(spec: &AttentionSpec) -> bool {
    let is_of_length = |scaling: &RopeScaling| {
        matches!(
            scaling,
            RopeScaling::Dynamic { .. } | RopeScaling::Long { .. }
        )
    };
    spec.mask.causal
        && spec.softmax_axis == SoftmaxAxis::Keys
        && !matches!(spec.scale, Scale::OfKeys(_))
        && !spec
            .rope
            .as_ref()
            .is_some_and(|rope| is_of_length(&rope.scaling))
}

/// Reference for a layer of B that runs on A's input.
pub(super) struct Alone<'a> {
    pub exchange: &'a Exchange<'a>,
    /// Tolerances of individual hooks of the layer.
    pub tolerances: &'a [((Stack, Hook), f64)],
    /// Tolerance of every other hook.
    pub floor: f64,
    /// Leading tokens, if they suffice.
    pub first: Option<Sequence>,
}

impl Alone<'_> {
    /// Runs the layer and returns how far it differs from A's. Cross-attention reads the output of A's encoder.
    pub fn run<'p, O: Ops>(
        &self,
        ops: &O,
        (stack, layer_idx, weights): (&StackSpec, usize, &LayerWeights<'_, O>),
        (a, b): (Option<&Pass<'p, O>>, &Pass<'p, O>),
        scratch: &mut Scratch<O>,
    ) -> Result<Beyond> {
        let mut resid = O::Buffer::default();
        {
            let (of_a, rows) = (
                self.exchange.of_a.borrow(),
                self.exchange.rows_of_a.borrow(),
            );
            let residual = of_a.get(&(stack.stack, Hook::ResidPre));
            // A layer can run only on rows of its own layout.
            let width = b.d_input(stack, layer_idx);
            let Some(input) = rows
                .as_ref()
                .or(residual)
                .filter(|kept| kept.width == width)
            else {
                return Ok(Beyond::default());
            };
            let n = self
                .first
                .as_ref()
                .map_or(input.values.len(), |first| first.len() * input.width);
            ops.put(&input.values[..n], input.width, &mut resid)?; // [position, d_model]
        }
        let mut hooks = ComparingHooks {
            of: self,
            stack: stack.stack,
            home: stack.stack,
            beyond: Beyond::default(),
        };
        let at = (stack, layer_idx);
        let other = (a, self.first.as_ref());
        b.block_again(at, weights, &mut resid, scratch, &mut hooks, other)?;
        Ok(hooks.beyond)
    }
}

/// Hooks that compare the layer's values as they are computed.
struct ComparingHooks<'a> {
    of: &'a Alone<'a>,
    stack: Stack,
    home: Stack,
    beyond: Beyond,
}

impl Hooks for ComparingHooks<'_> {
    fn wants(&self, hook: Hook) -> bool {
        is_value(hook)
    }

    fn values(&mut self, hook: Hook, values: &[f32], width: usize) -> Result<()> {
        let at = (self.stack, hook);
        for Compared { gap, .. } in self.of.exchange.compare_alone(at, values, width)? {
            let mut known = self.of.tolerances.iter();
            let known = known.find(|(known, _)| *known == at);
            let tolerance = known.map_or(self.of.floor, |(_, tolerance)| *tolerance);
            self.beyond.take(hook, gap.total().relative(), tolerance);
        }
        if self.stack == Stack::Cross && hook == Hook::ResidPost {
            self.stack = self.home;
        }
        Ok(())
    }

    fn blocks(&self) -> Option<&dyn BlockSink> {
        None
    }

    fn cross(&mut self) -> Option<&mut dyn Hooks> {
        self.stack = Stack::Cross;
        Some(self)
    }

    fn back(&mut self) {
        self.stack = self.home;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_layer_outputs_take_precedence_over_intermediate_ones() {
        let mut beyond = Beyond::default();
        beyond.take(Hook::ResidPre, 5.0, 0.1);
        beyond.take(Hook::Q, 0.05, 0.1);
        assert_eq!(beyond.largest(), 0.0);
        beyond.take(Hook::Q, 0.9, 0.1);
        assert_eq!(beyond.largest(), 0.9);
        beyond.take(Hook::MlpOut, 0.2, 0.1);
        assert_eq!(beyond.largest(), 0.2);
    }
}
