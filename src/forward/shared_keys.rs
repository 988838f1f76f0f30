//! Sharing of keys and values between layers, through the rows passed from block to block.

use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::Ops;
use attnscope_spec::{KvSharing, ProjectionSpec};

use super::context::BlockContext;
use super::rows::put_columns;
use super::scratch::AttentionScratch;

/// Writes keys and values into the columns that later layers read, or adds values that an earlier layer left there.
pub(super) fn share_keys<O: Ops>(
    context: &BlockContext<'_, O>,
    (attention, spec): (&AttentionSpec, &ProjectionSpec),
    s: &mut AttentionScratch<O>,
) -> Result<()> {
    let ops = context.ops;
    let first = match spec.shared.as_deref() {
        Some(KvSharing::Provides(first)) => first,
        Some(KvSharing::AddsValues { column, share, .. }) => {
            let first = column + attention.n_kv_heads * attention.d_head;
            let share = context.tensors.expect(share, &[])?.widen()?;
            return add_values(ops, share[0], (first, &s.kept), &mut s.v);
        }
        Some(KvSharing::Reuses { .. }) | None => return Ok(()),
    };
    let (k, v) = (ops.get(&s.k)?, ops.get(&s.v)?);
    let width = s.kept.len() / (k.values.len() / k.width.max(1)).max(1);
    put_columns(&mut s.kept, width, *first, &k.values, k.width);
    put_columns(&mut s.kept, width, first + k.width, &v.values, v.width);
    Ok(())
}

/// Adds the values of an earlier layer, which stand in kept columns from `first` on. // v: [row, n_kv_heads · d_value]
fn add_values<O: Ops>(
    ops: &O,
    share: f32,
    (first, kept): (usize, &[f32]),
    v: &mut O::Buffer,
) -> Result<()> {
    let host = ops.get(v)?;
    let (width, mut values) = (host.width, host.values.into_owned());
    let n_rows = values.len() / width.max(1);
    let earlier = columns(kept, kept.len() / n_rows.max(1), first, width);
    values
        .iter_mut()
        .zip(&earlier)
        .for_each(|(own, earlier)| *own += share * earlier);
    ops.put_own(values, width, v)
}

/// Fills keys and values with those that an earlier layer left.
pub(super) fn reuse_keys<O: Ops>(
    ops: &O,
    (attention, spec): (&AttentionSpec, &ProjectionSpec),
    (q, kept): (&O::Buffer, &[f32]),
    [k, v]: [&mut O::Buffer; 2],
) -> Result<()> {
    let Some(KvSharing::Reuses { column, .. }) = spec.shared.as_deref() else {
        return Ok(());
    };
    let n_rows = {
        let q = ops.get(q)?;
        q.values.len() / q.width.max(1)
    };
    let width = kept.len() / n_rows.max(1);
    let [n_k, n_v] = [attention.d_head, attention.d_value].map(|d| attention.n_kv_heads * d);
    ops.put(&columns(kept, width, *column, n_k), n_k, k)?;
    ops.put(&columns(kept, width, column + n_k, n_v), n_v, v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_compute::ops::Cpu;

    #[test]
    fn a_share_of_earlier_values_is_added_to_each_row() {
        let mut v = Default::default();
        Cpu.put(&[1.0, 2.0, 3.0, 4.0], 2, &mut v).expect("is put");
        // Rows of a key of one value, then the values.
        let kept = [9.0, 10.0, 20.0, 9.0, 30.0, 40.0];
        add_values(&Cpu, 0.5, (1, &kept), &mut v).expect("is added");
        assert_eq!(
            *Cpu.get(&v).expect("is there").values,
            [6.0, 12.0, 18.0, 24.0]
        );
    }
}
