//! Mamba mixer: a short convolution, a selective scan with token-dependent step, input and output, and a gate.

use std::borrow::Cow;

use attnscope_compute::error::Result;
use attnscope_compute::kernels::activate;
use attnscope_compute::kernels::recurrent::{
    GatedNorm, ScanTokens, SelectiveScan, selective_scan, softplus,
};
use attnscope_compute::ops::Ops;
use attnscope_spec::mixers::SelectiveScanSpec;
use attnscope_spec::{LinearSource, NormSource};

use super::memory::MixerMemory;
use super::rows::{each_copy, hide_padding, mapped};
use super::short_convolution::{Kernel, read_kernel};
use crate::context::BlockContext;
use crate::weights::WeightReader;

/// A linear map and the norm of its output.
type Normed<'a, O> = (<O as Ops>::Linear<'a>, <O as Ops>::Norm<'a>);

/// The weights of a selective scan.
pub struct SelectiveScanWeights<'a, O: Ops> {
    x: O::Linear<'a>,
    gate: O::Linear<'a>,
    kernel: Kernel<'a>,
    narrow_steps: Normed<'a, O>,
    b: Normed<'a, O>,
    c: Normed<'a, O>,
    steps: O::Linear<'a>,
    /// −e^stored. // [channel, d_state]
    decay: Vec<f32>,
    skip: Cow<'a, [f32]>,
    o: O::Linear<'a>,
}

impl<'a, O: Ops> SelectiveScanWeights<'a, O> {
    /// # Errors
    /// As for [`WeightReader::linear`].
    pub(super) fn read(shelf: WeightReader<'a, O>, spec: &SelectiveScanSpec) -> Result<Self> {
        let normed = |(map, norm): &(LinearSource, NormSource)| -> Result<Normed<'a, O>> {
            Ok((shelf.linear(map)?, shelf.norm(norm)?))
        };
        let n = spec.n_channels();
        let log_decay = shelf.tensors.expect(&spec.log_decay, &[n, spec.d_state])?;
        Ok(Self {
            x: shelf.linear(&spec.x)?,
            gate: shelf.linear(&spec.gate)?,
            kernel: read_kernel(&spec.convolution, shelf)?,
            narrow_steps: normed(&spec.narrow_steps)?,
            b: normed(&spec.b)?,
            c: normed(&spec.c)?,
            steps: shelf.linear(&spec.steps)?,
            decay: log_decay.widen()?.iter().map(|v| -v.exp()).collect(),
            skip: shelf.vector(&spec.skip, n)?,
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
    let mut convolved = O::Buffer::default();
    ops.put(&y, n, &mut convolved)?;
    let mut along = |(map, norm): &Normed<'_, O>, to: &mut O::Buffer| -> Result<()> {
        ops.linear(&convolved, map, &mut projected, pace)?;
        ops.norm(&projected, norm, to)
    };
    along(&weights.b, &mut normed)?;
    let b = ops.get(&normed)?.values.into_owned(); // [position, d_state]
    along(&weights.c, &mut normed)?;
    let c = ops.get(&normed)?.values.into_owned(); // [position, d_state]
    along(&weights.narrow_steps, &mut normed)?;
    ops.linear(&normed, &weights.steps, &mut projected, pace)?;
    let mut steps = ops.get(&projected)?.values.into_owned(); // [position, channel]
    steps.iter_mut().for_each(|step| *step = softplus(*step));
    let of = SelectiveScan {
        d_state: spec.d_state,
        decay: &weights.decay,
        skip: &weights.skip,
    };
    let mut read = each_copy(context, y.len() / n.max(1), kept, |rows, kept| {
        let channels = rows.start * n..rows.end * n;
        let states = rows.start * spec.d_state..rows.end * spec.d_state;
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
