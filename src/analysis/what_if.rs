//! A model read otherwise: one knob of attention changed everywhere, in a stack, or in one layer.

use crate::attention::{Mask, Scale, SoftmaxAxis};
use crate::model::{ModelSpec, NormSource, ProjectionSpec, Stack};
use crate::ops::NormKind;

/// Where a change holds; what is left out means everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Where {
    pub stack: Option<Stack>,
    pub layer_idx: Option<usize>,
}

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    Scale(Scale),
    SoftmaxAxis(SoftmaxAxis),
    Mask(Mask),
    /// Queries and keys normed per head by their root mean square, with stored gains where there are some; or not at all.
    QkNorm(bool),
    /// Scores divided by this.
    Temperature(f32),
}

/// Norms that a model without weights for them is given.
const EPS: f64 = 1e-6;

/// A spec with a change at a place.
pub fn changed(spec: &ModelSpec, place: Where, change: Change) -> ModelSpec {
    let mut spec = spec.clone();
    for stack in &mut spec.stacks {
        for (layer_idx, block) in stack.blocks.iter_mut().enumerate() {
            if place.layer_idx.is_some_and(|wanted| wanted != layer_idx) {
                continue;
            }
            if place.stack.is_none_or(|wanted| wanted == stack.stack) {
                apply(&mut block.attention, &mut block.projections, change);
            }
            if let Some(cross) = &mut block.cross
                && place.stack.is_none_or(|wanted| wanted == Stack::Cross)
            {
                apply(&mut cross.attention, &mut cross.projections, change);
            }
        }
    }
    spec
}

fn apply(
    attention: &mut crate::attention::AttentionSpec,
    projections: &mut ProjectionSpec,
    change: Change,
) {
    match change {
        Change::Scale(scale) => attention.scale = scale,
        Change::SoftmaxAxis(axis) => attention.softmax_axis = axis,
        // Cross-attention has no order between its queries and keys.
        Change::Mask(_) if attention.is_cross => {}
        Change::Mask(mask) => attention.mask = mask,
        Change::Temperature(temperature) => {
            let factor = attention.scale.factor(attention.d_head);
            attention.scale = Scale::Factor(factor / temperature);
        }
        Change::QkNorm(false) => (projections.q_norm, projections.k_norm) = (None, None),
        Change::QkNorm(true) => {
            let norm = || NormSource::new(NormKind::RmsNorm, EPS, attention.d_head, None);
            projections.q_norm.get_or_insert_with(norm);
            projections.k_norm.get_or_insert_with(norm);
        }
    }
}
