//! Keeps one engine's values of a layer until the other's are compared with them: two taps on one store.

use std::cell::RefCell;
use std::collections::BTreeMap;

use attnscope_compute::attention::BlockSink;
use attnscope_compute::error::{Error, Result};
use attnscope_forward::{Hook, Hooks};
use attnscope_run::Tap;
use attnscope_spec::{ModelSpec, Stack};

use super::largest::Largest;
use super::place::ValuePlace;
use super::rows::{Compare, Keep, Shared, held};

/// Name of the encoder's output, as in traces.
pub(super) const ENCODER_OUTPUT: &str = "encoder.last_hidden_state";

/// Comparison of one hook of a layer.
pub(super) struct Compared {
    pub stack: Stack,
    pub hook: Hook,
    pub largest: Largest,
    pub place: ValuePlace,
}

/// Values of the current layer, shared by both engines' taps.
#[derive(Default)]
pub(super) struct Exchange {
    /// Values of the reference. // [position, width] each
    values: RefCell<BTreeMap<(Stack, Hook), Vec<f32>>>,
    /// Scores and pattern of self-attention.
    pub own: Shared,
    /// Scores and pattern of cross-attention.
    pub cross: Shared,
    /// In the order of execution.
    compared: RefCell<Vec<Compared>>,
    /// Output of the reference's encoder. // [source position, d_model]
    encoded: RefCell<Vec<f32>>,
    /// Comparison of the encoder's output.
    pub of_encoded: RefCell<Option<Largest>>,
}

/// Returns the sink of a stack's rows.
fn sink_of<'a>(
    stack: Stack,
    own: &'a dyn BlockSink,
    cross: &'a dyn BlockSink,
) -> &'a dyn BlockSink {
    if stack == Stack::Cross { cross } else { own }
}

/// Makes the error for two engines that gave different numbers of values for one layer.
pub(super) fn unequal(name: &str, reference: usize, other: usize) -> Error {
    Error::Device(format!(
        "{name}: expected as many values from both engines, found {reference} and {other}"
    ))
}

impl Exchange {
    /// Compares one value of the other engine with the reference's, then releases the latter.
    fn compare(
        &self,
        spec: &ModelSpec,
        (stack, layer_idx, hook): (Stack, usize, Hook),
        values: &[f32],
        width: usize,
    ) -> Result<()> {
        let kept = self.values.borrow_mut().remove(&(stack, hook));
        let kept = kept.unwrap_or_default();
        if kept.len() != values.len() {
            let name = hook.full_name(stack, layer_idx);
            return Err(unequal(&name, kept.len(), values.len()));
        }
        let mut largest = Largest::default();
        largest.add(0, &kept, values);
        let attention = spec.attention(stack, layer_idx);
        self.compared.borrow_mut().push(Compared {
            stack,
            hook,
            place: ValuePlace::of(hook, largest.element, width, attention),
            largest,
        });
        Ok(())
    }

    /// Returns a layer's compared hooks in the order of execution, and prepares for the next layer.
    ///
    /// # Errors
    /// When one engine gave fewer values than the other.
    pub fn finish_layer(&self, layer_idx: usize, stack: Stack) -> Result<Vec<Compared>> {
        let mut compared = self.compared.take();
        if let Some(((stack, hook), kept)) = self.values.take().pop_first() {
            return Err(unequal(&hook.full_name(stack, layer_idx), kept.len(), 0));
        }
        for (stack, shared) in [(stack, &self.own), (Stack::Cross, &self.cross)] {
            let rows = held(shared);
            let expected = rows.n_heads * rows.n_queries * rows.n_keys;
            if expected == 0 {
                continue;
            }
            // Scores and pattern are placed before z, which is made of them.
            let is_after = |c: &Compared| c.stack == stack && c.hook == Hook::Z;
            let at = compared.iter().position(is_after).unwrap_or(compared.len());
            let both = [
                (Hook::Pattern, rows.of_pattern),
                (Hook::Scores, rows.of_scores),
            ];
            for (hook, largest) in both {
                if largest.n_values != expected {
                    let name = hook.full_name(stack, layer_idx);
                    return Err(unequal(&name, expected, largest.n_values));
                }
                let place = ValuePlace::cell(largest.element, (rows.n_queries, rows.n_keys));
                let row = Compared {
                    stack,
                    hook,
                    largest,
                    place,
                };
                compared.insert(at, row);
            }
        }
        Ok(compared)
    }
}

fn is_value(hook: Hook) -> bool {
    !matches!(hook, Hook::Scores | Hook::Pattern | Hook::Logits)
}

/// Tap that keeps the reference's values.
pub(super) struct Keeper<'a> {
    exchange: &'a Exchange,
    own: Keep<'a>,
    cross: Keep<'a>,
}

impl<'a> Keeper<'a> {
    pub fn new(exchange: &'a Exchange) -> Self {
        Self {
            exchange,
            own: Keep(&exchange.own),
            cross: Keep(&exchange.cross),
        }
    }
}

impl Tap for Keeper<'_> {
    fn wants(&self, _: Stack, _: usize, hook: Hook) -> bool {
        is_value(hook)
    }

    fn values(
        &mut self,
        stack: Stack,
        _: usize,
        hook: Hook,
        values: &[f32],
        _: usize,
    ) -> Result<()> {
        let mut kept = self.exchange.values.borrow_mut();
        kept.insert((stack, hook), values.to_vec());
        Ok(())
    }

    fn blocks(&self, stack: Stack, _: usize) -> Option<&dyn BlockSink> {
        Some(sink_of(stack, &self.own, &self.cross))
    }

    fn memory(&mut self, values: &[f32]) -> Result<()> {
        self.exchange.encoded.replace(values.to_vec());
        Ok(())
    }
}

/// Tap that compares the other engine's values.
pub(super) struct Comparer<'a> {
    exchange: &'a Exchange,
    spec: &'a ModelSpec,
    own: Compare<'a>,
    cross: Compare<'a>,
}

impl<'a> Comparer<'a> {
    pub fn new(exchange: &'a Exchange, spec: &'a ModelSpec) -> Self {
        Self {
            exchange,
            spec,
            own: Compare(&exchange.own),
            cross: Compare(&exchange.cross),
        }
    }
}

impl Tap for Comparer<'_> {
    fn wants(&self, _: Stack, _: usize, hook: Hook) -> bool {
        is_value(hook)
    }

    fn values(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        hook: Hook,
        values: &[f32],
        width: usize,
    ) -> Result<()> {
        let at = (stack, layer_idx, hook);
        self.exchange.compare(self.spec, at, values, width)
    }

    fn blocks(&self, stack: Stack, _: usize) -> Option<&dyn BlockSink> {
        Some(sink_of(stack, &self.own, &self.cross))
    }

    fn memory(&mut self, values: &[f32]) -> Result<()> {
        let kept = self.exchange.encoded.take();
        if kept.len() != values.len() {
            return Err(unequal(ENCODER_OUTPUT, kept.len(), values.len()));
        }
        let mut largest = Largest::default();
        largest.add(0, &kept, values);
        self.exchange.of_encoded.replace(Some(largest));
        Ok(())
    }
}

/// Hooks that receive only scores and pattern, in a layer that reruns for another round of heads.
pub(super) struct RowsOnly<'a> {
    own: &'a dyn BlockSink,
    cross: &'a dyn BlockSink,
    is_cross: bool,
}

impl<'a> RowsOnly<'a> {
    pub fn new(own: &'a dyn BlockSink, cross: &'a dyn BlockSink) -> Self {
        Self {
            own,
            cross,
            is_cross: false,
        }
    }
}

impl Hooks for RowsOnly<'_> {
    fn wants(&self, _: Hook) -> bool {
        false
    }

    fn values(&mut self, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    fn blocks(&self) -> Option<&dyn BlockSink> {
        Some(if self.is_cross { self.cross } else { self.own })
    }

    fn cross(&mut self) -> Option<&mut dyn Hooks> {
        // Self-attention has finished by then.
        self.is_cross = true;
        Some(self)
    }
}
