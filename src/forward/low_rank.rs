//! Low-rank additions to the weights of a map, which a checkpoint stores beside them.

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::{Matrix, MatrixMut, Threads, product};
use attnscope_compute::ops::HostWeight;
use attnscope_spec::{LinearSource, LowRank};

use super::weights::choose_rows;

/// The weights of a map, whose rows are outputs, with the product of two stored matrices added. // [n_out, n_in]
pub(super) fn with_low_rank(
    tensors: &Tensors,
    source: &LinearSource,
    added: &LowRank,
    weight: &HostWeight<'_>,
) -> Result<Vec<f32>> {
    let [(down, of_down), (up, of_up)] = added.tensors(source);
    let down = tensors.expect(down, &of_down)?.widen()?; // [rank, n_in]
    let up = tensors.expect(up, &of_up)?.widen()?; // [n_stored_out, rank]
    let up = choose_rows(up, added.rank, source.part); // [n_out, rank]
    let mut values = weight
        .widened(source.n_out(), source.is_input_major)
        .into_owned();
    let (n_out, n_in) = (source.n_out(), source.n_in);
    product(
        &mut MatrixMut::new(&mut values, n_out, n_in, n_in),
        Matrix::row_major(&up, n_out, added.rank),
        Matrix::row_major(&down, added.rank, n_in),
        true,
        Threads::Pool,
    );
    Ok(values)
}
