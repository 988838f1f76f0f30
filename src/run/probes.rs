//! Probes the model with changed prompts: does anything before a changed token move, and do padding and token order matter?

mod order;

use attnscope_checks::{
    FutureProbe, Influence, InvarianceProbe, Movement, OrderProbe, Probed, Worst,
};
use attnscope_compute::attention::{Globals, TopKeys};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Input, Sequence};
use attnscope_prompt::PositionRule;
use attnscope_spec::{BlockSpec, FeedForward, Model, StackSpec, TokenMixer};

use self::order::order;
pub use self::order::probe_order;
use super::lockstep::{Copy, Group, Moved, Span, lockstep};
use super::observer::Progress;

/// Most positions of a prompt to probe; more would cost more and show nothing new.
const MOST_POSITIONS: usize = 256;

/// Most positions to probe in large models.
const MOST_OF_LARGE: usize = 64;

/// Multiplications per token from which a model counts as large.
const LARGE: usize = 20_000_000;

/// Number of copies in which every token from some position on is changed.
const N_CUTS: usize = 4;

/// Number of copies in which one token alone is changed.
const N_CHANGED: usize = 16;
const N_CUTS_OF_LARGE: usize = 2;
const N_CHANGED_OF_LARGE: usize = 4;

/// Other tokens change the shapes of the experts' products: rounding, relative to the largest value.
const EXPERTS_TOLERANCE: f64 = 1e-5;

/// Padding changes the shapes of all products and how rows are split into blocks.
const PADDING_TOLERANCE: f64 = 1e-4;

const N_PADS: usize = 3;
const NONFINITE: &str = "a value is NaN or infinite, which spreads to rows that do not see it: nan-or-inf tells where it begins";

fn is_large(model: &Model) -> bool {
    model.spec.n_multiplications() >= LARGE
}

fn most_positions(model: &Model) -> usize {
    if is_large(model) {
        MOST_OF_LARGE
    } else {
        MOST_POSITIONS
    }
}

fn has_experts(model: &Model) -> bool {
    let mut blocks = model.spec.stacks.iter().flat_map(StackSpec::blocks);
    blocks.any(|block| matches!(block.feed_forward, FeedForward::Experts(_)))
}

/// Returns at most `n` numbers from `start` up to below `end`, evenly spaced.
fn spread(start: usize, end: usize, n: usize) -> Vec<usize> {
    let n_all = end.saturating_sub(start);
    let n = n.min(n_all);
    (0..n).map(|nth| start + nth * n_all / n).collect()
}

/// Picks a replacement token: the one half a prompt away, or any other if that is the same token.
fn other_token(tokens: &[u32], position_idx: usize, d_vocab: usize) -> u32 {
    let (n, token) = (tokens.len(), tokens[position_idx]);
    let shifted = (1..n).map(|by| tokens[(position_idx + n / 2 + by) % n]);
    let other = shifted.into_iter().find(|other| *other != token);
    other.unwrap_or((token + 1) % d_vocab.max(1) as u32)
}

/// What a probe tells by how far outputs of its copies moved.
type Conclude<'m, T> = Box<dyn FnOnce(&[Moved]) -> Probed<T> + 'm>;

/// A probe that can run: changed copies of a prompt, and what follows from what moved in them.
struct Ready<'m, T> {
    prompt: Input,
    copies: Vec<Copy>,
    conclude: Conclude<'m, T>,
}

/// A probe, or the reason why it says nothing of this model and prompt.
type Prepared<'m, T> = std::result::Result<Ready<'m, T>, String>;

/// Results of the probes that were asked for.
#[derive(Default)]
pub(super) struct Changed {
    pub future: Option<Probed<FutureProbe>>,
    pub padding: Option<Probed<InvarianceProbe>>,
    pub order: Option<Probed<OrderProbe>>,
}

/// Runs the probes of the checks that are wanted, by id, in one pass over the weights.
///
/// # Errors
/// When the model cannot be run, or the run is stopped.
pub(super) fn probe_changed<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    wants: impl Fn(&str) -> bool,
    progress: impl FnMut(Progress),
    pace: &dyn Pace,
) -> Result<Changed> {
    let future = wants("future-leak").then(|| future(model, input));
    let padding = wants("padding-leak").then(|| padding(model, input));
    let order = wants("order-blind").then(|| order(model, input));
    let groups = [group_of(&future), group_of(&padding), group_of(&order)];
    let groups: Vec<Group<'_>> = groups.into_iter().flatten().collect();
    let mut moved = lockstep(ops, model, &groups, progress, pace)?.into_iter();
    Ok(Changed {
        future: future.map(|prepared| concluded(prepared, &mut moved)),
        padding: padding.map(|prepared| concluded(prepared, &mut moved)),
        order: order.map(|prepared| concluded(prepared, &mut moved)),
    })
}

fn group_of<'p, T>(prepared: &'p Option<Prepared<'_, T>>) -> Option<Group<'p>> {
    let ready = prepared.as_ref()?.as_ref().ok()?;
    Some(Group {
        prompt: &ready.prompt,
        copies: &ready.copies,
    })
}

/// What a probe says, from the next group of those that ran if it was one of them.
fn concluded<T>(
    prepared: Prepared<'_, T>,
    moved: &mut impl Iterator<Item = Vec<Moved>>,
) -> Probed<T> {
    let ready = match prepared {
        Ok(ready) => ready,
        Err(why) => return Probed::Not(why),
    };
    let moved = moved.next().unwrap_or_default();
    if moved.iter().any(|moved| moved.is_nonfinite) {
        return Probed::Not(NONFINITE.to_owned());
    }
    (ready.conclude)(&moved)
}

/// Runs one probe alone.
fn run_alone<O: Ops, T>(
    ops: &O,
    model: &Model,
    prepared: Prepared<'_, T>,
    progress: impl FnMut(Progress),
    pace: &dyn Pace,
) -> Result<Probed<T>> {
    let ready = match prepared {
        Ok(ready) => ready,
        Err(why) => return Ok(Probed::Not(why)),
    };
    let group = Group {
        prompt: &ready.prompt,
        copies: &ready.copies,
    };
    let mut moved = lockstep(ops, model, &[group], progress, pace)?.into_iter();
    Ok(concluded(Ok(ready), &mut moved))
}

/// Changes tokens of the stack that predicts, and measures whether earlier positions move.
///
/// # Errors
/// When the model cannot be run, or the run is stopped.
pub fn probe_future<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    progress: impl FnMut(Progress),
    pace: &dyn Pace,
) -> Result<Probed<FutureProbe>> {
    run_alone(ops, model, future(model, input), progress, pace)
}

fn future<'m>(model: &'m Model, input: &Input) -> Prepared<'m, FutureProbe> {
    let blocks = model.spec.main_stack().blocks();
    // A recurrent decoder runs step by step, but its attention would look ahead if it were normalised over queries.
    let goes_forward = model.spec.main_stack().recurrence().is_some();
    if !goes_forward
        && !blocks
            .iter()
            .filter_map(BlockSpec::attention)
            .any(|own| own.mask.causal)
    {
        return Err(
            "every token may see later ones: the model is bidirectional by its spec".to_owned(),
        );
    }
    let input = Input {
        sequence: input.sequence.first(most_positions(model)),
        ..input.clone()
    };
    let tokens = &input.sequence.tokens;
    let n = tokens.len();
    if n < 2 {
        return Err("one token has no future: give a longer prompt".to_owned());
    }
    let tolerance = if has_experts(model) {
        EXPERTS_TOLERANCE
    } else {
        0.0
    };
    let d_vocab = model.spec.d_vocab;
    let copy = |changed: &dyn Fn(usize) -> bool, n_before: usize| {
        let mut copy = input.clone();
        for position_idx in (0..n).filter(|position_idx| changed(*position_idx)) {
            copy.sequence.tokens[position_idx] = other_token(tokens, position_idx, d_vocab);
        }
        Copy {
            input: copy,
            source: None,
            main: Some(Span {
                offset: 0,
                n: n_before,
            }),
            tolerance,
        }
    };
    let (n_cuts, n_changed) = if is_large(model) {
        (N_CUTS_OF_LARGE, N_CHANGED_OF_LARGE)
    } else {
        (N_CUTS, N_CHANGED)
    };
    let cuts = spread(1, n, n_cuts);
    let alone = spread(1, n, n_changed);
    let after_cuts = cuts.iter().map(|cut| copy(&|idx| idx >= *cut, *cut));
    let one_each = alone.iter().map(|only| copy(&|idx| idx == *only, *only));
    let copies: Vec<Copy> = after_cuts.chain(one_each).collect();
    let conclude = move |moved: &[Moved]| {
        let first_of = |first: &dyn Fn(&Moved) -> Option<Movement>| {
            let found = moved.iter().filter_map(first);
            found.min_by_key(|movement| {
                let of = |idx: Option<usize>| idx.unwrap_or(usize::MAX);
                (of(movement.place.layer_idx), of(movement.place.head_idx))
            })
        };
        let mut worst: Option<Worst> = None;
        let changed = cuts.iter().chain(&alone);
        for (changed, moved) in changed.zip(moved) {
            for (position_idx, amount) in moved.at_end.iter().take(*changed).enumerate() {
                let amount = f64::from(*amount);
                if amount > tolerance && worst.is_none_or(|worst| amount > worst.amount) {
                    worst = Some(Worst {
                        changed: *changed,
                        moved: position_idx,
                        amount,
                    });
                }
            }
        }
        let influence = moved.iter().skip(cuts.len());
        let influence = influence.flat_map(|moved| moved.at_end.clone());
        Probed::Ran(FutureProbe {
            tolerance,
            first_pattern: first_of(&|moved| moved.first_pattern.clone()),
            first_residual: first_of(&|moved| moved.first_residual.clone()),
            worst,
            influence: Influence {
                n_positions: n,
                moved: influence.collect(),
                changed: alone,
            },
        })
    };
    Ok(Ready {
        prompt: input,
        copies,
        conclude: Box::new(conclude),
    })
}

/// Pads the stack that reads the prompt on either side, and measures whether real tokens move.
///
/// # Errors
/// When the model cannot be run, or the run is stopped.
pub fn probe_padding<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    progress: impl FnMut(Progress),
    pace: &dyn Pace,
) -> Result<Probed<InvarianceProbe>> {
    run_alone(ops, model, padding(model, input), progress, pace)
}

fn padding<'m>(model: &'m Model, input: &Input) -> Prepared<'m, InvarianceProbe> {
    let has_source = input.source.is_some();
    let given = input.source.as_ref().unwrap_or(&input.sequence);
    if given.real.is_some() {
        return Err("the prompt has padding of its own: give one without".to_owned());
    }
    if given.picture.is_some() {
        return Err("a picture is never padded".to_owned());
    }
    if given.sound.is_some() {
        return Err("a sound is as long as the model hears, and none of it is masked".to_owned());
    }
    let prompt = given.first(most_positions(model));
    let n = prompt.len();
    let rule = model.spec.positions;
    let n_ctx = model.spec.limits().hard_n_ctx().unwrap_or(usize::MAX);
    if n + N_PADS > n_ctx {
        return Err(format!(
            "the prompt leaves no room for {N_PADS} pads in {n_ctx} positions"
        ));
    }
    let whole = |sequence: Sequence| {
        if has_source {
            Input {
                source: Some(sequence),
                sequence: input.sequence.clone(),
            }
        } else {
            Input {
                source: None,
                sequence,
            }
        }
    };
    let padded = |n_left: usize, n_right: usize| {
        let pad = match rule {
            PositionRule::NotPad { pad } => pad,
            _ => prompt.tokens[0],
        };
        let mut tokens = vec![pad; n_left];
        tokens.extend(&prompt.tokens);
        tokens.resize(tokens.len() + n_right, pad);
        let is_real = |idx: usize| (n_left..n_left + n).contains(&idx);
        let real: Vec<bool> = (0..tokens.len()).map(is_real).collect();
        let span = Some(Span { offset: n_left, n });
        let all_of_target = Some(Span {
            offset: 0,
            n: input.sequence.len(),
        });
        Copy {
            input: whole(Sequence {
                positions: rule.over_real(&tokens, &real),
                real: Some(real),
                picture: None,
                tokens,
                ..Sequence::default()
            }),
            source: span.filter(|_| has_source),
            main: if has_source { all_of_target } else { span },
            tolerance: PADDING_TOLERANCE,
        }
    };
    // Padding on the left is not tried where it changes the text's values by design: `PositionRule::Shifted` counts it, some mixers,
    // global tokens and experts of limited room read it, and it moves a text against blocks and pools of keys.
    let blocks = || model.spec.stacks.iter().flat_map(|stack| stack.blocks());
    let mut stacks = model.spec.stacks.iter();
    let is_chained = stacks.any(|stack| stack.embed.chain.is_some());
    if is_chained
        || blocks().any(|block| {
            let mixer = block.other_mixer();
            mixer.is_some_and(TokenMixer::reads_both_sides) || block.feed_forward.mixes_rows()
        })
    {
        return Err("its convolutions reach into padding on both sides by design".to_owned());
    }
    let mut embeds = model.spec.stacks.iter().map(|stack| &stack.embed);
    if embeds.any(|embed| embed.has_neighbours) {
        return Err(
            "a row is made of those of its neighbours, padding among them, by design".to_owned(),
        );
    }
    let reads_padding = blocks().any(|block| {
        let mixer = block.other_mixer();
        let globals = block.attention().and_then(|of| of.globals);
        let top_keys = block.attention().and_then(|of| of.top_keys);
        // A pad that comes first takes the room of a token in an expert.
        let is_limited = block.feed_forward.is_limited();
        mixer.is_some_and(TokenMixer::reads_padding)
            || matches!(globals, Some(Globals::First | Globals::Firsts(_)))
            || is_limited
            || top_keys.is_some_and(TopKeys::ranks_blocks)
            || block.attention().is_some_and(|of| of.mask.pools.is_some())
    });
    // Learned rows stand before padding, so that a text behind both has no one distance to where it was.
    let mut stacks = model.spec.stacks.iter();
    let is_joined = stacks.any(|stack| stack.embed.joined.is_some());
    let shifts = !matches!(rule, PositionRule::Shifted { .. }) && !reads_padding && !is_joined;
    let mut cases = vec![(format!("{N_PADS} pads on the right"), padded(0, N_PADS))];
    if shifts {
        cases.push((format!("{N_PADS} pads on the left"), padded(N_PADS, 0)));
    }
    let copies: Vec<Copy> = cases.iter().map(|(_, copy)| copy.clone()).collect();
    let conclude = move |moved: &[Moved]| {
        let names = cases.into_iter().map(|(name, _)| name);
        let cases = names
            .zip(moved)
            .map(|(name, moved)| (name, moved.first_residual.clone()));
        Probed::Ran(InvarianceProbe {
            tolerance: PADDING_TOLERANCE,
            cases: cases.collect(),
            largest: moved.iter().map(|moved| moved.largest).fold(0.0, f64::max),
        })
    };
    Ok(Ready {
        prompt: whole(prompt.clone()),
        copies,
        conclude: Box::new(conclude),
    })
}
