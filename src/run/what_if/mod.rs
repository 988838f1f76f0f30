//! What-ifs: a model with changed settings of attention, everywhere or in one stack, layer or head.

mod order;
mod serving;
mod words;

pub use words::{KEYS, WhatIf};

use attnscope_compute::attention::{
    AttentionSpec, KeyRank, KvFormat, Mask, Scale, SoftmaxAxis, Streaming, TopKeys,
};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::recurrent::{Recurrence, RecurrentDecoderSpec};
use attnscope_spec::{
    Ablation, CrossSpec, Exceptions, Grid, ModelSpec, NormSource, Place, ProjectionSpec, SelfSpec,
    Stack, Variant, WeightFormat,
};

use self::order::in_order;
use self::serving::{check_serving, refuse_serving, round_weights};
use super::align::AlignSpec;

/// Change of one setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    Scale(Scale),
    /// Multiplies the present scale.
    ScaleBy(f32),
    SoftmaxAxis(SoftmaxAxis),
    Mask(Mask),
    /// Limits the number of keys, in the present direction.
    Window(usize),
    /// Keeps the mask; only named, for comparison.
    MaskAsDeclared,
    /// RMS-normalises queries and keys per head, with stored gains if there are any; or removes the norm.
    QkNorm(bool),
    /// Divides scores by this.
    Temperature(f32),
    Softcap(Option<f32>),
    /// Rounds keys and values as a KV cache does.
    Cache(KvFormat),
    /// Hides the keys that a streaming KV cache drops.
    Streaming(Streaming),
    /// Keeps this many keys of each row; all keys if `None`.
    TopKeys(Option<usize>),
    /// Rounds weights.
    Weights(WeightFormat),
    /// Replaces a head's output.
    Drop(Ablation),
}

impl Change {
    fn is_of_mask(self) -> bool {
        matches!(
            self,
            Self::Mask(_) | Self::Window(_) | Self::MaskAsDeclared | Self::Streaming(_)
        )
    }
}

/// Epsilon of norms given to a model that has no weights for them.
const EPS: f64 = 1e-6;

/// Applies all changes to a spec, whatever their order.
///
/// # Errors
/// When the model has no such place, a change is impossible there, or two changes contradict each other.
pub fn with_what_ifs(spec: &ModelSpec, what_ifs: &[WhatIf]) -> Result<ModelSpec> {
    let mut changed_spec = spec.clone();
    for what_if in what_ifs {
        for place in what_if.places() {
            check_place(place, &spec.shape(), what_if)?;
            check_has_mask(spec, place, what_if)?;
            check_serving(spec, place, what_if)?;
        }
    }
    for (what_if, place) in in_order(what_ifs)? {
        changed_spec = changed(&changed_spec, place, what_if.change);
        check_possible(&changed_spec, what_if)?;
    }
    Ok(changed_spec)
}

/// Applies all changes to an alignment's attention, whatever their order.
///
/// # Errors
/// When an alignment has no such place, a change is impossible there, or two changes contradict each other.
pub fn alignment_with_what_ifs(spec: &AlignSpec, what_ifs: &[WhatIf]) -> Result<AlignSpec> {
    let mut changed_spec = spec.clone();
    for what_if in what_ifs {
        for place in what_if.places() {
            check_place(place, &[AlignSpec::grid()], what_if)?;
            if what_if.change.is_of_mask() {
                return Err(no_mask(what_if));
            }
            if what_if.change == Change::SoftmaxAxis(SoftmaxAxis::Heads) {
                return Err(one_head(what_if));
            }
            refuse_serving(what_if)?;
        }
    }
    for (what_if, _) in in_order(what_ifs)? {
        let AlignSpec {
            attention,
            qk_norm,
            ablation,
        } = &mut changed_spec;
        change_recurrent((attention, qk_norm, ablation), what_if.change);
    }
    Ok(changed_spec)
}

/// Refuses a place that does not exist.
fn check_place(place: Place, grids: &[Grid], what_if: &WhatIf) -> Result<()> {
    place
        .within(grids)
        .map_err(|reason| Error::Setting(format!("--what-if {what_if}: {reason}")))
}

fn one_head(what_if: &WhatIf) -> Error {
    Error::Setting(format!(
        "--what-if {what_if}: this attention has one head, and a softmax over heads leaves every weight 1"
    ))
}

fn no_mask(what_if: &WhatIf) -> Error {
    Error::Setting(format!(
        "--what-if {what_if}: cross-attention has no mask; expected a place with self-attention"
    ))
}

/// Refuses a mask where none can be changed: cross-attention has no order between its queries and keys.
fn check_has_mask(spec: &ModelSpec, place: Place, what_if: &WhatIf) -> Result<()> {
    if !what_if.change.is_of_mask() {
        return Ok(());
    }
    let mut has_other_keys = false;
    for stack in &spec.stacks {
        let blocks = stack.blocks().iter().enumerate();
        for (_, block) in blocks.filter(|(layer_idx, _)| place.holds(stack.stack, *layer_idx)) {
            if block.key_grid().is_none() {
                return Ok(());
            }
            has_other_keys = true;
        }
    }
    if !has_other_keys {
        return Err(no_mask(what_if));
    }
    let problem = "keys of another grid, of two stacks or of pools have no order with queries, and no mask; expected a place whose keys are at the positions of its queries";
    Err(Error::Setting(format!("--what-if {what_if}: {problem}")))
}

/// Refuses changes that no order of computation allows.
fn check_possible(spec: &ModelSpec, what_if: &WhatIf) -> Result<()> {
    for stack in &spec.stacks {
        let Some(Recurrence::Writer(writer)) = stack.recurrence() else {
            continue;
        };
        if writer.attention.softmax_axis == SoftmaxAxis::Heads {
            return Err(one_head(what_if));
        }
        let looks_ahead = writer.attention.softmax_axis == SoftmaxAxis::Queries
            || writer.ablation == Some(Ablation::Mean);
        if writer.feeds_back && looks_ahead {
            return Err(Error::Setting(format!(
                "--what-if {what_if}: it needs all decoder steps at once, but with input feeding each step depends on the one before"
            )));
        }
    }
    Ok(())
}

/// Returns a spec with a change at a place.
pub fn changed(spec: &ModelSpec, place: Place, change: Change) -> ModelSpec {
    let mut spec = spec.clone();
    if let Change::Weights(format) = change {
        round_weights(&mut spec, place, format);
        return spec;
    }
    for stack in &mut spec.stacks {
        if let Some(Recurrence::Writer(writer)) = stack.recurrence_mut()
            && place.holds(Stack::Cross, 0)
        {
            let RecurrentDecoderSpec {
                attention,
                qk_norm,
                ablation,
                ..
            } = &mut **writer;
            change_recurrent((attention, qk_norm, ablation), change);
        }
        let grid = stack.stack;
        for (layer_idx, block) in stack.blocks_mut().iter_mut().enumerate() {
            if place.holds(grid, layer_idx) {
                let heads = place.head_idx;
                if let Some(SelfSpec {
                    attention,
                    projections,
                    exceptions,
                }) = block.own_mut()
                {
                    apply((attention, projections, exceptions), heads, change);
                }
            }
            if let Some(cross) = &mut block.cross
                && place.holds(Stack::Cross, layer_idx)
            {
                let heads = place.head_idx;
                let CrossSpec {
                    attention,
                    projections,
                    exceptions,
                    ..
                } = &mut **cross;
                apply((attention, projections, exceptions), heads, change);
            }
        }
    }
    spec
}

/// One attention: its spec, its projections, and exceptions for single heads.
type Knobs<'a> = (
    &'a mut AttentionSpec,
    &'a mut ProjectionSpec,
    &'a mut Exceptions,
);

fn apply((attention, projections, exceptions): Knobs<'_>, head: Option<usize>, change: Change) {
    if let Change::Drop(ablation) = change {
        let heads = head.map_or(0..attention.n_heads, |head_idx| head_idx..head_idx + 1);
        exceptions.ablated.retain(|(idx, _)| !heads.contains(idx));
        exceptions.ablated.extend(heads.map(|idx| (idx, ablation)));
        return;
    }
    let Some(head_idx) = head else {
        change_one(attention, projections, change);
        for variant in &mut exceptions.variants {
            change_one(&mut variant.attention, &mut variant.projections, change);
        }
        return;
    };
    let variants = &mut exceptions.variants;
    let at = variants.partition_point(|variant| variant.heads.end <= head_idx);
    if variants
        .get(at)
        .is_none_or(|variant| !variant.heads.contains(&head_idx))
    {
        let own = Variant {
            heads: head_idx..head_idx + 1,
            attention: attention.clone(),
            projections: projections.clone(),
        };
        variants.insert(at, own);
    }
    let variant = &mut variants[at];
    change_one(&mut variant.attention, &mut variant.projections, change);
}

/// An attention without projections: its spec, whether queries and keys are normalised, and the replacement of its output.
type RecurrentKnobs<'a> = (
    &'a mut AttentionSpec,
    &'a mut bool,
    &'a mut Option<Ablation>,
);

fn change_recurrent((attention, qk_norm, ablated): RecurrentKnobs<'_>, change: Change) {
    match change {
        Change::QkNorm(is_on) => *qk_norm = is_on,
        Change::Drop(ablation) => *ablated = Some(ablation),
        _ => knob(attention, change),
    }
}

fn change_one(attention: &mut AttentionSpec, projections: &mut ProjectionSpec, change: Change) {
    match change {
        // No engine keeps keys of another grid of a picture, or of two stacks.
        Change::Cache(_) if projections.key_grid.is_some() => {}
        Change::QkNorm(false) => (projections.q_norm, projections.k_norm) = (None, None),
        Change::QkNorm(true) => {
            let norm = || NormSource::new(NormKind::RmsNorm, EPS, attention.d_head, None);
            projections.q_norm.get_or_insert_with(norm);
            projections.k_norm.get_or_insert_with(norm);
        }
        _ => knob(attention, change),
    }
}

/// Applies a change to the attention spec itself.
fn knob(attention: &mut AttentionSpec, change: Change) {
    let d_head = attention.d_head;
    match change {
        Change::Scale(scale) => attention.scale = scale,
        Change::ScaleBy(by) => attention.scale = attention.scale.divided(1.0 / by, d_head),
        Change::Temperature(by) => attention.scale = attention.scale.divided(by, d_head),
        Change::SoftmaxAxis(axis) => attention.softmax_axis = axis,
        Change::Softcap(cap) => attention.softcap = cap,
        // Cross-attention has no order between its queries and keys.
        Change::Mask(_) | Change::Window(_) if attention.is_cross => {}
        Change::Mask(mask) => {
            attention.mask = Mask {
                streaming: attention.mask.streaming,
                ..mask
            }
        }
        Change::Window(width) => {
            attention.mask = Mask {
                streaming: attention.mask.streaming,
                ..Mask::with_width(attention.mask.causal, Some(width))
            }
        }
        Change::Cache(format) if serving::has_cache(attention) => attention.cache = Some(format),
        Change::Streaming(kept) if serving::can_stream(attention) => {
            attention.mask.streaming = Some(kept);
        }
        Change::TopKeys(n) if !is_windowed(attention) => {
            // What ranks the keys stays: an indexer picks more or fewer.
            let by = attention.top_keys.map_or(KeyRank::Scores, |top| top.by);
            attention.top_keys = n.map(|n| TopKeys { n, by });
        }
        Change::Cache(_)
        | Change::Streaming(_)
        | Change::TopKeys(_)
        | Change::Weights(_)
        | Change::MaskAsDeclared
        | Change::QkNorm(_)
        | Change::Drop(_) => {}
    }
}

/// Whether the places of a picture decide which keys a query sees, so that their number cannot be chosen.
fn is_windowed(attention: &AttentionSpec) -> bool {
    let top = attention.top_keys;
    let by_place = top.is_some_and(|top| matches!(top.by, KeyRank::Window(_)));
    // An indexer ranks pools alone, and what has none keeps all of them.
    by_place || attention.mask.pools.is_some() && top.is_none()
}
