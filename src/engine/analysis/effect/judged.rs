//! What changed copies of a run predict otherwise: loss, divergence and logits, from their last residuals.

use super::capture::Base;
use super::logit_rows::{Row, Wanted, rows_of};
use crate::analysis::pass::targets;
use crate::error::{Error, Result};
use crate::model::{HeadSpec, Input, Model, Unembedding, final_hidden};
use crate::ops::Ops;
use crate::pace::Pace;

/// A token whose logit is asked for at one position, or by how much it lies above another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    pub position_idx: usize,
    pub token: u32,
    pub against: Option<u32>,
}

/// How one changed copy differs from the run.
#[derive(Debug, Clone, Default)]
pub struct Moved {
    /// Change of −log p of the next token, in nats, at every position that has one.
    pub loss: Vec<f64>,
    /// KL(run ‖ copy) of the predictions, in nats, at every real position.
    pub kl: Vec<f64>,
    /// Change of the logit that was asked for.
    pub logit: Option<f64>,
}

/// The head of a model that predicts tokens.
///
/// # Errors
/// When it has none, or one that gives labels.
pub fn head_of(model: &Model) -> Result<&HeadSpec> {
    let family = model.spec.family;
    let Some(head) = &model.spec.head else {
        let problem = format!(
            "{family}: the checkpoint has no head, so that nothing is predicted whose change could be told"
        );
        return Err(Error::Setting(problem));
    };
    if head.labels.is_some() {
        let problem = format!("{family}: its head gives labels; expected one that predicts tokens");
        return Err(Error::Setting(problem));
    }
    Ok(head)
}

/// Hidden states behind the final norm, chosen rows of some residuals. // [row, d_model]
pub fn hidden_of<O: Ops>(
    ops: &O,
    model: &Model,
    residuals: &[&[f32]],
    rows: &[usize],
) -> Result<O::Buffer> {
    let d_model = model.spec.d_model;
    let chosen = residuals.iter().flat_map(|values| {
        rows.iter()
            .flat_map(|row| values[row * d_model..(row + 1) * d_model].iter().copied())
    });
    let chosen: Vec<f32> = chosen.collect();
    let (mut resid, mut hidden) = (O::Buffer::default(), O::Buffer::default());
    ops.put(&chosen, d_model, &mut resid)?;
    final_hidden(ops, model, model.spec.main_stack(), &resid, &mut hidden)?;
    Ok(hidden)
}

/// The logit that is asked for, or the difference of two, of every residual.
///
/// # Errors
/// When the model predicts no tokens, a tensor is not as the spec says, or the pace stops it.
pub fn asked_logits<O: Ops>(
    ops: &O,
    model: &Model,
    residuals: &[&[f32]],
    asked: Asked,
    pace: &dyn Pace,
) -> Result<Vec<f64>> {
    let head = head_of(model)?;
    let hidden = hidden_of(ops, model, residuals, &[asked.position_idx])?;
    let mut unembedding = Unembedding::new(ops, model, head, &hidden, residuals.len(), pace)?;
    let mut of_token = |token: u32| -> Result<Vec<f32>> {
        let at = token as usize;
        Ok(unembedding.logits(at..at + 1)?.into_owned())
    };
    let of = of_token(asked.token)?;
    let against = match asked.against {
        Some(token) => of_token(token)?,
        None => vec![0.0; of.len()],
    };
    let pairs = of.iter().zip(&against);
    Ok(pairs.map(|(a, b)| f64::from(*a) - f64::from(*b)).collect())
}

/// Compares the predictions of changed copies with the run's. // tall: [copy, position, d_model]
///
/// # Errors
/// When the model predicts no tokens, a tensor is not as the spec says, or the pace stops it.
pub fn moved<O: Ops>(
    ops: &O,
    model: &Model,
    (input, base): (&Input, &Base),
    tall: &[f32],
    asked: Option<Asked>,
    pace: &dyn Pace,
) -> Result<Vec<Moved>> {
    let head = head_of(model)?;
    let sequence = &input.sequence;
    let n_values = (sequence.len() * model.spec.d_model).max(1);
    let residuals: Vec<&[f32]> = std::iter::once(base.last.values.as_slice())
        .chain(tall.chunks(n_values))
        .collect();
    let targets = targets(&model.spec, sequence);
    let real: Vec<usize> = (0..sequence.len())
        .filter(|idx| sequence.is_real(*idx))
        .collect();
    // A pair counts when both its tokens are real.
    let target = |idx: usize| {
        let next = idx + 1 < sequence.len() && sequence.is_real(idx + 1);
        targets[idx].filter(|_| next)
    };
    let wanted = Wanted {
        targets: real.iter().map(|idx| target(*idx)).collect(),
        n_top: 0,
        ranks: false,
    };
    let rows = rows_of(ops, model, head, (&residuals, &real), &wanted, pace)?;
    let (of_base, copies) = rows.split_at(real.len());
    let logits = match asked {
        Some(asked) => Some(asked_logits(ops, model, &residuals, asked, pace)?),
        None => None,
    };
    let moved = copies.chunks(real.len().max(1)).enumerate();
    let moved = moved.map(|(copy_idx, rows)| {
        let pairs = || rows.iter().zip(of_base);
        let loss = |row: &Row| row.log_sum_exp() - f64::from(row.target);
        let has_target = |idx: &usize| target(*idx).is_some();
        Moved {
            loss: pairs()
                .zip(&real)
                .filter(|(_, idx)| has_target(idx))
                .map(|((row, base), _)| loss(row) - loss(base))
                .collect(),
            kl: pairs()
                .map(|(row, base)| row.divergence_from(base))
                .collect(),
            logit: logits
                .as_ref()
                .map(|logits| logits[copy_idx + 1] - logits[0]),
        }
    });
    Ok(moved.collect())
}
