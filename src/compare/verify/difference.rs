//! Difference at one hook, and whether rounding explains it.

use attnscope_forward::Hook;
use attnscope_spec::Stack;

use super::exchange::Compared;
use super::largest::Largest;
use super::place::ValuePlace;

/// Rounding tolerance between two engines: the bounds to which model families are held against their references.
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
pub struct HookDifference {
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
    pub of_floor: f64,
}

impl HookDifference {
    pub(super) fn new(
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
            reference: largest.reference,
            other: largest.other,
            // A difference of 0 uses 0 of any tolerance, even of 0.
            of_floor: if measured == 0.0 {
                0.0
            } else {
                measured / floor
            },
        }
    }

    /// Whether rounding explains the difference.
    pub fn is_within(&self) -> bool {
        self.of_floor <= 1.0
    }
}

/// Makes the difference of a hook of a layer.
pub(super) fn of_hook(compared: Compared, layer_idx: usize, floor: Floor) -> HookDifference {
    let Compared {
        stack,
        hook,
        largest,
        place,
    } = compared;
    let measured = if hook == Hook::Pattern {
        (largest.difference, floor.pattern)
    } else {
        (largest.relative(), floor.relative)
    };
    HookDifference::new(
        hook.full_name(stack, layer_idx),
        Some((stack, layer_idx)),
        (largest, place),
        measured,
    )
}

/// Compares hidden states after the last layer. // [position, width]
pub(super) fn of_hidden(
    name: &str,
    largest: Largest,
    width: usize,
    floor: Floor,
) -> HookDifference {
    let place = ValuePlace::OfPosition {
        position_idx: largest.element / width.max(1),
        value_idx: largest.element % width.max(1),
    };
    let measured = (largest.relative(), floor.relative);
    HookDifference::new(name.to_owned(), None, (largest, place), measured)
}
