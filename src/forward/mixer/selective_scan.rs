//! Mamba mixer: a short convolution, a selective scan with token-dependent step, input and output, and a gate.

use std::borrow::Cow;

use attnscope_compute::error::Result;
use attnscope_compute::kernels::activate;
use attnscope_compute::kernels::recurrent::{
    GatedNorm, ScanTokens, SelectiveScan, selective_scan, softplus,
};
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::Ops;
use attnscope_spec::mixers::{ScanHead, SelectiveScanSpec};
use attnscope_spec::{LinearSource, NormSource};

use super::memory::MixerMemory;
use super::rows::{each_copy, hide_padding, mapped};
use super::short_convolution::{Kernel, read_kernel};
use crate::context::BlockContext;
use crate::steps::normed_in_place;
use crate::weights::WeightReader;

/// A linear map and the norm of its output.
type Normed<'a, O> = (<O as Ops>::Linear<'a>, Option<<O as Ops>::Norm<'a>>);

/// The weights of one head of channels.
struct HeadWeights<'a, O: Ops> {
    narrow_steps: Normed<'a, O>,
    b: Normed<'a, O>,
    c: Normed<'a, O>,
    steps: O::Linear<'a>,
}

/// The weights of a selective scan.
pub struct SelectiveScanWeights<'a, O: Ops> {
    x: O::Linear<'a>,
    gate: O::Linear<'a>,
    kernel: Kernel<'a>,
    heads: Vec<HeadWeights<'a, O>>,
    /// −e^stored. // [channel, d_state]
    decay: Vec<f32>,
    skip: Cow<'a, [f32]>,
    o: O::Linear<'a>,
}

impl<'a, O: Ops> SelectiveScanWeights<'a, O> {
    /// # Errors
    /// As for [`WeightReader::linear`].
    pub(super) fn read(shelf: WeightReader<'a, O>, spec: &SelectiveScanSpec) -> Result<Self> {
        let normed = |(map, norm): &(LinearSource, Option<NormSource>)| -> Result<Normed<'a, O>> {
            Ok((shelf.linear(map)?, shelf.optional_norm(norm)?))
        };
        let head = |head: &ScanHead| -> Result<HeadWeights<'a, O>> {
            Ok(HeadWeights {
                narrow_steps: normed(&head.narrow_steps)?,
                b: normed(&head.b)?,
                c: normed(&head.c)?,
                steps: shelf.linear(&head.steps)?,
            })
        };
        let [of_decay, of_skip] = spec.shapes();
        let log_decay = shelf.tensors.expect(&spec.log_decay, &of_decay)?;
        Ok(Self {
            x: shelf.linear(&spec.x)?,
            gate: shelf.linear(&spec.gate)?,
            kernel: read_kernel(&spec.convolution, shelf)?,
            heads: spec.heads.iter().map(head).collect::<Result<_>>()?,
            decay: log_decay.widen()?.iter().map(|v| -v.exp()).collect(),
            skip: shelf.tensors.expect(&spec.skip, &of_skip)?.widen()?,
            o: shelf.linear(&spec.o)?,
        })
    }
}

/// Fills `to` with the output of the scan. // from: [position, d_model]
pub(super) fn run<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &SelectiveScanSpec,
    weights: &SelectiveScanWeights<'_, O>,
    from: &O::Buffer,
    memory: Option<&mut MixerMemory>,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, pace) = (context.ops, context.pace);
    let n = spec.n_channels();
    let (mut projected, mut normed) = (O::Buffer::default(), O::Buffer::default());
    let gates = mapped(context, from, &weights.gate, &mut projected)?; // [position, channel]
    let x = mapped(context, from, &weights.x, &mut projected)?; // [position, channel]
    // The convolution and the scan each continue from a part of the memory; the maps between them take all rows at once.
    let mut kept = memory;
    let mut y = each_copy(
        context,
        x.len() / n.max(1),
        kept.as_deref_mut(),
        |rows, kept| {
            let values = &x[rows.start * n..rows.end * n];
            weights.kernel.run(&mut kept.tail, values)
        },
    );
    activate(spec.activation, &mut y);
    hide_padding(context, &mut y, n);
    let n_rows = y.len() / n.max(1);
    let n_each = n / weights.heads.len().max(1);
    let mut along = |from: &O::Buffer, (map, norm): &Normed<'_, O>, to: &mut O::Buffer| {
        ops.linear(from, map, to, pace)?;
        normed_in_place(ops, norm.as_ref(), to, &mut normed)
    };
    let [mut b, mut c, mut steps] = [Vec::new(), Vec::new(), Vec::new()];
    let mut convolved = O::Buffer::default();
    for (head_idx, head) in weights.heads.iter().enumerate() {
        let own = columns(&y, n, head_idx * n_each, n_each);
        ops.put_own(own, n_each, &mut convolved)?; // [position, channel of the head]
        along(&convolved, &head.b, &mut projected)?;
        b.push(ops.get(&projected)?.values.into_owned()); // [position, d_state]
        along(&convolved, &head.c, &mut projected)?;
        c.push(ops.get(&projected)?.values.into_owned()); // [position, d_state]
        along(&convolved, &head.narrow_steps, &mut projected)?;
        let mut wide = O::Buffer::default();
        ops.linear(&projected, &head.steps, &mut wide, pace)?;
        steps.push(ops.get(&wide)?.values.into_owned()); // [position, channel of the head]
    }
    let [b, c, mut steps] = [b, c, steps].map(|parts| beside(parts, n_rows));
    steps.iter_mut().for_each(|step| *step = softplus(*step));
    let of = SelectiveScan {
        d_state: spec.d_state,
        decay: &weights.decay,
        skip: &weights.skip,
    };
    let mut read = each_copy(context, y.len() / n.max(1), kept, |rows, kept| {
        let channels = rows.start * n..rows.end * n;
        let width = spec.heads.len() * spec.d_state;
        let states = rows.start * width..rows.end * width;
        let tokens = ScanTokens {
            x: &y[channels.clone()],
            b: &b[states.clone()],
            c: &c[states],
            steps: &steps[channels],
        };
        selective_scan(of, tokens, &mut kept.state)
    }); // [position, channel]
    GatedNorm::apply(None, &mut read, &gates, n);
    ops.put(&read, n, &mut projected)?;
    ops.linear(&projected, &weights.o, to, pace) // [position, d_model]
}

/// Puts the rows of several heads side by side. // each: [row, width of a head]
fn beside(mut parts: Vec<Vec<f32>>, n_rows: usize) -> Vec<f32> {
    if parts.len() == 1 {
        return parts.pop().unwrap_or_default();
    }
    let n_each = parts.first().map_or(0, Vec::len) / n_rows.max(1);
    let mut rows = Vec::with_capacity(n_rows * n_each * parts.len());
    for row_idx in 0..n_rows {
        let of_heads = parts.iter();
        of_heads.for_each(|part| rows.extend_from_slice(&part[row_idx * n_each..][..n_each]));
    }
    rows
}
