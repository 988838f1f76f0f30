//! Shuffles tokens: does a model know their order?

use attnscope_checks::{OrderProbe, Probed, Reordered};
use attnscope_compute::attention::Bias;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_spec::{BlockSpec, Model, Place, Stack};

use super::{PADDING_TOLERANCE, Prepared, Ready, is_large, other_token, run_alone};
use crate::lockstep::{Copy, Moved, Span};
use crate::observer::Progress;

/// Most tokens that are shuffled.
const MOST_SHUFFLED: usize = 64;

/// Most tokens that are shuffled in large models.
const MOST_SHUFFLED_OF_LARGE: usize = 32;

/// Reordered tokens change the order of sums.
const ORDER_TOLERANCE: f64 = 1e-5;

/// Shuffles all tokens before the last one in the stack that predicts, and measures whether the last position moves.
///
/// # Errors
/// When the model cannot be run, or the run is stopped.
pub fn probe_order<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    progress: impl FnMut(Progress),
    pace: &dyn Pace,
) -> Result<Probed<OrderProbe>> {
    run_alone(ops, model, order(model, input), progress, pace)
}

/// Prepares the copies that [`probe_order`] runs.
pub(super) fn order<'m>(model: &'m Model, input: &Input) -> Prepared<'m, OrderProbe> {
    let stack = model.spec.main_stack();
    let most_shuffled = if is_large(model) {
        MOST_SHUFFLED_OF_LARGE
    } else {
        MOST_SHUFFLED
    };
    if stack.recurrence().is_some() {
        return Err("a recurrent network reads its tokens one after the other".to_owned());
    }
    let of_sound = stack.embed.sound.as_ref();
    if of_sound.is_some_and(|stem| stem.end.is_some() || stem.places.is_some()) {
        // What would be shuffled are its frames or patches, which carry their positions with them.
        return Err(
            "positions are part of what the stem makes of the sound, before there are rows to shuffle"
                .to_owned(),
        );
    }
    if stack.embed.joined.is_some() {
        return Err("learned rows stand before the text, which are not shuffled".to_owned());
    }
    if stack.reads_grid() {
        return Err(
            "patches are merged or convolved by their places, or keys are other rows than queries, so that order is part of the model"
                .to_owned(),
        );
    }
    if input.sequence.real.is_some() {
        return Err("the prompt has padding of its own: give one without".to_owned());
    }
    let input = Input {
        sequence: input.sequence.first(most_shuffled),
        ..input.clone()
    };
    let tokens = &input.sequence.tokens;
    let n = tokens.len();
    let before = &tokens[..n.saturating_sub(1)];
    if before.iter().all(|token| Some(token) == before.first()) {
        return Err(
            "all tokens before the last are identical, so reordering changes nothing; use a longer prompt".to_owned(),
        );
    }
    let with = |changed: Vec<u32>| {
        let mut copy = input.clone();
        copy.sequence.tokens[..n - 1].copy_from_slice(&changed);
        Copy {
            input: copy,
            source: None,
            main: Some(Span { offset: 0, n }),
            tolerance: 0.0,
        }
    };
    let mut reversed = before.to_vec();
    reversed.reverse();
    let mut turned = before.to_vec();
    turned.rotate_left(1);
    let others = (0..n - 1).map(|idx| other_token(tokens, idx, model.spec.d_vocab));
    let copies = [with(reversed), with(turned), with(others.collect())];
    let conclude = move |moved: &[Moved]| {
        let [reversed, turned, others] = moved else {
            return Probed::Not("no copy was run".to_owned());
        };
        let of = |layer_idx: usize| {
            let at =
                |moved: &Moved| f64::from(moved.of_last.get(layer_idx).copied().unwrap_or(0.0));
            let place = match model.spec.stacks.len() {
                1 => Stack::Only,
                _ => Stack::Decoder,
            };
            Reordered {
                name: None,
                place: Place::layer(place, layer_idx),
                by_order: at(reversed).max(at(turned)),
                by_content: at(others),
            }
        };
        let n_layers = others.of_last.len();
        // First layer that mixes tokens.
        let first = (0..n_layers).find(|layer_idx| of(*layer_idx).by_content > PADDING_TOLERANCE);
        let (Some(first), Some(last)) = (first, n_layers.checked_sub(1)) else {
            return Probed::Not("no layer mixes tokens".to_owned());
        };
        let adds_none = stack.embed.positions.is_none();
        let declares_none = adds_none && stack.blocks().iter().take(first + 1).all(is_placeless);
        let are_given = stack
            .embed
            .sound
            .as_ref()
            .is_some_and(|stem| stem.rule.is_rows);
        if declares_none && are_given {
            return Probed::Not(
                "rows that are given may hold positions, which shuffling carries along".to_owned(),
            );
        }
        Probed::Ran(OrderProbe {
            tolerance: ORDER_TOLERANCE,
            resolution: 0.0,
            first: of(first),
            output: of(last),
            declares_none,
        })
    };
    Ok(Ready {
        prompt: input,
        copies: copies.into(),
        conclude: Box::new(conclude),
    })
}

/// Whether a block's attention to its own tokens has no positions.
fn is_placeless(block: &BlockSpec) -> bool {
    block.own().is_none_or(|own| {
        let attention = &own.attention;
        let is_turned = attention.rope.is_some() || own.projections.places.is_some();
        !is_turned && matches!(attention.bias, Bias::None)
    })
}
