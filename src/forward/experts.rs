//! Mixture-of-experts feed-forward layer: each token runs through the few experts that its router chooses.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_spec::{ExpertsByToken, ExpertsSpec, NormSource};

use super::block_weights::MlpWeights;
use super::context::BlockContext;
use super::mlp::run_mlp;
use super::route::{Choice, route};
use super::scratch::MlpScratch;
use super::steps::normed_in_place;

/// Runs every expert on the tokens routed to it. An expert's weights are read just before it runs, and only if it has tokens.
///
/// # Errors
/// When the pace stops it, a tensor differs from its spec, or the device fails.
pub(super) fn experts<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &ExpertsSpec,
    (from, resid): (&O::Buffer, &O::Buffer),
    s: &mut MlpScratch<O>,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, shelf) = (context.ops, context.shelf());
    let n_experts = spec.experts.len() + spec.rule.n_identities;
    let choice_bias = match &spec.rule.choice_bias {
        Some(bias) => Some(shelf.tensors.expect(&bias.tensor, &bias.shape)?.widen()?),
        None => None,
    };
    let by_token = match &spec.rule.by_token {
        Some(table) => Some(chosen_by_token(
            context,
            table,
            (spec.rule.n_used, n_experts),
        )?),
        None => None,
    };
    let expert_scales = match &spec.rule.expert_scales {
        Some(name) => Some(shelf.vector(name, n_experts)?),
        None => None,
    };
    let normed = |norm: &NormSource| -> Result<O::Buffer> {
        let mut to = O::Buffer::default();
        ops.norm(resid, &shelf.norm(norm)?, &mut to)?;
        Ok(to)
    };
    let own = match spec.apart.as_deref() {
        Some(apart) => Some([normed(&apart.router)?, normed(&apart.into)?]),
        None => None,
    };
    let [routed_from, experts_from] = match &own {
        Some([router, into]) => [router, into],
        None => [from; 2],
    };
    ops.linear(
        routed_from,
        &shelf.linear(&spec.router)?,
        &mut s.routed,
        context.pace,
    )?; // [position, expert]
    let mut chosen_by: Vec<(Vec<usize>, Vec<f32>)> = vec![Default::default(); n_experts];
    let n_positions = {
        let routed = ops.get(&s.routed)?;
        let tokens = routed.values.chunks(n_experts);
        let n_positions = tokens.len();
        let n_each = n_positions.div_ceil(context.copies.unwrap_or(1).max(1));
        // Tokens of the current sequence that each expert has.
        let mut n_taken = vec![0; n_experts];
        for (position_idx, outputs) in tokens.enumerate() {
            if position_idx.is_multiple_of(n_each.max(1)) {
                n_taken.fill(0);
            }
            let choice = match (&by_token, &choice_bias) {
                (Some(chosen), _) => {
                    let first = position_idx * spec.rule.n_used;
                    Choice::These(&chosen[first..first + spec.rule.n_used])
                }
                (None, Some(bias)) => Choice::Biased(bias),
                (None, None) => Choice::Scores,
            };
            for (expert_idx, weight) in route(&spec.rule, outputs, choice) {
                n_taken[expert_idx] += 1;
                if spec
                    .rule
                    .capacity
                    .is_some_and(|most| n_taken[expert_idx] > most)
                {
                    continue;
                }
                chosen_by[expert_idx].0.push(position_idx);
                let scale = expert_scales.as_ref().map_or(1.0, |all| all[expert_idx]);
                chosen_by[expert_idx].1.push(weight * scale);
            }
        }
        n_positions
    };
    let narrow = match &spec.latent {
        Some([into, _]) => {
            let mut narrow = O::Buffer::default();
            ops.linear(
                experts_from,
                &shelf.linear(into)?,
                &mut narrow,
                context.pace,
            )?; // [position, d_latent]
            Some(narrow)
        }
        None => None,
    };
    let around = match spec.norms.as_deref() {
        Some(norms) => Some((shelf.norm(&norms.into)?, shelf.norm(&norms.out)?)),
        None => None,
    };
    let read = narrow.as_ref().unwrap_or(experts_from);
    let mut behind_norm = O::Buffer::default();
    let read = match &around {
        Some((into, _)) => {
            ops.norm(read, into, &mut behind_norm)?;
            &behind_norm
        }
        None => read,
    };
    let width = ops.get(read)?.width;
    ops.put(&vec![0.0; n_positions * width], width, to)?;
    for (expert, (rows, factors)) in spec.experts.iter().zip(&chosen_by) {
        if rows.is_empty() {
            continue;
        }
        if context.pace.stops() {
            return Err(Error::Cancelled);
        }
        let weights = MlpWeights::read(shelf, expert)?;
        let mut gathered = std::mem::take(&mut s.gathered);
        let mut expert_out = std::mem::take(&mut s.expert_out);
        ops.gather_rows(read, rows, &mut gathered)?; // [chosen, d_model]
        if spec.rule.scales_inputs {
            let mut scaled = O::Buffer::default();
            ops.put(&vec![0.0; rows.len() * width], width, &mut scaled)?;
            let all: Vec<usize> = (0..rows.len()).collect();
            ops.add_rows(&mut scaled, &all, factors, &gathered)?;
            run_mlp(context, expert, &weights, &scaled, s, &mut expert_out)?;
            ops.add_rows(to, rows, &vec![1.0; rows.len()], &expert_out)?;
        } else {
            run_mlp(context, expert, &weights, &gathered, s, &mut expert_out)?;
            let out = around.as_ref().map(|(_, out)| out);
            normed_in_place(ops, out, &mut expert_out, &mut O::Buffer::default())?;
            ops.add_rows(to, rows, factors, &expert_out)?;
        }
        (s.gathered, s.expert_out) = (gathered, expert_out);
    }
    for (rows, factors) in &chosen_by[spec.experts.len()..] {
        ops.gather_rows(read, rows, &mut s.gathered)?;
        ops.add_rows(to, rows, factors, &s.gathered)?;
    }
    if let Some([_, out]) = &spec.latent {
        let mut wide = O::Buffer::default();
        ops.linear(to, &shelf.linear(out)?, &mut wide, context.pace)?; // [position, d_model]
        std::mem::swap(to, &mut wide);
    }
    let apart = spec.apart.as_deref();
    let norm_of = |norm: Option<&NormSource>, values: &mut O::Buffer| -> Result<()> {
        let norm = norm.map(|norm| shelf.norm(norm)).transpose()?;
        normed_in_place(ops, norm.as_ref(), values, &mut O::Buffer::default())
    };
    norm_of(apart.map(|apart| &apart.out), to)?;
    if let Some((mlp, gate)) = &spec.shared {
        let weights = MlpWeights::read(shelf, mlp)?;
        let mut shared = std::mem::take(&mut s.expert_out);
        run_mlp(context, mlp, &weights, from, s, &mut shared)?;
        norm_of(apart.map(|apart| &apart.shared_out), &mut shared)?;
        let rows: Vec<usize> = (0..n_positions).collect();
        let factors: Vec<f32> = match gate {
            Some(gate) => {
                ops.linear(from, &shelf.linear(gate)?, &mut s.routed, context.pace)?; // [position, 1]
                let outputs = ops.get(&s.routed)?;
                outputs
                    .values
                    .iter()
                    .map(|v| 1.0 / (1.0 + (-v).exp()))
                    .collect()
            }
            None => vec![1.0; n_positions],
        };
        ops.add_rows(to, &rows, &factors, &shared)?;
        s.expert_out = shared;
    }
    Ok(())
}

/// The experts that a stored table names for the token of every row. // [position, n_used]
fn chosen_by_token<O: Ops>(
    context: &BlockContext<'_, O>,
    table: &ExpertsByToken,
    (n_used, n_experts): (usize, usize),
) -> Result<Vec<usize>> {
    let (name, shape) = (&table.tensor, [table.d_vocab, n_used]);
    let numbers = context.tensors.expect_numbers(name, &shape)?;
    let tokens = context.tokens();
    let mut chosen = Vec::with_capacity(tokens.len() * n_used);
    for token in &*tokens {
        let first = *token as usize * n_used;
        let Some(of_token) = numbers.get(first..first + n_used) else {
            let n_rows = table.d_vocab;
            let problem = format!("row {token} of {n_rows} does not exist in {name}");
            return Err(Error::Prompt(problem));
        };
        for number in of_token {
            if !(0.0..n_experts as f64).contains(number) {
                let problem =
                    format!("expected numbers of experts below {n_experts}, found {number}");
                return Err(Error::tensor(context.tensors.file_of(name), name, problem));
            }
            chosen.push(*number as usize);
        }
    }
    Ok(chosen)
}
