//! Per-token branch of a block, beside attention and feed-forward: a narrow gate on the residual, opened by a token embedding
//! of this block and by a part of the token's usual embedding.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_spec::{TableSource, TokenBranch};

use super::context::BlockContext;

/// Computes the branch's output for rows of some tokens. // from, result: [token, d_model]
pub(super) fn of_tokens<O: Ops>(
    context: &BlockContext<'_, O>,
    branch: &TokenBranch,
    tokens: &[u32],
    from: &O::Buffer,
) -> Result<O::Buffer> {
    let (ops, shelf, pace) = (context.ops, context.shelf(), context.pace);
    let looked_up = |table: &TableSource, columns: std::ops::Range<usize>, scale: f32| {
        let view = context
            .tensors
            .expect(&table.tensor, &[table.n_rows, table.width])?;
        let mut values = Vec::with_capacity(tokens.len() * columns.len());
        for id in tokens {
            let mut at = *id as usize;
            let is_own = branch
                .rows
                .as_ref()
                .is_some_and(|own| own.tensor == table.tensor);
            if at >= table.n_rows && is_own {
                at = branch.row_beyond.unwrap_or(at);
            }
            if at >= table.n_rows {
                let problem = format!(
                    "row {at} of {} does not exist in {}",
                    table.n_rows, table.tensor
                );
                return Err(Error::Prompt(problem));
            }
            let row = view.widen_rows(at..at + 1)?;
            values.extend(row[columns.clone()].iter().map(|value| value * scale));
        }
        Ok(values)
    };
    let width = branch.gate.n_out();
    let mut embedded = O::Buffer::default();
    let d_model = branch.tokens.width;
    let rows = looked_up(&branch.tokens, 0..d_model, branch.token_scale)?;
    ops.put(&rows, d_model, &mut embedded)?; // [token, d_model]
    let (mut mapped, mut normed) = (O::Buffer::default(), O::Buffer::default());
    ops.linear(
        &embedded,
        &shelf.linear(&branch.context)?,
        &mut mapped,
        pace,
    )?; // [token, width]
    ops.scale(&mut mapped, branch.context_scale)?;
    ops.norm(&mapped, &shelf.norm(&branch.context_norm)?, &mut normed)?;
    let columns = branch.first_column..branch.first_column + width;
    if let Some(table) = &branch.rows {
        let own = looked_up(table, columns, branch.row_scale)?;
        ops.put(&own, width, &mut mapped)?;
        ops.add(&mut normed, &mapped)?;
    }
    ops.scale(&mut normed, branch.mix)?;
    let mut gate = O::Buffer::default();
    ops.linear(from, &shelf.linear(&branch.gate)?, &mut gate, pace)?; // [token, width]
    ops.activate(branch.activation, &mut gate)?;
    ops.multiply(&mut gate, &normed)?;
    ops.linear(&gate, &shelf.linear(&branch.out)?, &mut embedded, pace)?; // [token, d_model]
    ops.norm(&embedded, &shelf.norm(&branch.out_norm)?, &mut mapped)?;
    Ok(mapped)
}

/// Ends a block: adds its per-token branch, and multiplies the residual by a stored factor.
pub(super) fn end_block<O: Ops>(
    context: &BlockContext<'_, O>,
    (branch, scale): (Option<&TokenBranch>, Option<&String>),
    tokens: &[u32],
    resid: &mut O::Buffer,
) -> Result<()> {
    if let Some(branch) = branch {
        let added = of_tokens(context, branch, tokens, resid)?;
        context.ops.add(resid, &added)?;
    }
    if let Some(name) = scale {
        let stored = context.shelf().vector(name, 1)?;
        context.ops.scale(resid, stored[0])?;
    }
    Ok(())
}
