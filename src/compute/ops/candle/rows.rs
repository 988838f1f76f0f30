//! Turns scores into a pattern and one summary per row on a candle device; only the summaries are copied to the host.

use candle_core::{D, Result, Tensor};
use rayon::prelude::*;

use super::buffer::host;
use super::definition;
use super::figures::{COUNT, Figures};
use super::finished::Finished;
use super::group::Group;
use super::maps::Copies;
use super::scores::{Block, products, scaled, scores};
use crate::attention::{Bias, NoVisible, RowSummary, SoftmaxAxis, Visibility};
use crate::kernels::simd::LEAST_SHARED;

/// Runs one row block.
pub(super) fn finish(
    group: &Group<'_>,
    block: &Block,
    columns: Option<&Tensor>,
    copies: Option<&Copies>,
) -> Result<Finished> {
    let products = products(group, block)?; // [head, row, key]
    if block.has_unseeing() && group.run.spec.no_visible == NoVisible::Nan {
        return definition::finish(group, block, &products, columns);
    }
    let (scores, pattern, figures) = figures(group, block, &products, columns, copies)?;
    let figures = host(&figures)?; // [head · row, figure]
    let of_rows = figures.par_chunks_exact(COUNT).enumerate();
    let rows: Option<Vec<RowSummary>> = of_rows
        .map(|(nth, of_row)| {
            let figures = Figures::of(of_row.iter().copied())?;
            summary(group, block, nth, &figures)
        })
        .collect();
    let Some(rows) = rows else {
        return definition::finish(group, block, &products, columns);
    };
    Ok(Finished {
        scores,
        pattern,
        rows,
        on_host: None,
    })
}

/// Statistics of the visible values of each row, relative to the largest so that a large mean does not cost digits. // [head,
/// row, 1]
struct Moments {
    /// −inf where not visible. // [head, row, key]
    masked: Tensor,
    /// Value − origin, 0 where not visible. // [head, row, key]
    shifted: Tensor,
    /// The largest value; the lowest finite number if nothing is visible.
    origin: Tensor,
    min: Tensor,
    /// Mean of the shifted values.
    mean: Tensor,
    /// Population variance.
    var: Tensor,
}

impl Moments {
    fn of(values: &Tensor, block: &Block) -> Result<Self> {
        let n = block.of_rows(
            |row_idx| block.n_visible[row_idx].max(1) as f32,
            values.device(),
        )?;
        let masked = block.where_seen(values, f32::NEG_INFINITY)?;
        let origin = masked.max_keepdim(D::Minus1)?.maximum(f32::MIN)?;
        let shifted = block.where_seen(&values.broadcast_sub(&origin)?, 0.0)?;
        let mean = shifted.sum_keepdim(D::Minus1)?.broadcast_div(&n)?;
        let centred = block.where_seen(&shifted.broadcast_sub(&mean)?, 0.0)?;
        let var = centred.sqr()?.sum_keepdim(D::Minus1)?.broadcast_div(&n)?;
        let min = block.where_seen(values, f32::INFINITY)?;
        Ok(Self {
            masked,
            shifted,
            origin,
            min: min.min_keepdim(D::Minus1)?,
            mean,
            var,
        })
    }

    fn figures(&self) -> [Tensor; 4] {
        [&self.origin, &self.min, &self.mean, &self.var].map(Tensor::clone)
    }
}

/// Masked scores if there is a sink for them, the pattern, and the statistics of every row. // [head, row, key] twice,
/// [head · row, figure]
fn figures(
    group: &Group<'_>,
    block: &Block,
    products: &Tensor,
    columns: Option<&Tensor>,
    copies: Option<&Copies>,
) -> Result<(Option<Tensor>, Tensor, Tensor)> {
    #[cfg(feature = "cuda")]
    if let Some(done) = super::fused::rows(group, block, products, columns, copies)? {
        return Ok((done.scores, done.pattern, done.figures));
    }
    let spec = group.run.spec;
    let cosines = products.broadcast_mul(&group.inverse_k_norms)?;
    let cosine_sum = block.where_seen(&cosines, 0.0)?.sum_keepdim(D::Minus1)?;
    drop(cosines);
    let scaled = scaled(group, block, products)?;
    let is_raw = spec.softcap.is_none() && spec.bias == Bias::None;
    let raw = if is_raw {
        None
    } else {
        Some(Moments::of(&scaled, block)?.figures())
    };
    let scores = Moments::of(&scores(group, block, &scaled)?, block)?;
    drop(scaled);
    let raw = raw.unwrap_or_else(|| scores.figures());

    // Scores → pattern, using s − max so that no digits are lost when |s| is large.
    let max = match &group.sinks {
        Some(sinks) => scores.origin.broadcast_maximum(sinks)?,
        None => scores.origin.clone(),
    };
    let weights = scores.masked.broadcast_sub(&max)?.exp()?; // [head, row, key]
    let mut denominator = weights.sum_keepdim(D::Minus1)?; // [head, row, 1]
    if let Some(sinks) = &group.sinks {
        let of_sink = sinks.broadcast_sub(&max)?.exp()?;
        denominator = denominator.add(&of_sink)?;
    }
    let (pattern, log_p) = match spec.softmax_axis {
        SoftmaxAxis::Keys => {
            // Avoids a division by 0 in a row without visible keys.
            let is_unseeing = |row_idx: usize| f32::from(u8::from(block.n_visible[row_idx] == 0));
            let one = block.of_rows(is_unseeing, weights.device())?;
            let pattern = weights.broadcast_div(&denominator.broadcast_add(&one)?)?;
            // log p lacks a term that all keys of a row share; it is added in `summary`.
            (pattern, scores.shifted)
        }
        SoftmaxAxis::Queries | SoftmaxAxis::Heads => {
            let Some(columns) = columns else {
                candle_core::bail!(
                    "a softmax over {} without its first pass",
                    spec.softmax_axis
                );
            };
            let log_p = scores.masked.broadcast_sub(&columns.maximum(f32::MIN)?)?;
            (log_p.exp()?, block.where_seen(&log_p, 0.0)?)
        }
    };
    drop(weights);
    let log_p_sum = pattern.mul(&log_p)?.sum_keepdim(D::Minus1)?;
    drop(log_p);
    let pattern = filled(group, block, pattern)?;

    // Pattern → sums.
    let sum = |values: &Tensor| values.sum_keepdim(D::Minus1);
    let squares = pattern.sqr()?;
    let distances = block.key_idx.broadcast_sub(&block.query_idx)?.abs()?;
    let distance = pattern.broadcast_mul(&distances.unsqueeze(0)?)?;
    let is_later = block.key_idx.broadcast_gt(&block.query_idx)?;
    let later = pattern.broadcast_mul(&is_later.to_dtype(pattern.dtype())?.unsqueeze(0)?)?;
    let (top1, top2, argmax) = top_two(block, &pattern)?;
    let [first_mass, diagonal_mass, previous_mass] =
        chosen_keys(group.run.visibility, block, &pattern)?;
    let [duplicate_mass, induction_mass] = match copies {
        Some(copies) => copies.masses(block, &pattern)?,
        None => [first_mass.zeros_like()?, first_mass.zeros_like()?],
    };
    let [carried, carried_logs] = match &group.value_norms {
        Some(norms) => carried(&pattern, norms)?,
        None => [first_mass.zeros_like()?, first_mass.zeros_like()?],
    };
    let [raw_max, raw_min, raw_mean, raw_var] = raw;
    let figures = Figures {
        score_max: scores.origin,
        score_min: scores.min,
        score_mean: scores.mean,
        score_var: scores.var,
        raw_max,
        raw_min,
        raw_mean,
        raw_var,
        max,
        denominator,
        log_p_sum,
        mass: sum(&pattern)?,
        sum_p2: sum(&squares)?,
        sum_p3: sum(&squares.mul(&pattern)?)?,
        distance: sum(&distance)?,
        top1,
        top2,
        argmax,
        first_mass,
        diagonal_mass,
        previous_mass,
        duplicate_mass,
        induction_mass,
        later_mass: sum(&later)?,
        cosine_sum,
        carried,
        carried_logs,
    };
    let figures = Tensor::cat(&figures.into_vec(), D::Minus1)?;
    Ok((Some(scores.masked), pattern, figures))
}

/// Σ c and Σ c log c of c = p·‖v W_O‖, with norms divided by the head's largest. // [head, row, 1] each
fn carried(pattern: &Tensor, value_norms: &Tensor) -> Result<[Tensor; 2]> {
    let carries = pattern.broadcast_mul(value_norms)?;
    let logs = carries.maximum(f32::MIN_POSITIVE)?.log()?;
    let with_logs = carries.mul(&logs)?.sum_keepdim(D::Minus1)?;
    Ok([carries.sum_keepdim(D::Minus1)?, with_logs])
}

/// Fills rows without visible keys as the spec says.
fn filled(group: &Group<'_>, block: &Block, pattern: Tensor) -> Result<Tensor> {
    if !block.has_unseeing() || group.run.spec.no_visible != NoVisible::Uniform {
        return Ok(pattern);
    }
    let share = 1.0 / block.n_keys as f32;
    let of_row = |row_idx: usize| match block.n_visible[row_idx] {
        0 => share,
        _ => 0.0,
    };
    pattern.broadcast_add(&block.of_rows(of_row, pattern.device())?)
}

/// The largest and second largest probability of each row, and the first key with the largest. // [head, row, 1]
fn top_two(block: &Block, pattern: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let (shape, device) = (pattern.shape(), pattern.device());
    let everywhere = |value: f32| Tensor::full(value, (1, 1, 1), device)?.broadcast_as(shape);
    let keys = block.key_idx.unsqueeze(0)?.broadcast_as(shape)?;
    let top1 = pattern.max_keepdim(D::Minus1)?;
    // Not the device's argmax, which may return any of several equal keys.
    let is_top = pattern.broadcast_eq(&top1)?;
    let argmax = is_top
        .where_cond(&keys, &everywhere(block.n_keys as f32)?)?
        .min_keepdim(D::Minus1)?;
    let is_argmax = keys.broadcast_eq(&argmax)?;
    let others = is_argmax.where_cond(&everywhere(0.0)?, pattern)?;
    Ok((top1, others.max_keepdim(D::Minus1)?, argmax))
}

/// Probabilities of the first token, the query's own token, and the one before it. // [head, row, 1] each
fn chosen_keys(visibility: &Visibility, block: &Block, pattern: &Tensor) -> Result<[Tensor; 3]> {
    let n_rows = block.n_rows();
    let keys = block.chosen_keys(visibility);
    let keys = Tensor::from_vec(keys, (1, n_rows, 3), pattern.device())?;
    let keys = keys.broadcast_as((pattern.dim(0)?, n_rows, 3))?;
    let chosen = pattern.gather(&keys.contiguous()?, D::Minus1)?;
    let nth = |idx| chosen.narrow(D::Minus1, idx, 1)?.contiguous();
    Ok([nth(0)?, nth(1)?, nth(2)?])
}

/// Assembles the summary of a row; `None` if a statistic is not finite, so that the reference path must be used.
fn summary(group: &Group<'_>, block: &Block, nth: usize, f: &Figures<f32>) -> Option<RowSummary> {
    let run = group.run;
    let (idx, row_idx) = (nth / block.n_rows(), nth % block.n_rows());
    let query_idx = block.queries.start + row_idx;
    let q_norm = group.q_norms[idx * run.visibility.n_queries + query_idx];
    let mut row = RowSummary {
        q_norm,
        mass: f.mass,
        ..RowSummary::empty(run.visibility.is_real_query(query_idx))
    };
    let repeats = run.repeats;
    if repeats.is_some_and(|repeats| repeats.before(query_idx).next().is_some()) {
        (row.duplicate_mass, row.induction_mass) = (f.duplicate_mass, f.induction_mass);
    }
    let n_visible = block.n_visible[row_idx];
    if n_visible == 0 {
        row.mass = match run.spec.no_visible {
            NoVisible::Zero => 0.0,
            NoVisible::Uniform => 1.0,
            NoVisible::Nan => f32::NAN,
        };
        return Some(row);
    }
    let must_be_finite = [
        f.score_max,
        f.score_mean,
        f.raw_max,
        f.raw_mean,
        f.mass,
        f.log_p_sum,
    ];
    if must_be_finite.iter().any(|figure| !figure.is_finite()) {
        return None;
    }
    let n = n_visible as f64;
    let mean = f64::from(f.score_max) + f64::from(f.score_mean);
    let log_sum_exp = f64::from(f.max) + f64::from(f.denominator).ln();
    let entropy = match run.spec.softmax_axis {
        // log p = (s − largest) − (log Σ exp s − largest); `log_p_sum` contains only the first part.
        SoftmaxAxis::Keys => (log_sum_exp - f64::from(f.score_max)) * f64::from(f.mass),
        SoftmaxAxis::Queries | SoftmaxAxis::Heads => 0.0,
    } - f64::from(f.log_p_sum);
    row.n_visible = n_visible as u32;
    row.argmax = f.argmax as u32;
    row.score_mean = mean as f32;
    row.score_var = f.score_var;
    (row.score_min, row.score_max) = (f.score_min, f.score_max);
    row.score_norm = (n * (f64::from(f.score_var) + mean * mean)).sqrt() as f32;
    row.raw_mean = (f64::from(f.raw_max) + f64::from(f.raw_mean)) as f32;
    row.raw_var = f.raw_var;
    (row.raw_min, row.raw_max) = (f.raw_min, f.raw_max);
    row.log_sum_exp = log_sum_exp as f32;
    row.entropy = entropy as f32;
    (row.top1, row.top2) = (f.top1, f.top2);
    (row.sum_p2, row.sum_p3) = (f.sum_p2, f.sum_p3);
    if run.visibility.first_real_key().is_some() {
        row.first_mass = f.first_mass;
    }
    if query_idx < block.n_keys {
        row.diagonal_mass = f.diagonal_mass;
    }
    if run.visibility.previous_real_key(query_idx).is_some() {
        row.previous_mass = f.previous_mass;
    }
    row.distance = f.distance;
    row.later_mass = f.later_mass;
    if group.value_norms.is_some() {
        let (sum, with_logs) = (f64::from(f.carried), f64::from(f.carried_logs));
        row.contribution = f.carried * group.value_units[idx];
        let entropy = sum.ln() - with_logs / sum;
        row.contribution_entropy = if sum < LEAST_SHARED || entropy < 0.0 {
            0.0
        } else {
            entropy as f32
        };
    }
    row.k_norm_sq_sum = group.k_norm_sq_sum(idx, query_idx);
    row.cosine = (f64::from(f.cosine_sum) / (f64::from(q_norm) * n)) as f32;
    Some(row)
}
