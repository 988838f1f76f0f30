//! What reads the grid of a picture's patches inside a block: coarser keys, and convolutions of a feed-forward layer.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, Ops};
use attnscope_spec::{HiddenConvolution, PlaneConvolution, ProjectionSpec};

use super::block_weights::AttentionWeights;
use super::context::{BlockContext, Memory};
use super::norm_gate::open_norm;
use super::planes::{Plane, convolve};
use super::recurrent::FinalStates;
use super::sequence::Sequence;
use super::steps::normed_in_place;

/// What the keys and values of an attention are read of: the patches of a coarser grid than that of the queries.
pub(super) struct CoarseKeys<O: Ops> {
    /// [key, d_model]
    hidden: O::Buffer,
    sequence: Sequence,
    ends: FinalStates,
}

impl<O: Ops> CoarseKeys<O> {
    /// Computes them from what the attention reads; `None` if its keys are those of its own positions.
    pub(super) fn of(
        context: &BlockContext<'_, O>,
        maps: &ProjectionSpec,
        weights: &AttentionWeights<'_, O>,
        resid: &O::Buffer,
    ) -> Result<Option<Self>> {
        let Some(reduced) = maps.reduced.as_deref() else {
            return Ok(None);
        };
        let ops = context.ops;
        let (mut hidden, mut spare) = (O::Buffer::default(), O::Buffer::default());
        match &weights.pre {
            Some(norm) => {
                ops.norm(resid, norm, &mut hidden)?;
                open_norm(context, weights.pre_gate.as_ref(), &mut hidden)?;
            }
            None => ops.copy(resid, &mut hidden)?,
        }
        over_patches(context, &mut hidden, |plane| {
            let means = reduced.n_bins.map(|n| plane.means(n));
            let plane = means.as_ref().unwrap_or(plane);
            convolved(context, &reduced.convolution, plane)
        })?;
        let norm = context.shelf().norm(&reduced.norm)?;
        normed_in_place(ops, Some(&norm), &mut hidden, &mut spare)?;
        if let Some(activation) = reduced.activation {
            ops.activate(activation, &mut hidden)?;
        }
        Ok(Some(Self {
            hidden,
            sequence: context.sequence.keys_of(maps).into_owned(),
            ends: FinalStates::default(),
        }))
    }

    /// The context of an attention that reads them as its other sequence.
    pub(super) fn context<'b>(&'b self, context: &BlockContext<'b, O>) -> BlockContext<'b, O> {
        BlockContext {
            memory: Some(Memory {
                hidden: &self.hidden,
                sequence: &self.sequence,
                ends: &self.ends,
            }),
            ..context.over(context.sequence)
        }
    }
}

/// Convolves the hidden vectors of a feed-forward layer over the patches. // [patch, d_mlp]
pub(super) fn convolve_hidden<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &HiddenConvolution,
    hidden: &mut O::Buffer,
) -> Result<()> {
    if let Some(activation) = spec.before {
        context.ops.activate(activation, hidden)?;
    }
    over_patches(context, hidden, |plane| {
        convolved(context, &spec.convolution, plane)
    })
}

fn convolved<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &PlaneConvolution,
    plane: &Plane,
) -> Result<Plane> {
    // No activation follows the convolution itself.
    convolve(spec, Activation::Relu, plane, context.shelf())
}

/// Replaces the patches of each copy of a picture by what is computed of them as a plane.
pub(super) fn over_patches<O: Ops>(
    context: &BlockContext<'_, O>,
    rows: &mut O::Buffer,
    mut of: impl FnMut(&Plane) -> Result<Plane>,
) -> Result<()> {
    let grid = context.sequence.grid().ok_or_else(|| {
        Error::Prompt("this model reads pictures: expected one, found ids alone".to_owned())
    })?;
    let (mut values, mut width) = (Vec::new(), 0);
    {
        let host = context.ops.get(rows)?;
        let n_values = grid[0] * grid[1] * host.width;
        for copy in host.values.chunks(n_values.max(1)) {
            let plane = of(&Plane::of_patches(copy.to_vec(), host.width, grid)?)?;
            if plane.n_rows == 0 || plane.n_columns == 0 {
                let problem = format!(
                    "{} × {} patches are too few for a convolution of the model",
                    grid[1], grid[0]
                );
                return Err(Error::Prompt(problem));
            }
            width = plane.n_channels;
            values.extend(plane.values);
        }
    }
    context.ops.put_own(values, width, rows)
}
