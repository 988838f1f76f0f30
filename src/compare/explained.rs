//! Finds the knob that explains the first difference between a recording and a model.

use std::collections::BTreeMap;

use attnscope_compute::error::Result;
use attnscope_forward::Hook;
use attnscope_spec::Stack;

use super::comparison::Side;
use super::gap::HeadGap;
use super::head_order::{self, OF_HEADS};
use super::inferred_knob;
use super::knobs::KnobDifference;
use super::model_and_recording::ModelAndRecording;
use super::recording::Form;

/// Returns the knob that explains the first differing hook, if its values identify one.
pub(super) fn explained(
    of: ModelAndRecording<'_>,
    (stack, layer_idx, hook): (Stack, usize, Hook),
    (gap, tolerance): (&HeadGap, f64),
    before: &BTreeMap<(Stack, Hook), Vec<f32>>,
) -> Result<Option<KnobDifference>> {
    let Some(attention) = of.model.spec.attention(stack, layer_idx) else {
        return Ok(None);
    };
    if let Some(values) = before
        .get(&(stack, hook))
        .filter(|_| OF_HEADS.contains(&hook))
    {
        let knob = head_order::of_vectors(of, (stack, layer_idx, hook), values, tolerance)?;
        if knob.is_some() {
            return Ok(knob.map(|knob| of.turned(knob)));
        }
    }
    let (queries, keys) = of.sequences((stack, layer_idx));
    let repeated = || {
        let turned = [Hook::RotQ, Hook::RotK].map(|hook| before.get(&(stack, hook)));
        let [Some(q), Some(k)] = turned else {
            return Ok(None);
        };
        head_order::of_scores(of, (stack, layer_idx, hook), [q, k], tolerance)
    };
    let (unturned, n_heads, sequence) = match hook {
        Hook::RotQ => (Hook::Q, attention.n_heads, queries),
        Hook::RotK => (Hook::K, attention.n_kv_heads, keys),
        Hook::Scores => {
            let factor = gap.factor().map(|factor| match of.model_is {
                Side::A => factor,
                Side::B => 1.0 / factor,
            });
            let knob = match factor {
                Some(factor) => Some(inferred_knob::scale(attention, factor)),
                None => repeated()?,
            };
            return Ok(knob.map(|knob| of.turned(knob)));
        }
        Hook::Pattern => return Ok(repeated()?.map(|knob| of.turned(knob))),
        _ => return Ok(None),
    };
    let Some(values) = before.get(&(stack, unturned)) else {
        return Ok(None);
    };
    let form = Form::Vectors {
        n_heads: Some(n_heads),
        n_positions: sequence.len(),
        width: n_heads * attention.d_head,
    };
    let place = (Some(stack), Some(layer_idx), hook);
    let Some(recorded) = of.recording.values(place, form)? else {
        return Ok(None);
    };
    if of.recording.slack(place, form)?.is_some() {
        return Ok(None);
    }
    let knob = inferred_knob::rotation(attention, &sequence.positions, values, &recorded);
    Ok(knob.map(|knob| of.turned(knob)))
}
