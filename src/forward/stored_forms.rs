//! Whole matrices of maps that are stored otherwise: in groups, as some of the inputs of another, in two tensors, for both halves of an
//! input, or as two maps that follow each other.

use std::borrow::Cow;
use std::ops::Range;

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::kernels::{Matrix, MatrixMut, Threads, product};
use attnscope_compute::ops::{HostLinear, HostWeight};
use attnscope_spec::{LastInputs, LinearSource};

/// The matrix of a map that is stored in groups, or as some inputs of a wider one. // [n_out, n_in]
pub(super) fn whole_of(stored: &[f32], source: &LinearSource) -> Vec<f32> {
    match source.inputs {
        Some(inputs) => columns(stored, inputs.n_stored, inputs.first, source.n_in),
        None => ungrouped(stored, source),
    }
}

/// The whole matrix of a map in groups: zero where an output does not read an input. // [n_out, n_in]
fn ungrouped(kernel: &[f32], source: &LinearSource) -> Vec<f32> {
    let n_groups = source.groups.map_or(1, |groups| groups.n);
    let (n_in, n_out) = (source.n_in, source.n_out());
    let (width, height) = (n_in / n_groups.max(1), n_out.div_ceil(n_groups.max(1)));
    let mut whole = vec![0.0; n_out * n_in];
    let rows = whole
        .chunks_mut(n_in.max(1))
        .zip(kernel.chunks(width.max(1)));
    for (out_idx, (row, from)) in rows.enumerate() {
        let first = out_idx / height.max(1) * width;
        row[first..first + width].copy_from_slice(from);
    }
    whole
}

/// Adds the inputs that another tensor maps, behind those of a map whose rows are outputs. // outputs: of the whole map
///
/// # Errors
/// When the tensor is missing or has the wrong shape.
pub(super) fn with_last_inputs<'a>(
    tensors: &Tensors,
    first: HostLinear<'a>,
    (last, n_out): (&LastInputs, usize),
    outputs: Range<usize>,
) -> Result<HostLinear<'a>> {
    let stored = tensors.expect(&last.tensor, &[last.n, n_out])?.widen()?;
    let values = first.widened();
    let mut whole = Vec::with_capacity(outputs.len() * (first.n_in + last.n));
    for (output, row) in outputs.zip(values.chunks(first.n_in.max(1))) {
        whole.extend_from_slice(row);
        whole.extend(stored.iter().skip(output).step_by(n_out.max(1)));
    }
    drop(values);
    Ok(HostLinear {
        n_in: first.n_in + last.n,
        weight: HostWeight::F32(Cow::Owned(whole)),
        ..first
    })
}

/// Makes a map that applies its matrix to both halves of an input and adds the results.
pub(super) fn for_both_halves(once: HostLinear<'_>) -> HostLinear<'_> {
    let values = once.widened();
    let twice: Vec<f32> = if once.is_input_major {
        [&*values, &*values].concat()
    } else {
        let rows = values.chunks(once.n_in.max(1));
        rows.flat_map(|row| [row, row].concat()).collect()
    };
    drop(values);
    HostLinear {
        n_in: 2 * once.n_in,
        weight: HostWeight::F32(Cow::Owned(twice)),
        ..once
    }
}

/// Makes one map of two that follow each other.
pub(super) fn followed<'a>(first: &HostLinear<'_>, then: &HostLinear<'_>) -> HostLinear<'a> {
    let (of_first, of_then) = (first.widened(), then.widened());
    let of = |linear: &HostLinear<'_>, values| {
        if linear.is_input_major {
            Matrix::row_major(values, linear.n_in, linear.n_out).transposed()
        } else {
            Matrix::row_major(values, linear.n_out, linear.n_in)
        }
    };
    let (n_out, n_in) = (then.n_out, first.n_in);
    let mut weight = vec![0.0; n_out * n_in]; // [n_out, n_in]
    product(
        &mut MatrixMut::new(&mut weight, n_out, n_in, n_in),
        of(then, &of_then),
        of(first, &of_first),
        false,
        Threads::Pool,
    );
    let mut bias = vec![0.0; n_out];
    if let Some(before) = &first.bias {
        product(
            &mut MatrixMut::new(&mut bias, n_out, 1, 1),
            of(then, &of_then),
            Matrix::row_major(before, before.len(), 1),
            false,
            Threads::One,
        );
    }
    if let Some(behind) = &then.bias {
        let pairs = bias.iter_mut().zip(&**behind);
        pairs.for_each(|(to, value)| *to += value);
    }
    HostLinear {
        n_out,
        n_in,
        weight: HostWeight::F32(Cow::Owned(weight)),
        is_input_major: false,
        bias: Some(Cow::Owned(bias)),
        grams: Default::default(),
    }
}
