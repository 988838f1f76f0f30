//! The colours of heads by the chosen statistic, and the title that says what they show.

use std::ops::Range;

use attnscope_checkpoint::counted::counted;
use attnscope_spec::Stack;
use attnscope_terminal::theme::Theme;

use super::head_value::{value, why_undefined};
use crate::figure::colour_range;
use crate::state::scene::Scene;
use crate::state::statistics::n_statistics;

/// What a grid of heads shows in a width, and which part of it if not all fits. `shown` and `of` are of layers and heads.
pub fn title(
    app: Scene<'_>,
    stack: Stack,
    width: u16,
    shown: (Range<usize>, Range<usize>),
    of: (usize, usize),
) -> String {
    let part = |what: &str, shown: &Range<usize>, n: usize| {
        if shown.is_empty() && n > 0 {
            format!(" · no room for {n} {what}")
        } else if shown.len() < n {
            format!(" · {what} {}–{} of {n}", shown.start, shown.end - 1)
        } else {
            String::new()
        }
    };
    let label = stack.label();
    let label = label.map_or(String::new(), |label| format!("{label} · "));
    let kind = app.shown_type.map_or(String::new(), |kind| {
        let types = app.head_types();
        let n = types
            .iter()
            .find(|(found, _)| *found == kind)
            .map_or(0, |(_, n)| *n);
        format!(" · {}", counted(n, &format!("{} head", kind.title())))
    });
    let change = if app.grid_differs() { "change of " } else { "" };
    let what = if app.shows_distance() {
        "distance of patterns".to_owned()
    } else {
        let (nth, n) = (app.statistic_idx + 1, n_statistics());
        let title = format!("{change}{}", app.statistic().title);
        let count = format!(" · {nth} of {n}");
        // Drop the count if there is no room for both.
        let room = (width as usize).saturating_sub(2 + label.chars().count());
        if title.chars().count() + count.len() <= room {
            title + &count
        } else {
            title
        }
    };
    format!(
        " {label}{what}{}{}{kind} ",
        part("layers", &shown.0, of.0),
        part("heads", &shown.1, of.1),
    )
}

/// Values of a layer's cells: its heads, or the layer itself if the statistic is per layer.
fn values(app: Scene<'_>, stack: Stack, layer_idx: usize) -> Vec<f64> {
    if app.statistic().is_per_head() || app.shows_distance() {
        let heads = 0..app.n_heads_of(stack);
        heads
            .map(|head_idx| value(app, stack, layer_idx, Some(head_idx)))
            .collect()
    } else {
        vec![value(app, stack, layer_idx, None)]
    }
}

/// The range over which the heads of a grid are coloured.
pub fn colours(app: Scene<'_>, stack: Stack) -> (f64, f64) {
    let layers = app.layers_of(stack).iter().map(|layer| layer.layer_idx);
    let values = layers.flat_map(|layer_idx| values(app, stack, layer_idx));
    if app.shows_distance() {
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        (0.0, if most > 0.0 { most } else { 1.0 })
    } else if app.grid_differs() {
        let finite = values.filter(|value| value.is_finite());
        let most = finite.fold(0.0, |most: f64, value| most.max(value.abs()));
        let most = if most > 0.0 { most } else { 1.0 };
        (-most, most)
    } else {
        colour_range(app.statistic(), values)
    }
}

/// The theme for values, or for changes.
pub fn grid_theme(app: Scene<'_>) -> Theme {
    if app.grid_differs() {
        app.theme.diverging()
    } else {
        app.theme.clone()
    }
}

/// Why some of the shown layers and heads have no value, and whether that applies to all of them.
pub fn undefined_in(
    app: Scene<'_>,
    stack: Stack,
    (layers, heads): (Range<usize>, Range<usize>),
) -> Option<(&'static str, bool)> {
    let is_per_head = app.statistic().is_per_head() || app.shows_distance();
    let shown = layers.filter(|idx| app.layer_of(stack, *idx).is_some());
    let places = shown.flat_map(|layer_idx| {
        let heads = heads.clone().filter(move |_| is_per_head);
        heads.map(move |head_idx| (layer_idx, head_idx))
    });
    let reasons = places.map(|(layer, head)| why_undefined(app, stack, layer, Some(head)));
    let reasons: Vec<Option<&'static str>> = reasons.collect();
    let first = reasons.iter().flatten().next()?;
    Some((first, reasons.iter().all(Option::is_some)))
}
