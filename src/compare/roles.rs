//! Role of every stored tensor of a model, in names common to all families, so that ports can be compared whatever their tensor
//! names.

use std::ops::Range;

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;
use attnscope_compute::pace::Pace;
use attnscope_forward::linear_on_host;
use attnscope_spec::LinearSource;
pub(super) use attnscope_spec::roles::{Division, Heads, Source};
use rayon::prelude::*;

/// One use of a stored tensor, or of a part of it.
#[derive(Debug, Clone)]
pub(super) struct Role<'a> {
    /// Its purpose: `L3.attn.q`, `encoder.L0.mlp.up.bias`, `embed.tokens`.
    pub key: String,
    pub source: Source<'a>,
    pub division: Division,
}

impl Role<'_> {
    /// Returns the name of the stored tensor.
    pub fn tensor(&self) -> &str {
        self.source.tensor()
    }

    /// Returns the matrix's number of outputs and inputs; a vector has one input.
    pub fn shape(&self) -> (usize, usize) {
        match &self.source {
            Source::Matrix(linear) => (linear.n_out(), linear.n_in),
            Source::Bias(linear) => (linear.n_out(), 1),
            Source::Table(table) => (table.n_rows, table.width),
            Source::Vector { shape, .. } | Source::Numbers { shape, .. } => {
                (shape.iter().product(), 1)
            }
        }
    }

    /// Whether two roles read their tensors in the same way, so that the tensors can be compared as stored.
    pub fn reads_as(&self, other: &Self) -> bool {
        match (&self.source, &other.source) {
            (Source::Matrix(a), Source::Matrix(b)) => layout(a) == layout(b),
            (Source::Bias(a), Source::Bias(b)) => {
                (a.part, a.slab, a.n_stored_out) == (b.part, b.slab, b.n_stored_out)
            }
            (Source::Table(a), Source::Table(b)) => (a.n_rows, a.width) == (b.n_rows, b.width),
            (Source::Vector { shape: a, .. }, Source::Vector { shape: b, .. })
            | (Source::Numbers { shape: a, .. }, Source::Numbers { shape: b, .. }) => a == b,
            _ => false,
        }
    }

    /// Returns the numbers in logical order. // [n_out, n_in]
    ///
    /// # Errors
    /// When the tensor cannot be read.
    pub fn read(&self, tensors: &Tensors, pace: &dyn Pace) -> Result<Vec<f32>> {
        match &self.source {
            Source::Matrix(linear) => {
                let unbiased = LinearSource {
                    bias: None,
                    ..(*linear).clone()
                };
                let host = linear_on_host(tensors, &unbiased, pace)?;
                let values = host.widened();
                Ok(if host.is_input_major {
                    transposed(&values, host.n_in, host.n_out)
                } else {
                    values.into_owned()
                })
            }
            Source::Bias(linear) => {
                let name = linear.bias.as_deref().unwrap_or_default();
                let view = tensors.expect(name, &linear.stored_bias_shape())?;
                let stored = match linear.slab {
                    Some(slab) => view.widen_rows(slab.idx..slab.idx + 1)?,
                    None => view.widen()?,
                };
                let part = linear.part;
                if linear.bias_is_of_part {
                    return Ok(stored.into_owned());
                }
                let groups = stored.chunks(part.group);
                Ok(groups
                    .flat_map(|group| group[part.offset..part.offset + part.len].iter().copied())
                    .collect())
            }
            Source::Table(table) => {
                let view = tensors.expect(&table.tensor, &[table.n_rows, table.width])?;
                Ok(view.widen()?.into_owned())
            }
            Source::Vector { tensor, shape } => {
                Ok(tensors.expect(tensor, shape)?.widen()?.into_owned())
            }
            Source::Numbers { tensor, shape } => {
                let numbers = tensors.expect_numbers(tensor, shape)?;
                Ok(numbers.into_iter().map(|number| number as f32).collect())
            }
        }
    }

    /// Returns the first stored rows of a matrix that is read row by row: at most [`SAMPLED`] outputs, or inputs if it is
    /// stored as [n_in, n_out]. `None` for other layouts.
    ///
    /// # Errors
    /// When the tensor cannot be read.
    pub fn top(&self, tensors: &Tensors) -> Result<Option<Vec<f32>>> {
        let (name, shape) = match &self.source {
            Source::Matrix(linear) if linear.slab.is_none() => {
                (&linear.weight, linear.stored_shape())
            }
            Source::Table(table) => (&table.tensor, vec![table.n_rows, table.width]),
            _ => return Ok(None),
        };
        let view = tensors.expect(name, &shape)?;
        if !view.is_row_wise() {
            return Ok(None);
        }
        let read = |rows: Range<usize>| -> Result<Vec<f32>> {
            let mut values = vec![0.0; rows.len() * shape[1]];
            view.widen_rows_into(rows, &mut values)?;
            Ok(values)
        };
        Ok(Some(match &self.source {
            Source::Matrix(linear) if linear.is_input_major => {
                let (part, rows) = (linear.part, read(0..SAMPLED.min(shape[0]))?);
                let groups = rows.chunks(part.group);
                let chosen = groups.flat_map(|group| &group[part.offset..part.offset + part.len]);
                chosen.copied().collect()
            }
            Source::Matrix(linear) => {
                let part = linear.part;
                read(part.offset..part.offset + part.len.min(SAMPLED))?
            }
            _ => read(0..SAMPLED.min(shape[0]))?,
        }))
    }
}

/// Number of outputs or inputs that rule out most pairs of matrices.
pub(super) const SAMPLED: usize = 16;

/// Returns the parts of a map's source that define its tensor's layout.
fn layout(linear: &LinearSource) -> impl PartialEq + use<> {
    (
        linear.part,
        linear.slab,
        linear.stored_shape(),
        linear.inputs,
        linear.is_input_major,
        linear.is_transposed,
    )
}

/// Transposes a matrix. // [n_rows, width] → [width, n_rows]
pub(super) fn transposed(values: &[f32], n_rows: usize, width: usize) -> Vec<f32> {
    let mut to = vec![0.0; values.len()];
    if n_rows == 0 || width == 0 {
        return to;
    }
    // Square tiles use whole cache lines on both sides.
    to.par_chunks_mut(TILE * n_rows)
        .enumerate()
        .for_each(|(nth, to)| {
            let first = nth * TILE;
            for row in (0..n_rows).step_by(TILE) {
                let rows = row..(row + TILE).min(n_rows);
                for (column, to) in to.chunks_mut(n_rows).enumerate() {
                    for row in rows.clone() {
                        to[row] = values[row * width + first + column];
                    }
                }
            }
        });
    to
}

/// Side of a tile.
const TILE: usize = 32;

/// Returns the layer of a role: `L3`, `encoder.L3`; empty outside of layers.
pub(super) fn layer_of(key: &str) -> String {
    let mut prefix: Vec<&str> = Vec::new();
    for part in key.split('.') {
        let is_layer = part
            .strip_prefix('L')
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|digit| digit.is_ascii_digit()));
        prefix.push(part);
        if is_layer {
            return prefix.join(".");
        }
        if prefix.len() == 2 {
            break;
        }
    }
    String::new()
}

/// Whether a role is the bias table shared by all layers of a stack.
pub(super) fn is_bias_table(role: &str) -> bool {
    role == "bias" || role == "encoder.bias" || role == "decoder.bias"
}
