//! What reads other rows than its own inside a block: keys of another grid of a picture's patches, keys of two stacks, and convolutions
//! of a feed-forward layer.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, Ops};
use attnscope_spec::{
    ConvolvedInput, HiddenConvolution, KeyGrid, KeyReduction, KeysOfBoth, NormSource,
    PlaneConvolution, ProjectionSpec, QueryPooling,
};

use super::block_weights::AttentionWeights;
use super::context::{BlockContext, Memory};
use super::norm_gate::open_norm;
use super::planes::{Plane, convolve};
use super::recurrent::FinalStates;
use super::sequence::Sequence;
use super::steps::normed_in_place;

/// What the keys and values of an attention are read of, in place of the rows of the queries.
pub(super) struct OtherKeys<O: Ops> {
    /// [key, d_model]
    hidden: O::Buffer,
    sequence: Sequence,
    ends: FinalStates,
}

impl<O: Ops> OtherKeys<O> {
    /// Computes them from what the attention reads; `None` if its keys are those of its own positions.
    pub(super) fn of(
        context: &BlockContext<'_, O>,
        maps: &ProjectionSpec,
        weights: &AttentionWeights<'_, O>,
        resid: &O::Buffer,
    ) -> Result<Option<Self>> {
        let Some(key_grid) = maps.key_grid.as_deref() else {
            return Ok(None);
        };
        let mut hidden = O::Buffer::default();
        let pooling = maps.query_pooling();
        let of_patches = pooling.map(|pooling| apart(context, pooling, resid));
        let of_patches = of_patches.transpose()?;
        match &weights.pre {
            Some(norm) => {
                let from = of_patches.as_ref().unwrap_or(resid);
                context.ops.norm(from, norm, &mut hidden)?;
                open_norm(context, weights.pre_gate.as_ref(), &mut hidden)?;
            }
            None => match of_patches {
                Some(patches) => hidden = patches,
                None => context.ops.copy(resid, &mut hidden)?,
            },
        }
        match key_grid {
            KeyGrid::Coarser(reduced) => Self::reduce(context, reduced, &mut hidden)?,
            KeyGrid::Convolved(inputs) => convolve_input(context, &inputs.keys, &mut hidden)?,
            KeyGrid::Finer(_) | KeyGrid::Pooled(_) => {}
            KeyGrid::OfBoth(both) => behind_encoder(context, both, &mut hidden)?,
        }
        let source = context.memory.as_ref().map(|memory| memory.sequence);
        Ok(Some(Self {
            hidden,
            sequence: context.sequence.keys_of(maps, source).into_owned(),
            ends: FinalStates::default(),
        }))
    }

    /// Makes the patches of the coarser grid. // hidden: [position, d_model] → [key, d_model]
    fn reduce(
        context: &BlockContext<'_, O>,
        reduced: &KeyReduction,
        hidden: &mut O::Buffer,
    ) -> Result<()> {
        let mut spare = O::Buffer::default();
        over_patches(context, hidden, |plane| {
            let means = reduced.n_bins.map(|n| plane.means(n));
            let plane = means.as_ref().unwrap_or(plane);
            convolved(context, &reduced.convolution, plane)
        })?;
        let norm = context.shelf().norm(&reduced.norm)?;
        normed_in_place(context.ops, Some(&norm), hidden, &mut spare)?;
        match reduced.activation {
            Some(activation) => context.ops.activate(activation, hidden),
            None => Ok(()),
        }
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

/// Puts the normed rows of the encoder before those of each copy. // [position, d] → [source position + position, d]
fn behind_encoder<O: Ops>(
    context: &BlockContext<'_, O>,
    both: &KeysOfBoth,
    rows: &mut O::Buffer,
) -> Result<()> {
    let ops = context.ops;
    let Some(memory) = &context.memory else {
        return Err(Error::Prompt("an encoder without rows to see".to_owned()));
    };
    let norm = context.shelf().norm(&both.norm)?;
    let mut normed = O::Buffer::default();
    ops.norm(memory.hidden, &norm, &mut normed)?;
    let (of_encoder, own) = (ops.get(&normed)?, ops.get(rows)?);
    let width = own.width;
    let n_values = (context.sequence.len() * width).max(1);
    let copies = own.values.chunks(n_values);
    let joined = copies.flat_map(|copy| of_encoder.values.iter().chain(copy));
    let joined: Vec<f32> = joined.copied().collect();
    drop((of_encoder, own));
    ops.put_own(joined, width, rows)
}

/// Convolves the patches that queries, keys or values are read of, and norms them. // [position, d_model] → [query or key, d_model]
pub(super) fn convolve_input<O: Ops>(
    context: &BlockContext<'_, O>,
    input: &ConvolvedInput,
    rows: &mut O::Buffer,
) -> Result<()> {
    let ops = context.ops;
    let norm = context.shelf().norm(&input.norm)?;
    let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
    over_patches(context, rows, |plane| {
        let convolved = convolved(context, &input.convolution, plane)?;
        ops.put(&convolved.values, convolved.n_channels, &mut from)?;
        ops.norm(&from, &norm, &mut to)?;
        let values = ops.get(&to)?.values.into_owned();
        Ok(Plane {
            values,
            ..convolved
        })
    })
}

/// Takes the patches of each row apart, in the order of the grid that they come from. // [query, side · side · d] → [key, d]
fn apart<O: Ops>(
    context: &BlockContext<'_, O>,
    pooling: &QueryPooling,
    rows: &O::Buffer,
) -> Result<O::Buffer> {
    let side = pooling.side;
    let [n_rows, n_columns] = grid_of(context)?;
    let host = context.ops.get(rows)?;
    let width = host.width / (side * side).max(1);
    let mut values = Vec::with_capacity(host.values.len());
    for copy in host.values.chunks((n_rows * n_columns * host.width).max(1)) {
        for (row, column) in places([n_rows * side, n_columns * side]) {
            let of_square = (row / side) * n_columns + column / side;
            let inside = (row % side) * side + column % side;
            let first = of_square * host.width + inside * width;
            values.extend_from_slice(copy.get(first..first + width).unwrap_or_default());
        }
    }
    drop(host);
    let mut patches = O::Buffer::default();
    context.ops.put_own(values, width, &mut patches)?;
    Ok(patches)
}

/// Keeps the largest values of each square of patches. // [key, d] → [query, d]
pub(super) fn keep_largest<O: Ops>(
    context: &BlockContext<'_, O>,
    pooling: &QueryPooling,
    rows: &mut O::Buffer,
) -> Result<()> {
    let side = pooling.side;
    let [n_rows, n_columns] = grid_of(context)?;
    let host = context.ops.get(rows)?;
    let width = host.width;
    let n_keys = n_rows * n_columns * side * side;
    let mut values = Vec::with_capacity(host.values.len() / (side * side).max(1));
    for copy in host.values.chunks((n_keys * width).max(1)) {
        for (row, column) in places([n_rows, n_columns]) {
            let first = values.len();
            values.resize(first + width, f32::NEG_INFINITY);
            for (down, right) in places([side, side]) {
                let patch = (row * side + down) * n_columns * side + column * side + right;
                let from = copy.get(patch * width..(patch + 1) * width);
                let pairs = values[first..].iter_mut().zip(from.unwrap_or_default());
                // Not `max`, which would hide a NaN.
                pairs.for_each(|(to, value)| {
                    if *value > *to || value.is_nan() {
                        *to = *value;
                    }
                });
            }
        }
    }
    drop(host);
    context.ops.put_own(values, width, rows)
}

/// Makes the residual of a block that pools of its rows. // [query, side · side · d] → [query, d_model]
pub(super) fn pool_residual<O: Ops>(
    context: &BlockContext<'_, O>,
    (pooling, pre): (&QueryPooling, &Option<NormSource>),
    resid: &mut O::Buffer,
) -> Result<()> {
    let (ops, shelf) = (context.ops, context.shelf());
    let mut patches = apart(context, pooling, resid)?;
    let norm = shelf.optional_norm(pre)?;
    normed_in_place(ops, norm.as_ref(), &mut patches, resid)?;
    let map = shelf.linear(&pooling.residual)?;
    ops.linear(&patches, &map, resid, context.pace)?; // [key, d_model]
    keep_largest(context, pooling, resid)
}

/// Rows and columns, row by row.
fn places([n_rows, n_columns]: [usize; 2]) -> impl Iterator<Item = (usize, usize)> {
    (0..n_rows).flat_map(move |row| (0..n_columns).map(move |column| (row, column)))
}

/// Rows and columns of the picture's patches in the layer.
fn grid_of<O: Ops>(context: &BlockContext<'_, O>) -> Result<[usize; 2]> {
    context.sequence.grid().ok_or_else(|| {
        Error::Prompt("this model reads pictures: expected one, found ids alone".to_owned())
    })
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

/// Replaces the patches of each copy of a picture by what is computed of them as a plane. Learned tokens before them stay.
pub(super) fn over_patches<O: Ops>(
    context: &BlockContext<'_, O>,
    rows: &mut O::Buffer,
    of: impl FnMut(&Plane) -> Result<Plane>,
) -> Result<()> {
    over_plane(context, grid_of(context)?, rows, of)
}

/// Replaces the patches of each copy of a picture, or the positions of each copy of a sequence, by what is computed of them as a plane.
pub(super) fn over_places<O: Ops>(
    context: &BlockContext<'_, O>,
    rows: &mut O::Buffer,
    of: impl FnMut(&Plane) -> Result<Plane>,
) -> Result<()> {
    let grid = context.sequence.grid();
    over_plane(
        context,
        grid.unwrap_or([context.sequence.len(), 1]),
        rows,
        of,
    )
}

fn over_plane<O: Ops>(
    context: &BlockContext<'_, O>,
    grid: [usize; 2],
    rows: &mut O::Buffer,
    mut of: impl FnMut(&Plane) -> Result<Plane>,
) -> Result<()> {
    let (mut values, mut width) = (Vec::new(), 0);
    {
        let host = context.ops.get(rows)?;
        let n_patches = grid[0] * grid[1];
        let n_first = context.sequence.len().saturating_sub(n_patches);
        let n_values = (n_first + n_patches) * host.width;
        for copy in host.values.chunks(n_values.max(1)) {
            let (firsts, patches) = copy.split_at((n_first * host.width).min(copy.len()));
            let plane = of(&Plane::of_patches(patches.to_vec(), host.width, grid)?)?;
            if n_first > 0 && plane.n_channels != host.width {
                let problem = format!(
                    "{n_first} tokens stand before the patches, whose width changes from {} to {}",
                    host.width, plane.n_channels
                );
                return Err(Error::Prompt(problem));
            }
            values.extend_from_slice(firsts);
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
