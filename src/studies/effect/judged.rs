//! Compares the predictions of changed copies of a run, from their last residuals: loss, divergence and logits.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Input, Sequence, Unembedding};
use attnscope_run::targets;
use attnscope_spec::{HeadSpec, Model};

use super::capture::Base;
use super::hidden::hidden_of;
use super::logit_rows::{Reference, Row, Wanted, rows_of};

/// A token whose logit is requested at one position, optionally relative to another token's logit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    pub position_idx: usize,
    pub token: u32,
    pub against: Option<u32>,
}

/// Differences of one changed copy from the run.
#[derive(Debug, Clone, Default)]
pub struct Moved {
    /// Change of −log p of the next token, in nats, at every position that has one.
    pub loss: Vec<f64>,
    /// KL(run ‖ copy) of the predictions, in nats, at every real position.
    pub kl: Vec<f64>,
    /// Change of the requested logit.
    pub logit: Option<f64>,
}

/// The LM head of a model that predicts tokens.
///
/// # Errors
/// When it has none, or a classification head.
pub fn head_of(model: &Model) -> Result<&HeadSpec> {
    let family = model.spec.family;
    let Some(head) = &model.spec.head else {
        let problem = format!(
            "{family}: no language-model head: ablation, attribution and the lens need predictions"
        );
        return Err(Error::Setting(problem));
    };
    if head.labels.is_some() {
        let problem = format!("{family}: its head gives labels; expected one that predicts tokens");
        return Err(Error::Setting(problem));
    }
    Ok(head)
}

/// Requested logit, or difference of two, for every residual.
///
/// # Errors
/// When the model predicts no tokens, a tensor contradicts the spec, or the pace stops it.
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

/// Rows of logits to read at a time if copies need not be read together with the run. Fewer rows allow wider chunks of the
/// vocabulary, which multiply faster.
const ROWS_AT_ONCE: usize = 2048;

/// Predictions of the unchanged run, with which changed copies are compared.
pub struct Judge<'a> {
    head: &'a HeadSpec,
    base: &'a Base,
    /// Positions that are not padding.
    real: Vec<usize>,
    wanted: Wanted,
    reference: Option<Reference>,
    asked: Option<(Asked, f64)>,
}

impl<'a> Judge<'a> {
    /// Computes the predictions of the run.
    ///
    /// # Errors
    /// When the model predicts no tokens, a tensor contradicts the spec, or the pace stops it.
    pub fn of<O: Ops>(
        ops: &O,
        model: &'a Model,
        (input, base): (&Input, &'a Base),
        asked: Option<Asked>,
        pace: &dyn Pace,
    ) -> Result<Self> {
        let head = head_of(model)?;
        let (real, wanted) = wanted_of(&input.sequence, &targets(&model.spec, &input.sequence));
        let last = base.last.values.as_slice();
        let reference = Reference::read(ops, model, head, (last, &real), &wanted, pace)?;
        let asked = match asked {
            Some(asked) => Some((asked, asked_logits(ops, model, &[last], asked, pace)?[0])),
            None => None,
        };
        Ok(Self {
            head,
            base,
            real,
            wanted,
            reference,
            asked,
        })
    }

    /// Whether the run's own predictions are kept, so that copies may be predicted by another head.
    pub fn keeps_reference(&self) -> bool {
        self.reference.is_some()
    }

    /// Compares the predictions of changed copies with those of the run. `model` predicts the copies; without a kept reference it must
    /// be that of the run. // tall: [copy, position, d_model]
    ///
    /// # Errors
    /// When a tensor contradicts the spec, or the pace stops it.
    pub fn moved<O: Ops>(
        &self,
        ops: &O,
        model: &Model,
        tall: &[f32],
        pace: &dyn Pace,
    ) -> Result<Vec<Moved>> {
        let n_values = self.base.last.values.len().max(1);
        let copies: Vec<&[f32]> = tall.chunks(n_values).collect();
        let at_once = match &self.reference {
            Some(_) => (ROWS_AT_ONCE / self.real.len().max(1)).max(1),
            None => copies.len().max(1),
        };
        let mut all = Vec::with_capacity(copies.len());
        for some in copies.chunks(at_once) {
            let before = all.len();
            match &self.reference {
                Some(reference) => {
                    let head = head_of(model)?;
                    let compared = (&self.wanted, Some(reference));
                    let of = (some, self.real.as_slice());
                    let rows = rows_of(ops, model, head, of, compared, pace)?;
                    let of_copies = rows.chunks(self.real.len().max(1));
                    all.extend(of_copies.map(|rows| moved_of(&self.wanted, &reference.rows, rows)));
                }
                None => {
                    let with_base: Vec<&[f32]> = std::iter::once(self.base.last.values.as_slice())
                        .chain(some.iter().copied())
                        .collect();
                    let of = (with_base.as_slice(), self.real.as_slice());
                    let rows = rows_of(ops, model, self.head, of, (&self.wanted, None), pace)?;
                    let (base, rows) = rows.split_at(self.real.len());
                    let of_copies = rows.chunks(self.real.len().max(1));
                    all.extend(of_copies.map(|rows| moved_of(&self.wanted, base, rows)));
                }
            }
            if let Some((asked, base)) = self.asked {
                let logits = asked_logits(ops, model, some, asked, pace)?;
                for (moved, logit) in all[before..].iter_mut().zip(logits) {
                    moved.logit = Some(logit - base);
                }
            }
        }
        Ok(all)
    }
}

/// Returns the real positions, and what is wanted of their logits. A pair counts if both its tokens are real.
/// // targets: [position]
pub(super) fn wanted_of(sequence: &Sequence, targets: &[Option<u32>]) -> (Vec<usize>, Wanted) {
    let real: Vec<usize> = (0..sequence.len())
        .filter(|idx| sequence.is_real(*idx))
        .collect();
    let target = |idx: &usize| {
        let next = idx + 1 < sequence.len() && sequence.is_real(idx + 1);
        targets[*idx].filter(|_| next)
    };
    let wanted = Wanted {
        targets: real.iter().map(target).collect(),
        n_top: 0,
        ranks: false,
    };
    (real, wanted)
}

/// Compares one copy with the run, row by row over real positions.
pub(super) fn moved_of(wanted: &Wanted, base: &[Row], rows: &[Row]) -> Moved {
    let loss = |row: &Row| row.log_sum_exp() - f64::from(row.target);
    let pairs = || rows.iter().zip(base);
    Moved {
        loss: pairs()
            .zip(&wanted.targets)
            .filter(|(_, target)| target.is_some())
            .map(|((row, base), _)| loss(row) - loss(base))
            .collect(),
        kl: pairs()
            .map(|(row, base)| row.divergence_from(base))
            .collect(),
        logit: None,
    }
}
