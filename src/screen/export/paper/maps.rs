//! Figures of attention maps.

use attnscope_checks::stats::{HeadReport, LayerReport};
use attnscope_compute::attention::Pooled;
use attnscope_report::Map as StoryMap;
use attnscope_report::drawing::{Map, Side};
use attnscope_run::{HeadDetail, HeadMap, Pyramid};
use attnscope_spec::Place;
use attnscope_terminal::theme::Theme;

use super::{bar, printed, rgb};
use crate::panels::{head, marked};
use crate::state::runs::Shows;
use crate::state::scene::Scene;
use crate::state::shown_name::name_of;
use crate::state::views::Axis;
use crate::widgets::heatmap::Scale;

/// The map of the selected head, or its change.
pub fn of_head(app: Scene<'_>) -> Vec<Map> {
    let Some(detail) = app.shown_detail() else {
        return Vec::new();
    };
    let differs = app.shown_difference().is_some();
    let theme = if differs {
        printed().diverging()
    } else {
        printed()
    };
    let change = if differs { "change of " } else { "" };
    let title = format!("{change}{}", what(app));
    let title = pooled_title(title, detail.pattern.finest(), app.head_view.is_log);
    let drawn = Drawn {
        values: head::values(app, detail),
        scale: head::scale(app, detail),
        theme: &theme,
        bar: title,
        title: format!("{} · {}", name(app), app.selection.head()),
    };
    vec![map(app, detail, drawn)]
}

/// The maps of the selected head in both runs, and their difference.
pub fn of_both(app: Scene<'_>) -> Vec<Map> {
    let Some(details) = app.both_details() else {
        return Vec::new();
    };
    let which = app.head_map();
    let values = details.map(|detail| detail.map(which).unwrap_or(&detail.pattern));
    // Use one scale for both, so that they can be compared.
    let [a, b] = [0, 1].map(|idx| head::scale_of(details[idx], which, app.head_view.is_log));
    let scale = Scale {
        low: a.low.min(b.low),
        high: a.high.max(b.high),
        is_log: a.is_log,
    };
    let theme = printed();
    let place = app.selection.head();
    let mut maps = Vec::new();
    for ((side, letter), (values, detail)) in [Shows::A, Shows::B]
        .into_iter()
        .zip(["A", "B"])
        .zip(values.into_iter().zip(details))
    {
        let drawn = Drawn {
            values,
            scale,
            theme: &theme,
            bar: pooled_title(what(app), values.finest(), scale.is_log),
            title: format!("{letter} · {place}"),
        };
        maps.push(map(Scene::of(app.state(), side), detail, drawn));
    }
    if let Some(difference) = app.difference() {
        let most = difference.level(usize::MAX).cells[0].abs();
        let most = if most > 0.0 && most.is_finite() {
            most
        } else {
            1.0
        };
        let theme = theme.diverging();
        let drawn = Drawn {
            values: difference,
            scale: Scale {
                low: -most,
                high: most,
                is_log: false,
            },
            theme: &theme,
            bar: format!("change of {}", what(app)),
            title: format!("B − A · {place}"),
        };
        maps.push(map(app, details[0], drawn));
    }
    maps
}

/// The pooled maps of the marked heads, on one scale.
pub fn of_marked(app: Scene<'_>) -> Vec<Map> {
    let heads = marked::heads(app);
    let scale = marked::scale(&heads);
    let theme = printed();
    let map = |(place, _, head): &(Place, &LayerReport, &HeadReport)| {
        let pooled = &head.summary.pooled;
        let (queries, keys) = (pooled.queries_per_cell, pooled.keys_per_cell);
        Map {
            title: place.to_string(),
            rows: side(app, Axis::Query, "query", pooled.n_rows, queries),
            columns: side(app, Axis::Key, "key", pooled.n_cols, keys),
            cells: colours(pooled, None, scale, &theme),
            values: Vec::new(),
            bar: bar(
                &theme,
                scale,
                pooled_title("attention weight".to_owned(), pooled, false),
            ),
        }
    };
    heads.iter().map(map).collect()
}

/// The maps on a story page, of the selected head.
pub fn of_story(app: Scene<'_>, all: &[StoryMap]) -> Vec<Map> {
    let at = app.selection;
    let theme = printed();
    let sheet = |map: &StoryMap| map.sheet(at.layer_idx, at.head_idx).cloned();
    let sheets: Vec<_> = all.iter().map(sheet).collect();
    let most = sheets.iter().flatten().map(|sheet| {
        let most = sheet.values.level(usize::MAX).cells[0];
        if most.is_finite() { most } else { 0.0 }
    });
    let high = most.fold(0.0, f32::max);
    let scale = Scale {
        low: 0.0,
        high: if high > 0.0 { high } else { 1.0 },
        is_log: false,
    };
    let drawn = all.iter().zip(&sheets).filter_map(|(map, sheet)| {
        let finest = sheet.as_ref()?.values.finest();
        let side = |title: &str, labels: &[String], n: usize, step: usize| Side {
            title: title.to_owned(),
            labels: (0..n)
                .map(|idx| labels.get(idx * step).cloned().unwrap_or_default())
                .collect(),
            first: 0,
            step,
        };
        let place = if map.is_of_heads() {
            format!(" · L{}H{}", at.layer_idx, at.head_idx)
        } else {
            String::new()
        };
        Some(Map {
            title: format!("{}{place}", map.title),
            rows: side(
                "query",
                &map.row_labels,
                finest.n_rows,
                finest.queries_per_cell,
            ),
            columns: side(
                "key",
                &map.column_labels,
                finest.n_cols,
                finest.keys_per_cell,
            ),
            cells: colours(finest, None, scale, &theme),
            values: Vec::new(),
            bar: bar(&theme, scale, "attention weight".to_owned()),
        })
    });
    drawn.collect()
}

/// A matrix and its colours.
struct Drawn<'a> {
    values: &'a Pyramid,
    scale: Scale,
    theme: &'a Theme,
    bar: String,
    title: String,
}

fn name(app: Scene<'_>) -> String {
    app.subject().map(name_of).unwrap_or_default()
}

fn what(app: Scene<'_>) -> String {
    let what = match (app.head_map(), app.head_view.hides_first_key) {
        (HeadMap::Scores, _) => "score",
        (HeadMap::Contribution, _) => "contribution α·‖v W_O‖",
        (HeadMap::Pattern, true) => "attention weight without the first key",
        (HeadMap::Pattern, false) => "attention weight",
    };
    what.to_owned()
}

fn pooled_title(title: String, finest: &Pooled, is_log: bool) -> String {
    let (queries, keys) = (finest.queries_per_cell, finest.keys_per_cell);
    let pooled = match queries.max(keys) {
        1 => String::new(),
        _ => format!(", largest of {queries} × {keys}"),
    };
    let log = if is_log { ", logarithmic" } else { "" };
    format!("{title}{pooled}{log}")
}

fn side(app: Scene<'_>, axis: Axis, title: &str, n: usize, step: usize) -> Side {
    Side {
        title: title.to_owned(),
        labels: (0..n).map(|idx| app.token(axis, idx * step)).collect(),
        first: 0,
        step,
    }
}

fn map(app: Scene<'_>, detail: &HeadDetail, drawn: Drawn<'_>) -> Map {
    let finest = drawn.values.finest();
    let masked = Some(detail.scores.finest())
        .filter(|scores| scores.n_rows == finest.n_rows && scores.n_cols == finest.n_cols);
    Map {
        title: drawn.title,
        rows: side(
            app,
            Axis::Query,
            "query",
            finest.n_rows,
            finest.queries_per_cell,
        ),
        columns: side(app, Axis::Key, "key", finest.n_cols, finest.keys_per_cell),
        cells: colours(finest, masked, drawn.scale, drawn.theme),
        values: Vec::new(),
        bar: bar(drawn.theme, drawn.scale, drawn.bar),
    }
}

/// A colour for each cell; `None` where the mask hides the key from the query.
fn colours(
    cells: &Pooled,
    scores: Option<&Pooled>,
    scale: Scale,
    theme: &Theme,
) -> Vec<Option<[u8; 3]>> {
    let colour = |(idx, value): (usize, &f32)| {
        let is_masked = scores.is_some_and(|scores| scores.cells[idx] == f32::NEG_INFINITY);
        // A weight on a masked key is a fault, so it is shown.
        let is_empty = *value == 0.0 || *value == f32::NEG_INFINITY;
        (!(is_masked && is_empty)).then(|| rgb(theme.heat(scale.share(*value))))
    };
    cells.cells.iter().enumerate().map(colour).collect()
}
