//! Predicts several prompts together, so that the LM head's weights are read once for all of them.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::Unembedding;
use attnscope_spec::{HeadSpec, Model, StackSpec};

use super::pass::{Pass, Taking};

/// A prompt whose logits are still to be computed.
struct Waiting<'p, 'a, O: Ops> {
    pass: &'p mut Pass<'a, O>,
    hidden: O::Buffer,
    taking: Taking<'a>,
}

/// Finishes a stack that predicts, for all prompts. Each prompt gets bit-identical results to running alone.
///
/// # Errors
/// As for [`Pass::end`].
pub(super) fn predict_all<'a, O: Ops>(
    (ops, model): (&'a O, &'a Model),
    head: &'a HeadSpec,
    stack: &StackSpec,
    passes: &mut [Pass<'a, O>],
    residuals: &[O::Buffer],
    (predicts, pace): (bool, &'a dyn Pace),
) -> Result<()> {
    let (mut short, mut long) = (Vec::new(), Vec::new());
    for (pass, resid) in passes.iter_mut().zip(residuals) {
        let Some((hidden, taking)) = pass.begin_predictions(stack, resid, predicts)? else {
            continue;
        };
        // The LM head splits the vocabulary alike for all prompts with at most as many positions as it has inputs.
        let is_short = pass.tokens(stack)?.len() <= head.unembed.n_in;
        let waiting = Waiting {
            pass,
            hidden,
            taking,
        };
        if is_short {
            short.push(waiting);
        } else {
            long.push(waiting);
        }
    }
    for waiting in long {
        waiting
            .pass
            .predictions(stack, &waiting.hidden, waiting.taking)?;
    }
    let mut prompts = Vec::new();
    for Waiting {
        pass,
        hidden,
        taking,
    } in &mut short
    {
        let n_positions = pass.tokens(stack)?.len();
        let unembedding = Unembedding::new(ops, model, head, hidden, n_positions, pace)?;
        prompts.push((pass, taking, unembedding));
    }
    let ranges: Vec<_> = match prompts.first() {
        Some((.., unembedding)) => unembedding.ranges().collect(),
        None => Vec::new(),
    };
    let mut logits = O::Buffer::default();
    for range in ranges {
        let mut weights = None;
        for (pass, taking, unembedding) in &mut prompts {
            let weights = match &weights {
                Some(weights) => weights,
                None => &*weights.insert(unembedding.weights(range.clone())?),
            };
            let logits = unembedding.logits_of(weights, range.clone(), &mut logits)?;
            pass.take_logits(stack, taking, range.clone(), &logits)?;
        }
    }
    drop(prompts);
    for waiting in short {
        waiting.pass.end_predictions(stack, waiting.taking)?;
    }
    Ok(())
}
