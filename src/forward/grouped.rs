//! Runs a step once for all segments that share its parameters.

use std::ops::Range;

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;

/// Groups the members of `all` by `key`, in the order of each group's first member.
pub(super) fn groups<T, K: PartialEq>(all: &[T], key: impl Fn(&T) -> K) -> Vec<(K, Vec<usize>)> {
    let mut groups: Vec<(K, Vec<usize>)> = Vec::new();
    for (idx, one) in all.iter().enumerate() {
        let own = key(one);
        match groups.iter_mut().find(|(known, _)| *known == own) {
            Some((_, members)) => members.push(idx),
            None => groups.push((own, vec![idx])),
        }
    }
    groups
}

/// Copies some ranges of rows into one buffer.
pub(super) fn gathered<O: Ops>(
    ops: &O,
    from: &O::Buffer,
    rows: &[Range<usize>],
) -> Result<O::Buffer> {
    let mut to = O::Buffer::default();
    let host = ops.get(from)?;
    let mut together = Vec::with_capacity(rows.iter().map(Range::len).sum::<usize>() * host.width);
    for range in rows {
        together.extend_from_slice(&host.values[range.start * host.width..range.end * host.width]);
    }
    ops.put_own(together, host.width, &mut to)?;
    Ok(to)
}

/// Runs a step once per group, and puts the groups' results back in the order of the rows.
///
/// `rows` has the rows of each member; together they cover all rows. `step` gets the group's key, and as many buffers as are
/// passed in.
pub(super) fn in_groups<O: Ops, K, const N: usize>(
    ops: &O,
    rows: &[Range<usize>],
    groups: Vec<(K, Vec<usize>)>,
    from: [&O::Buffer; N],
    mut step: impl FnMut(K, [&O::Buffer; N], &mut O::Buffer) -> Result<()>,
) -> Result<O::Buffer> {
    let mut to = O::Buffer::default();
    let n_rows = rows.iter().map(Range::len).sum::<usize>();
    let (mut together, mut width) = (Vec::new(), 0);
    let is_one = groups.len() == 1;
    for (key, members) in groups {
        if is_one {
            step(key, from, &mut to)?;
            return Ok(to);
        }
        let own: Vec<Range<usize>> = members.iter().map(|idx| rows[*idx].clone()).collect();
        let parts = from.map(|buffer| gathered(ops, buffer, &own));
        let parts = parts.into_iter().collect::<Result<Vec<O::Buffer>>>()?;
        let mut out = O::Buffer::default();
        step(key, std::array::from_fn(|idx| &parts[idx]), &mut out)?;
        let host = ops.get(&out)?;
        width = host.width;
        if together.is_empty() {
            together = vec![0.0; n_rows * width];
        }
        let mut at = 0;
        for range in own {
            let n = range.len() * width;
            together[range.start * width..range.end * width]
                .copy_from_slice(&host.values[at..at + n]);
            at += n;
        }
    }
    ops.put_own(together, width, &mut to)?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_compute::ops::Cpu;

    #[test]
    fn groups_run_by_themselves_and_rows_keep_their_places() {
        let ops = Cpu;
        let mut from = Default::default();
        ops.put(&[1.0, 2.0, 3.0, 4.0, 5.0], 1, &mut from)
            .expect("a buffer");
        let rows = [0..2, 2..3, 3..5];
        let factors = [10.0, -1.0, 10.0];
        let mut n_runs = 0;
        let to = in_groups(
            &ops,
            &rows,
            groups(&factors, |factor| *factor),
            [&from],
            |factor, [from], to| {
                n_runs += 1;
                ops.copy(from, to)?;
                ops.scale(to, factor)
            },
        )
        .expect("a step");
        assert_eq!(n_runs, 2);
        let host = ops.get(&to).expect("values");
        assert_eq!(host.values.as_ref(), [10.0, 20.0, -3.0, 40.0, 50.0]);
    }
}
