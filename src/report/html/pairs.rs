//! Heads of two sides: how much the patterns of each differ, and the maps of those that differ most.

use std::f64::consts::LN_2;
use std::io;

use attnscope_compare::{HeadDifference, PromptDifference};
use attnscope_spec::{Place, Stack};
use maud::{Markup, html};

use super::colour::{Colours, LEVELS, TICKS};
use super::{anchor, maps, stack_title};
use crate::text_table::digits;

/// Draws the heads of each prompt; nothing for prompts whose patterns are not known.
pub(crate) fn sections(prompts: &[PromptDifference]) -> io::Result<Vec<Markup>> {
    let colours = Colours::new();
    let known = prompts.iter().enumerate().filter(|(_, prompt)| {
        let mut heads = prompt.heads.iter();
        heads.any(|head| !head.divergence.is_nan() || head.maps.is_some())
    });
    let of = |prompt: &PromptDifference| match prompts.len() {
        1 => String::new(),
        _ => format!(", prompt {}", prompt.id),
    };
    known
        .map(|(prompt_idx, prompt)| {
            Ok(html! {
                section {
                    h2 { "Patterns of all heads" (of(prompt)) }
                    p.quiet {
                        "Jensen–Shannon divergence of the patterns of A and B, in nats, averaged over queries: 0 where they are equal, at most 0.693."
                    }
                    @for stack in stacks(prompt) { (grid(prompt_idx, prompt, stack)) }
                    p.legend { span { "0" } span.ramp {} span { "0.693 nats" } }
                    (worst(prompt_idx, prompt, &colours)?)
                }
            })
        })
        .collect()
}

fn stacks(prompt: &PromptDifference) -> Vec<Stack> {
    let mut stacks: Vec<Stack> = Vec::new();
    for head in &prompt.heads {
        if !stacks.contains(&head.stack) {
            stacks.push(head.stack);
        }
    }
    stacks
}

/// Draws layers × heads, coloured by the square root of the divergence: small differences are common and matter.
fn grid(prompt_idx: usize, prompt: &PromptDifference, stack: Stack) -> Markup {
    let heads: Vec<&HeadDifference> = prompt.heads.iter().filter(|h| h.stack == stack).collect();
    let mut layers: Vec<usize> = heads.iter().map(|head| head.layer_idx).collect();
    layers.dedup();
    let n_heads = heads
        .iter()
        .map(|head| head.head_idx + 1)
        .max()
        .unwrap_or(0);
    let cell = |head: &HeadDifference| {
        let class = format!("v {}", Colours::class((head.divergence / LN_2).sqrt()));
        let place = Place::layer(head.stack, head.layer_idx).head(head.head_idx);
        let value = digits(head.divergence);
        html! {
            td class=(class) title={ (place) ": " (value) " nats" } {
                @if head.maps.is_some() {
                    a href={ "#" (anchor(prompt_idx, stack, head.layer_idx, head.head_idx)) } { (value) }
                } @else { (value) }
            }
        }
    };
    html! {
        @if let Some(title) = stack_title(stack) { h3 { (title) } }
        div.scroll {
            table.grid.many[n_heads > 16] aria-label="divergence by layer and head" {
                thead { tr {
                    th {}
                    @for head in 0..n_heads { th scope="col" { "H" (head) } }
                } }
                tbody {
                    @for layer in &layers {
                        tr {
                            th scope="row" { "L" (layer) }
                            @for head in heads.iter().filter(|head| head.layer_idx == *layer) { (cell(head)) }
                        }
                    }
                }
            }
        }
    }
}

/// Draws the maps of both sides, side by side, of the heads that differ most.
fn worst(prompt_idx: usize, prompt: &PromptDifference, colours: &Colours) -> io::Result<Markup> {
    let mut heads: Vec<&HeadDifference> =
        prompt.heads.iter().filter(|h| h.maps.is_some()).collect();
    heads.sort_by(|a, b| b.divergence.total_cmp(&a.divergence));
    let mut rows = Vec::new();
    for head in &heads {
        let Some(both) = head.maps.as_deref() else {
            continue;
        };
        let place = Place::layer(head.stack, head.layer_idx).head(head.head_idx);
        let id = anchor(prompt_idx, head.stack, head.layer_idx, head.head_idx);
        let mut sides = Vec::new();
        for (side, map) in ["A", "B"].into_iter().zip(both) {
            let alt = format!("pattern of {place} in {side}");
            let image = maps::image(&map.pooled, map.is_causal, (colours, LEVELS), &alt)?;
            sides.push(html! {
                figure { (image) figcaption { b { (side) } } }
            });
        }
        rows.push(html! {
            div.pair id=(id) {
                h5 { (place) " · " (digits(head.divergence)) " nats" }
                div.maps.few { @for side in &sides { (side) } }
            }
        });
    }
    let is_any_causal = heads.iter().filter_map(|head| head.maps.as_deref());
    let is_any_causal = is_any_causal.flatten().any(|map| map.is_causal);
    Ok(html! {
        @if !rows.is_empty() {
            h3 { "Maps of the heads that differ most" }
            p.quiet { "Queries run down, keys to the right." }
            p.legend {
                span { "probability" }
                span.ramp.ticked {
                    @for (nth, tick) in TICKS.iter().enumerate() { i class={ "t" (nth) } { (tick) } }
                }
                @if is_any_causal { span.key { span.swatch.masked {} "masked" } }
                span.key { span.swatch.nan {} "NaN" }
            }
            div.pairs { @for row in &rows { (row) } }
        }
    })
}
