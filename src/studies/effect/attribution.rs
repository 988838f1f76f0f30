//! Direct logit attribution: what every part of a model adds to one logit. The scale of each norm on the way is frozen at its
//! value in the run, so that the shares sum to the logit.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::vectors::dot;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input, Unembedding, linear_rows_on_host};
use attnscope_spec::{HeadSpec, LinearSource, Model, Place, Stack};

use super::attribution_tap::Kept;
use super::capture::{of_blocks, of_one_stream};
use super::judged::{Asked, head_of};
use super::shares::{Attribution, Share, ShareOf};
use super::walk::Walk;
use super::watched::run_watched;

/// Checks that a model's logits are a sum of shares, and returns its LM head.
///
/// # Errors
/// When they are not, or the model predicts no tokens.
pub fn check_linear(model: &Model) -> Result<&HeadSpec> {
    of_blocks(model)?;
    of_one_stream(model)?;
    let head = head_of(model)?;
    let transform = head.transform.as_ref();
    if transform.is_some_and(|transform| transform.activation.is_some()) {
        let problem = format!(
            "{}: its head has a layer of its own with an activation between the residual and the unembedding, so that logits are no sum of shares; ablation and lens work",
            model.spec.family
        );
        return Err(Error::Setting(problem));
    }
    Ok(head)
}

/// A token's row of the unembedding, times the head's scale, and the constant part of its logit.
fn unembedding_row(model: &Model, head: &HeadSpec, token: u32) -> Result<(Vec<f64>, f64)> {
    let tensors = &model.checkpoint.tensors;
    let unembed: &LinearSource = &head.unembed;
    let at = token as usize;
    if at >= unembed.n_out() {
        let problem = format!("token {token}: expected one of 0..{}", unembed.n_out());
        return Err(Error::Prompt(problem));
    }
    let linear = linear_rows_on_host(tensors, unembed, at..at + 1, &|| false)?;
    let scale = f64::from(head.scale);
    let row = linear.widened();
    let row = row.iter().map(|w| f64::from(*w) * scale);
    let mut constant = linear
        .bias
        .as_deref()
        .map_or(0.0, |bias| f64::from(bias[0]))
        * scale;
    // A bias added after a softcap is not a share of the logit before it.
    if let (Some(name), None) = (&head.extra_bias, head.softcap) {
        let bias = tensors.expect(name, &[unembed.n_out()])?;
        constant += f64::from(bias.widen_rows(at..at + 1)?[0]);
    }
    Ok((row.collect(), constant))
}

/// Splits one logit at one position into shares. `with_sources` selects the layers whose heads are split by source position.
///
/// # Errors
/// When the logits are not a sum of shares (the error says why), the model cannot run, or the pace stops it.
pub fn attribute<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    asked: Asked,
    with_sources: &dyn Fn(Stack, usize) -> bool,
    pace: &dyn Pace,
) -> Result<Attribution> {
    let head = check_linear(model)?;
    let n = input.sequence.len();
    let position_idx = asked.position_idx;
    if position_idx >= n {
        let problem = format!("position {position_idx}: expected one of 0..{n}");
        return Err(Error::Prompt(problem));
    }
    let n_keys = |grid: Stack| match (&input.source, grid) {
        (Some(source), Stack::Cross) => source.len(),
        _ => n,
    };
    // Heads with specs of their own do not use the values of the layer.
    let is_plain = |grid: Stack, layer_idx: usize| {
        let exceptions = model.spec.exceptions(grid, layer_idx);
        with_sources(grid, layer_idx) && exceptions.is_none_or(|all| all.is_empty())
    };
    let mut kept = Kept::plan(model, position_idx, &n_keys, &is_plain);
    run_watched(ops, model, input, &mut kept, pace)?;
    let main = model.spec.main_stack();
    let last_layer = main.n_layers().saturating_sub(1);
    let (mut weights, mut constant) = unembedding_row(model, head, asked.token)?;
    if let Some(against) = asked.against {
        let (other, its_constant) = unembedding_row(model, head, against)?;
        weights.iter_mut().zip(&other).for_each(|(w, o)| *w -= o);
        constant -= its_constant;
    }
    let mut walk = Walk {
        model,
        kept: &kept,
        weights,
        constant,
        shares: Vec::new(),
    };
    let last = walk.row(main.stack, last_layer, Hook::ResidPost)?;
    let norm = walk.frozen(&main.final_norm, &last)?;
    if let Some(transform) = &head.transform {
        let hidden = norm
            .as_ref()
            .map_or_else(|| last.clone(), |norm| norm.apply(&last));
        walk.transform(transform, &hidden)?;
    }
    walk.back_over(&norm);
    let mut path = vec![dot(&walk.weights, &last) + walk.constant];
    for (layer_idx, block) in main.blocks().iter().enumerate().rev() {
        if pace.stops() {
            return Err(Error::Cancelled);
        }
        walk.block(main.stack, layer_idx, block)?;
        let input = walk.row(main.stack, layer_idx, Hook::ResidPre)?;
        path.push(dot(&walk.weights, &input));
    }
    path.reverse();
    walk.embedding(ops, main, input, position_idx)?;
    walk.shares.reverse();
    let mut shares = walk.shares;
    shares.push(Share {
        of: ShareOf::Biases,
        place: Place::MODEL,
        value: walk.constant,
        by_key: Vec::new(),
    });
    let last = kept.rows.remove(&(main.stack, last_layer, Hook::ResidPost));
    let logit = uncapped(ops, model, head, &last.unwrap_or_default(), asked, pace)?;
    Ok(Attribution {
        asked,
        logit,
        softcap: head.softcap.map(f64::from),
        shares,
        path,
    })
}

/// Logit of the forward pass itself, or a difference of two, before any softcap.
fn uncapped<O: Ops>(
    ops: &O,
    model: &Model,
    head: &HeadSpec,
    last: &[f32],
    asked: Asked,
    pace: &dyn Pace,
) -> Result<f64> {
    let mut head = head.clone();
    if head.softcap.take().is_some() {
        head.extra_bias = None;
    }
    // Values in rows besides the residual do not affect predictions.
    let mut row = last.to_vec();
    row.resize(model.spec.d_input(model.spec.main_stack(), 0), 0.0);
    let hidden = super::hidden::hidden_of(ops, model, &[&row], &[0])?;
    let mut unembedding = Unembedding::new(ops, model, &head, &hidden, 1, pace)?;
    let mut logit = |token: u32| -> Result<f64> {
        let at = token as usize;
        Ok(f64::from(unembedding.logits(at..at + 1)?[0]))
    };
    let of = logit(asked.token)?;
    Ok(match asked.against {
        Some(against) => of - logit(against)?,
        None => of,
    })
}
