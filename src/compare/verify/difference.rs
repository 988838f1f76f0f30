//! How far one hook lies apart, and whether rounding explains it.

use attnscope_forward::Hook;
use attnscope_spec::Stack;

use super::exchange::Compared;
use super::largest::Largest;
use super::place::ValuePlace;

/// How far two engines may lie apart by rounding alone: the bounds that the families are held to against their references.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floor {
    /// Of a probability of the pattern, absolute.
    pub pattern: f64,
    /// Of any other value, as a share of the largest value of its hook and layer.
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

/// How far one hook of one layer lies apart.
#[derive(Debug, Clone, PartialEq)]
pub struct HookDifference {
    /// As in traces: `blocks.3.attn.pattern`, `logits`.
    pub name: String,
    /// The stack and the layer; none for what follows the last layer.
    pub layer: Option<(Stack, usize)>,
    /// The largest |reference − other|; infinite where one is a NaN or masked and the other is not.
    pub difference: f64,
    /// The difference as a share of `magnitude`.
    pub relative: f64,
    /// The largest finite |value| of the reference.
    pub magnitude: f64,
    /// Where the largest difference is; none where all values are equal.
    pub place: Option<ValuePlace>,
    /// Both engines' values there.
    pub reference: f32,
    pub other: f32,
    /// What of the floor is used: more than 1 is beyond it.
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
            // 0 of a floor of 0 is nothing.
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

/// A hook of a layer.
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

/// Hidden states after the last layer. // [position, width]
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
