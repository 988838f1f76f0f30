//! Compares the hooks that two recordings share.

use attnscope_compute::error::Result;
use attnscope_forward::Hook;
use attnscope_spec::Stack;

use super::floors::Floors;
use super::gap::{Axes, HookGap};
use super::head_map::{HeadMap, keep_worst};
use super::lockstep::{HeadSums, HookSums, Ran};
use super::noise::Noise;
use super::recording::{Form, HookPlace, Recording, told_apart};
use super::rows::{Keeping, Rows};

/// Sort key of a hook's place in the order of execution.
fn order(place: &HookPlace) -> (u8, usize, u8, Hook) {
    let (stack, layer_idx, hook) = *place;
    let of_stack = match (stack, layer_idx) {
        (Some(Stack::Encoder), Some(_)) => 0,
        (Some(Stack::Encoder), None) => 1,
        (_, Some(_)) => 2,
        (_, None) => 3,
    };
    let part = match (stack, hook) {
        (Some(Stack::Cross), _) => 1,
        (_, Hook::MlpOut | Hook::ResidPost) => 2,
        _ => 0,
    };
    (of_stack, layer_idx.unwrap_or(0), part, hook)
}

/// Compares two recordings.
pub(super) fn recordings(a: &Recording, b: &Recording, floors: &Floors) -> Result<Ran> {
    let mut places: Vec<HookPlace> = a.places().filter(|place| b.has(**place)).copied().collect();
    places.sort_by_key(order);
    let mut ran = Ran::default();
    let mut noise = Noise::default();
    for place in places {
        let (stack, layer_idx, hook) = place;
        let Some(form) = a.form(place) else {
            continue;
        };
        let (Some(mut of_a), Some(mut of_b)) = (a.values(place, form)?, b.values(place, form)?)
        else {
            continue;
        };
        for side in [a, b] {
            if let Some(slack) = side.slack(place, form)? {
                told_apart(&mut of_a, &mut of_b, &slack);
            }
        }
        let gap = match form {
            Form::Vectors { n_heads, width, .. } => {
                let is_of_keys = matches!(hook, Hook::K | Hook::V | Hook::RotK);
                let axes = if is_of_keys {
                    Axes::Keys
                } else {
                    Axes::Queries
                };
                HookGap::of_vectors(axes, n_heads, (&of_a, &of_b), width, &|_| true)
            }
            Form::Cells {
                n_heads,
                n_queries,
                n_keys,
            } => {
                let mut rows = Rows::default();
                rows.begin((n_heads, n_queries, n_keys), None, Keeping::default());
                let of_head = (n_queries * n_keys).max(1);
                let heads = of_a.chunks(of_head).zip(of_b.chunks(of_head)).enumerate();
                for (head_idx, (a, b)) in heads {
                    rows.compare(head_idx, 0, (a, a), (b, b));
                }
                let Some(found) = rows.finish() else {
                    continue;
                };
                if hook == Hook::Pattern
                    && let (Some(stack), Some(layer_idx)) = (stack, layer_idx)
                {
                    let heads = found.divergence.into_iter().enumerate();
                    let map = |side: &[f32], head_idx: usize| {
                        let at = head_idx * of_head;
                        let pattern = side.get(at..at + of_head);
                        HeadMap::of_recorded(pattern.unwrap_or_default(), n_queries, n_keys)
                    };
                    ran.heads
                        .extend(heads.map(|(head_idx, divergence)| HeadSums {
                            stack,
                            layer_idx,
                            head_idx,
                            divergence,
                            stats: None,
                            maps: Some(Box::new([&of_a, &of_b].map(|side| map(side, head_idx)))),
                        }));
                    keep_worst(&mut ran.heads);
                    found.pattern
                } else {
                    found.scores
                }
            }
        };
        let at = (stack.unwrap_or(Stack::Only), hook);
        let tolerance = noise.tolerance(floors, at, &gap.total(), None);
        ran.hooks.push(HookSums {
            hook,
            stack,
            layer_idx,
            gap,
            tolerance,
            largest: None,
        });
    }
    Ok(ran)
}
