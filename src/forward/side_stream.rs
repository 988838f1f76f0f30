//! A second, narrower stream in the kept part of rows: it attends together with the residual, under one pattern, and is otherwise a
//! stream by itself (LiLT, Wang et al. 2022, arXiv 2202.13669).

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{EmbedSpec, Model, SideEmbed, SideStream};

use super::block_weights::MlpWeights;
use super::context::BlockContext;
use super::embed::{add_rows, apply_norm, sum_constants};
use super::mlp::run_mlp;
use super::scratch::{AttentionScratch, MlpScratch};
use super::sequence::Sequence;
use super::weights::WeightReader;

/// The second stream before the first block. // [position, width]
pub(super) fn begin_side<O: Ops>(
    ops: &O,
    (model, embed): (&Model, &EmbedSpec),
    side: &SideEmbed,
    sequence: &Sequence,
) -> Result<Vec<f32>> {
    let mut row = vec![0.0; side.map.n_in];
    sum_constants((model, embed), &side.constants, &mut row)?;
    // One row: it finishes before anyone could stop it.
    let pace = &|| false;
    let shelf = WeightReader::new(ops, &model.checkpoint.tensors, pace);
    let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
    ops.put(&row, row.len(), &mut from)?;
    ops.linear(&from, &shelf.linear(&side.map)?, &mut to, pace)?;
    let mut rows = ops.get(&to)?.values.repeat(sequence.len());
    let places = &sequence.positions;
    add_rows((model, embed), &side.positions, places, &mut rows)?;
    ops.put_own(rows, side.map.n_out(), &mut from)?;
    apply_norm(ops, model, &side.norm, &from, &mut to)?;
    Ok(ops.get(&to)?.values.into_owned())
}

/// Puts queries and keys of the second stream beside those of each head, and fills `s.side_v`.
pub(super) fn join_side<O: Ops>(
    context: &BlockContext<'_, O>,
    side: &SideStream,
    (n_heads, n_kv_heads): (usize, usize),
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    let (ops, shelf, pace) = (context.ops, context.shelf(), context.pace);
    let (mut x, mut own) = (O::Buffer::default(), O::Buffer::default());
    ops.put(&s.kept, side.q.n_in, &mut x)?; // [position, width]
    ops.linear(&x, &shelf.linear(&side.q)?, &mut own, pace)?;
    ops.scale(&mut own, side.factor)?;
    beside_each(ops, n_heads, &mut s.q, &own)?;
    ops.linear(&x, &shelf.linear(&side.k)?, &mut own, pace)?;
    beside_each(ops, n_kv_heads, &mut s.k, &own)?;
    ops.linear(&x, &shelf.linear(&side.v)?, &mut s.side_v, pace)
}

/// Appends to the columns of each head those of the second stream's.
fn beside_each<O: Ops>(ops: &O, n: usize, first: &mut O::Buffer, second: &O::Buffer) -> Result<()> {
    let (a, b) = (ops.get(first)?, ops.get(second)?);
    let [of_a, of_b] = [a.width, b.width].map(|width| (width / n.max(1)).max(1));
    let width = a.width + b.width;
    let mut both = Vec::with_capacity(a.values.len() + b.values.len());
    for (a, b) in a.values.chunks(of_a).zip(b.values.chunks(of_b)) {
        both.extend_from_slice(a);
        both.extend_from_slice(b);
    }
    drop((a, b));
    ops.put_own(both, width, first)
}

/// What becomes of the second stream in a block, from what its heads give. // z: [position, n_heads · its d_value]; kept: [position, width]
pub(super) fn advance_side<O: Ops>(
    context: &BlockContext<'_, O>,
    side: &SideStream,
    z: &O::Buffer,
    kept: &mut Vec<f32>,
) -> Result<()> {
    let (ops, shelf, pace) = (context.ops, context.shelf(), context.pace);
    let (mut x, mut out) = (O::Buffer::default(), O::Buffer::default());
    ops.put(kept, side.o.n_out(), &mut x)?;
    ops.linear(z, &shelf.linear(&side.o)?, &mut out, pace)?; // [position, width]
    ops.add(&mut out, &x)?;
    ops.norm(&out, &shelf.norm(&side.attn_post)?, &mut x)?;
    let weights = MlpWeights::read(shelf, &side.mlp)?;
    let mut s = MlpScratch::default();
    run_mlp(context, &side.mlp, &weights, &x, &mut s, &mut out)?;
    ops.add(&mut out, &x)?;
    ops.norm(&out, &shelf.norm(&side.mlp_post)?, &mut x)?;
    *kept = ops.get(&x)?.values.into_owned();
    Ok(())
}

#[cfg(test)]
mod tests {
    use attnscope_compute::ops::Cpu;

    use super::*;

    #[test]
    fn columns_of_a_second_stream_stand_behind_those_of_each_head() {
        let put = |values: &[f32], width| {
            let mut to = <Cpu as Ops>::Buffer::default();
            Cpu.put(values, width, &mut to).expect("a buffer");
            to
        };
        let mut first = put(&[1.0, 2.0, 3.0, 4.0], 4);
        beside_each(&Cpu, 2, &mut first, &put(&[5.0, 6.0], 2)).expect("both");
        let both = Cpu.get(&first).expect("values");
        assert_eq!(&both.values[..], [1.0, 2.0, 5.0, 3.0, 4.0, 6.0]);
    }
}
