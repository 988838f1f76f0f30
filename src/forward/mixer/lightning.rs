//! Lightning attention mixer: linear attention that decays with distance, then a norm and a gate.

use std::borrow::Cow;

use attnscope_compute::error::Result;
use attnscope_compute::kernels::activate;
use attnscope_compute::kernels::recurrent::{Lightning, LightningTokens, Within, lightning};
use attnscope_compute::ops::{Activation, Ops};
use attnscope_spec::mixers::LightningSpec;

use super::memory::MixerMemory;
use super::rows::{each_copy, hide_padding, mapped};
use crate::context::BlockContext;
use crate::weights::WeightReader;

/// The weights of lightning attention.
pub struct LightningWeights<'a, O: Ops> {
    q: O::Linear<'a>,
    k: O::Linear<'a>,
    v: O::Linear<'a>,
    norm: O::Norm<'a>,
    gate: O::Linear<'a>,
    o: O::Linear<'a>,
    /// [head]
    block_decay: Vec<f32>,
    /// [head, n_block]
    query_decay: Cow<'a, [f32]>,
    /// [head, n_block]
    key_decay: Cow<'a, [f32]>,
    /// [head, distance], or [head, query, key].
    within: Cow<'a, [f32]>,
}

impl<'a, O: Ops> LightningWeights<'a, O> {
    /// # Errors
    /// As for [`WeightReader::linear`].
    pub(super) fn read(shelf: WeightReader<'a, O>, spec: &LightningSpec) -> Result<Self> {
        let [slopes, queries, keys, pairs] = spec.stored().map(|(_, name, shape)| {
            let tensor = |name: &String| shelf.tensors.expect(name, &shape)?.widen();
            name.as_ref().map(tensor).transpose()
        });
        let n = spec.decays.n_block;
        let derived = |steps: &dyn Fn(usize) -> usize| -> Cow<'a, [f32]> {
            let heads = spec.decays.slopes.iter();
            let of_head = |slope: &f32| {
                let slope = *slope;
                (0..n).map(move |idx| (slope, idx))
            };
            let all = heads.flat_map(of_head);
            all.map(|(slope, idx)| (-slope * steps(idx) as f32).exp())
                .collect()
        };
        let slopes = slopes?.unwrap_or(Cow::Borrowed(&[]));
        let slopes = if slopes.is_empty() {
            &spec.decays.slopes
        } else {
            &*slopes
        };
        Ok(Self {
            q: shelf.linear(&spec.q)?,
            k: shelf.linear(&spec.k)?,
            v: shelf.linear(&spec.v)?,
            norm: shelf.norm(&spec.norm)?,
            gate: shelf.linear(&spec.gate)?,
            o: shelf.linear(&spec.o)?,
            block_decay: slopes
                .iter()
                .map(|slope| (-slope * n as f32).exp())
                .collect(),
            query_decay: queries?.unwrap_or_else(|| derived(&|idx| idx + 1)),
            key_decay: keys?.unwrap_or_else(|| derived(&|idx| n - 1 - idx)),
            within: pairs?.unwrap_or_else(|| derived(&|idx| idx)),
        })
    }
}

/// Fills `to` with the output of lightning attention. // from: [position, d_model]
pub(super) fn run<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &LightningSpec,
    weights: &LightningWeights<'_, O>,
    from: &O::Buffer,
    memory: Option<&mut MixerMemory>,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, pace, width) = (context.ops, context.pace, spec.n_channels());
    let mut projected = O::Buffer::default();
    let mut rows_of = |linear| -> Result<Vec<f32>> {
        let mut rows = mapped(context, from, linear, &mut projected)?;
        activate(spec.activation, &mut rows);
        // The activation may map the zeros of padding to other values.
        hide_padding(context, &mut rows, width);
        Ok(rows)
    };
    // [position, head · d_head] each
    let (q, k, v) = (
        rows_of(&weights.q)?,
        rows_of(&weights.k)?,
        rows_of(&weights.v)?,
    );
    let of = Lightning {
        n_heads: spec.n_heads,
        d_head: spec.d_head,
        n_block: spec.decays.n_block,
        block_decay: &weights.block_decay,
        query_decay: &weights.query_decay,
        key_decay: &weights.key_decay,
        within: if spec.decays.of_pairs.is_some() {
            Within::ByPair(&weights.within)
        } else {
            Within::ByDistance(&weights.within)
        },
    };
    let read = each_copy(context, q.len() / width.max(1), memory, |rows, kept| {
        let values = rows.start * width..rows.end * width;
        let tokens = LightningTokens {
            q: &q[values.clone()],
            k: &k[values.clone()],
            v: &v[values],
        };
        lightning(of, tokens, &mut kept.tail, &mut kept.state)
    }); // [position, head · d_head]
    let (mut normed, mut gate) = (O::Buffer::default(), O::Buffer::default());
    ops.put(&read, width, &mut projected)?;
    ops.norm(&projected, &weights.norm, &mut normed)?;
    ops.linear(from, &weights.gate, &mut gate, pace)?; // [position, head · d_head]
    ops.activate(Activation::Sigmoid, &mut gate)?;
    ops.multiply(&mut normed, &gate)?;
    ops.linear(&normed, &weights.o, to, pace) // [position, d_model]
}
