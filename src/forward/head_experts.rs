//! Experts of attention: each token's heads have the queries and the output maps of the experts that its router chooses.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::{HeadExperts, LinearSource};

use super::context::BlockContext;
use super::route::{Choice, route};

/// The experts of every row, with their weights, one after another. // [row · group]
pub(super) type Chosen = Vec<(usize, f32)>;

/// The rows and groups that chose an expert, with its weights.
struct Users {
    rows: Vec<usize>,
    groups: Vec<usize>,
    weights: Vec<f32>,
}

impl Users {
    fn of(expert_idx: usize, chosen: &[(usize, f32)], n_groups: usize) -> Self {
        let mut users = Self {
            rows: Vec::new(),
            groups: Vec::new(),
            weights: Vec::new(),
        };
        for (at, (_, weight)) in chosen
            .iter()
            .enumerate()
            .filter(|(_, (idx, _))| *idx == expert_idx)
        {
            users.rows.push(at / n_groups);
            users.groups.push(at % n_groups);
            users.weights.push(*weight);
        }
        users
    }
}

/// Chooses the experts of every row, and fills the queries of its heads. // from: [row, d_model]; q: [row, n_heads · d_head]
pub(super) fn choose_heads<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &HeadExperts,
    from: &O::Buffer,
    q: &mut O::Buffer,
) -> Result<Chosen> {
    let (ops, shelf, pace) = (context.ops, context.shelf(), context.pace);
    let mut routed = O::Buffer::default();
    ops.linear(from, &shelf.linear(&spec.router)?, &mut routed, pace)?; // [row, expert]
    let chosen: Chosen = {
        let routed = ops.get(&routed)?;
        let rows = routed.values.chunks(spec.q.len().max(1));
        rows.flat_map(|outputs| route(&spec.rule, outputs, Choice::Scores))
            .collect()
    };
    let n_groups = spec.rule.n_used.max(1);
    let width = spec.q.first().map_or(0, LinearSource::n_out);
    let mut queries = vec![0.0; chosen.len() * width];
    let (mut own, mut made) = (O::Buffer::default(), O::Buffer::default());
    for (expert_idx, map) in spec.q.iter().enumerate() {
        let users = Users::of(expert_idx, &chosen, n_groups);
        if users.rows.is_empty() {
            continue;
        }
        ops.gather_rows(from, &users.rows, &mut own)?;
        ops.linear(&own, &shelf.linear(map)?, &mut made, pace)?; // [user, width]
        let made = ops.get(&made)?;
        let places = users.rows.iter().zip(&users.groups);
        for ((row, group), made) in places.zip(made.values.chunks(width.max(1))) {
            queries[(row * n_groups + group) * width..][..width].copy_from_slice(made);
        }
    }
    ops.put_own(queries, n_groups * width, q)?;
    Ok(chosen)
}

/// Repeats the columns of keys or values for every group of heads. // [row, width] → [row, n · width]
pub(super) fn for_all_groups<O: Ops>(ops: &O, n: usize, values: &mut O::Buffer) -> Result<()> {
    let host = ops.get(values)?;
    let width = host.width;
    let rows = host.values.chunks(width.max(1));
    let all: Vec<f32> = rows.flat_map(|row| row.repeat(n)).collect();
    drop(host);
    ops.put_own(all, n * width, values)
}

/// Maps what the heads of every row give by the experts that it chose, and returns the norm of what each head gives.
/// // z: [row, n_heads · d_value]; out: [row, d_model]; norms: [head, row]
pub(super) fn map_by_experts<O: Ops>(
    context: &BlockContext<'_, O>,
    (spec, n_heads): (&HeadExperts, usize),
    (z, chosen): (&O::Buffer, &[(usize, f32)]),
    out: &mut O::Buffer,
) -> Result<Vec<Vec<f32>>> {
    let (ops, shelf, pace) = (context.ops, context.shelf(), context.pace);
    let n_groups = spec.rule.n_used.max(1);
    let (n_rows, n_each) = (chosen.len() / n_groups, n_heads / n_groups);
    let (width, d_model) = spec.o.first().map_or((0, 0), |o| (o.n_in, o.n_out()));
    let z = ops.get(z)?;
    ops.put_own(vec![0.0; n_rows * d_model], d_model, out)?;
    let mut norms = match context.copies {
        None => vec![vec![0.0; n_rows]; n_heads],
        Some(_) => Vec::new(),
    };
    let (mut own, mut made) = (O::Buffer::default(), O::Buffer::default());
    for (expert_idx, map) in spec.o.iter().enumerate() {
        let users = Users::of(expert_idx, chosen, n_groups);
        if users.rows.is_empty() {
            continue;
        }
        let places = || users.rows.iter().zip(&users.groups);
        let of_users: Vec<f32> = places()
            .flat_map(|(row, group)| &z.values[(row * n_groups + group) * width..][..width])
            .copied()
            .collect(); // [user, width]
        ops.put(&of_users, width, &mut own)?;
        ops.linear(&own, &shelf.linear(map)?, &mut made, pace)?; // [user, d_model]
        ops.add_rows(out, &users.rows, &users.weights, &made)?;
        if norms.is_empty() {
            continue;
        }
        let plain = LinearSource {
            bias: None,
            second_bias: None,
            ..map.clone()
        };
        let plain = shelf.linear(&plain)?;
        for nth in 0..n_each {
            let d_value = width / n_each;
            let columns = nth * d_value..(nth + 1) * d_value;
            let mut alone = vec![0.0; of_users.len()];
            let rows = alone.chunks_mut(width).zip(of_users.chunks(width));
            rows.for_each(|(to, from)| {
                to[columns.clone()].copy_from_slice(&from[columns.clone()]);
            });
            ops.put_own(alone, width, &mut own)?;
            ops.linear(&own, &plain, &mut made, pace)?;
            let lengths = ops.row_norms(&made)?;
            let users = places().zip(&users.weights).zip(&lengths);
            for (((row, group), weight), length) in users {
                norms[group * n_each + nth][*row] = weight.abs() * length;
            }
        }
    }
    Ok(norms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expert_finds_its_rows_and_their_groups_of_heads() {
        // Two rows of two groups.
        let chosen = [(3, 0.75), (1, 0.25), (1, 0.5), (0, 0.5)];
        let users = Users::of(1, &chosen, 2);
        assert_eq!((users.rows, users.groups), (vec![0, 1], vec![1, 0]));
        assert_eq!(users.weights, [0.25, 0.5]);
        assert!(Users::of(2, &chosen, 2).rows.is_empty());
    }
}
