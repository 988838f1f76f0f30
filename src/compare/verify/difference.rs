//! Difference at one hook, and whether rounding explains it.

use attnscope_forward::{Hook, Input};
use attnscope_spec::{Model, Stack};

use super::place::ValuePlace;
use crate::exchange::ENCODER_OUTPUT;
use crate::largest::Largest;
use crate::layer_tokens::tokens_of;
use crate::lockstep::{HookSums, Ran};

/// Name of the final norm's output.
const LAST_HIDDEN: &str = "last_hidden_state";

/// Rounding tolerance between two engines: the tolerances that tests of families use against their references.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floor {
    /// Absolute tolerance of a pattern's probability.
    pub pattern: f64,
    /// Tolerance of any other value, as a share of the largest value of its hook and layer.
    pub relative: f64,
}

impl Default for Floor {
    fn default() -> Self {
        Self {
            pattern: 2e-4,
            relative: 2e-3,
        }
    }
}

/// Difference at one hook of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceDifference {
    /// Name as in traces: `blocks.3.attn.pattern`, `logits`.
    pub name: String,
    /// Stack and layer; `None` after the last layer.
    pub layer: Option<(Stack, usize)>,
    /// Largest |reference − other|; infinite if one is NaN or masked and the other is not.
    pub difference: f64,
    /// The difference as a share of `magnitude`.
    pub relative: f64,
    /// The largest finite |value| of the reference.
    pub magnitude: f64,
    /// Place of the largest difference; `None` if all values are equal.
    pub place: Option<ValuePlace>,
    /// Both engines' values at that place.
    pub reference: f32,
    pub other: f32,
    /// Share of the tolerance used; more than 1 exceeds it.
    pub tolerance_used: f64,
}

impl DeviceDifference {
    fn new(
        name: String,
        layer: Option<(Stack, usize)>,
        (largest, place): (Largest, ValuePlace),
        (measured, floor): (f64, f64),
    ) -> Self {
        Self {
            name,
            layer,
            difference: largest.difference,
            relative: largest.relative(),
            magnitude: largest.magnitude,
            place: (largest.difference > 0.0).then_some(place),
            reference: largest.a,
            other: largest.b,
            // A difference of 0 uses 0 of any tolerance, even of 0.
            tolerance_used: if measured == 0.0 {
                0.0
            } else {
                measured / floor
            },
        }
    }

    /// Whether rounding explains the difference.
    pub fn is_within(&self) -> bool {
        self.tolerance_used <= 1.0
    }
}

/// Returns the differences of all hooks, in the order of execution.
pub(super) fn all(ran: &Ran, model: &Model, input: &Input, floor: Floor) -> Vec<DeviceDifference> {
    let of_hook = |sums: &HookSums| {
        let (largest, width) = sums.largest?;
        Some(match (sums.stack, sums.layer_idx) {
            (Some(stack), Some(layer_idx)) => {
                let at = (stack, layer_idx, sums.hook);
                of_layer(at, (largest, width), model, input, floor)
            }
            (Some(_), None) => of_hidden(ENCODER_OUTPUT, largest, width, floor),
            (None, _) => of_logits(largest, width, floor),
        })
    };
    let mut all: Vec<DeviceDifference> = ran.hooks.iter().filter_map(of_hook).collect();
    if let Some(hidden) = ran.hidden {
        // The final norm runs after the last layer and before the logits.
        let hidden = of_hidden(LAST_HIDDEN, hidden, model.spec.d_model, floor);
        let has_logits = all
            .last()
            .is_some_and(|last| last.name == Hook::Logits.name());
        all.insert(all.len() - usize::from(has_logits), hidden);
    }
    all
}

/// Makes the difference of a hook of a layer.
fn of_layer(
    (stack, layer_idx, hook): (Stack, usize, Hook),
    (largest, width): (Largest, usize),
    model: &Model,
    input: &Input,
    floor: Floor,
) -> DeviceDifference {
    let is_cell = matches!(hook, Hook::Scores | Hook::Pattern);
    let place = if is_cell {
        let (queries, keys) = tokens_of(&model.spec, input, (stack, layer_idx));
        ValuePlace::cell(largest.element, (queries.len(), keys.len()))
    } else {
        let attention = model.spec.attention(stack, layer_idx);
        ValuePlace::of(hook, largest.element, width, attention)
    };
    let measured = if hook == Hook::Pattern {
        (largest.difference, floor.pattern)
    } else {
        (largest.relative(), floor.relative)
    };
    DeviceDifference::new(
        hook.full_name(stack, layer_idx),
        Some((stack, layer_idx)),
        (largest, place),
        measured,
    )
}

/// Makes the difference of hidden states after the last layer. // [position, width]
fn of_hidden(name: &str, largest: Largest, width: usize, floor: Floor) -> DeviceDifference {
    let place = ValuePlace::OfPosition {
        position_idx: largest.element / width.max(1),
        value_idx: largest.element % width.max(1),
    };
    let measured = (largest.relative(), floor.relative);
    DeviceDifference::new(name.to_owned(), None, (largest, place), measured)
}

fn of_logits(largest: Largest, d_vocab: usize, floor: Floor) -> DeviceDifference {
    let place = ValuePlace::OfToken {
        position_idx: largest.element / d_vocab.max(1),
        token: largest.element % d_vocab.max(1),
    };
    let name = Hook::Logits.name().to_owned();
    let measured = (largest.relative(), floor.relative);
    DeviceDifference::new(name, None, (largest, place), measured)
}
