//! Figures for paper: only the data of a panel, without the controls of the screen.

mod atlas;
mod grid;
mod maps;

use attnscope_compute::error::{Error, Result};
use attnscope_report::Picture;
use attnscope_report::chart::{Chart, Ticks, tick_label};
use attnscope_report::drawing::{
    Bar, Drawing, Map, Margins, Rgb, SIZE, draw_chart, draw_map, lacks,
};
use attnscope_terminal::theme::{Depth, Ground, Theme};
use ratatui::style::Color;

use crate::panels::{effect_path, history_curves, prompts_scatter, sweep};
use crate::state::panel::Panel;
use crate::state::scene::Scene;
use crate::widgets::heatmap::{LOG_FLOOR, Scale};

/// Margin around a figure, and gap between two of its parts.
const MARGIN: f64 = 1.0;
const BETWEEN: f64 = 3.0;
/// Minimum width of a part when several share a row.
const NARROWEST: f64 = 54.0;
/// Number of colours in a colour bar.
const N_COLOURS: usize = 64;

/// Panels that have a figure, for messages.
const EXPECTED: &str = "expected --panel overview, head, compare, effect, sweep, history, or a page of a story with charts or maps";

/// Options of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Paper {
    /// Millimetres.
    pub width: f64,
    /// Replaces the figure's own title; empty for no title.
    pub title: Option<String>,
    /// Whether text stays text, which can be selected and edited.
    pub has_live_text: bool,
}

impl Default for Paper {
    fn default() -> Self {
        Self {
            width: 84.0,
            title: None,
            has_live_text: false,
        }
    }
}

/// A part of a figure.
enum Part {
    Map(Box<Map>),
    Chart(Box<Chart>),
}

/// Draws the figure of the current panel.
///
/// # Errors
/// When the panel has no figure, or nothing to draw yet.
pub fn drawing(app: Scene<'_>, paper: &Paper) -> Result<Drawing> {
    let mut parts = parts(app)?;
    if let Some(title) = &paper.title {
        // Only figures with several parts have titles of parts.
        if let [part] = parts.as_mut_slice() {
            match part {
                Part::Map(map) => map.title.clone_from(title),
                Part::Chart(chart) => chart.title.clone_from(title),
            }
        }
    }
    let title = super::caption::caption(app).title;
    Ok(placed(&parts, paper, title))
}

/// Whether the current panel has a figure now.
pub fn has_figure(app: Scene<'_>) -> bool {
    parts(app).is_ok()
}

fn parts(app: Scene<'_>) -> Result<Vec<Part>> {
    let maps = |maps: Vec<Map>| {
        maps.into_iter()
            .map(|map| Part::Map(Box::new(map)))
            .collect()
    };
    let charts = |charts: Vec<Chart>| {
        let charts = charts.into_iter();
        charts.map(|chart| Part::Chart(Box::new(chart))).collect()
    };
    let parts: Vec<Part> = match app.panel {
        Panel::Head => maps(maps::of_head(app)),
        Panel::Overview if app.overview_view.shows_maps() => maps(atlas::of_overview(app)),
        Panel::Overview => maps(grid::of_overview(app)),
        Panel::Compare if app.shows_marked() => maps(maps::of_marked(app)),
        Panel::Compare => maps(maps::of_both(app)),
        Panel::Sweep => charts(sweep::charts(app)),
        Panel::Prompts => charts(prompts_scatter::chart(app).into_iter().collect()),
        Panel::Effect => effects(app),
        Panel::History => charts(history_curves::charts(app)),
        Panel::Story => match app.story.as_ref().and_then(|story| story.page()) {
            Some(page) => match &page.picture {
                Picture::Charts(all) => charts(all.clone()),
                Picture::Maps(all) => maps(maps::of_story(app, all)),
                Picture::Table(_) | Picture::Passages(_) => Vec::new(),
            },
            None => Vec::new(),
        },
        _ => Vec::new(),
    };
    if parts.is_empty() {
        Err(Error::Prompt(format!(
            "--figure: there is nothing to draw in {}; {EXPECTED}",
            app.panel.title().to_lowercase()
        )))
    } else {
        Ok(parts)
    }
}

/// The grid of effects and the path of the logit, or the lens.
fn effects(app: Scene<'_>) -> Vec<Part> {
    let Some(shown) = app.effects() else {
        return Vec::new();
    };
    let grid = grid::of_effects(app, shown).map(|map| Part::Map(Box::new(map)));
    let chart = effect_path::path_chart(shown).map(|chart| Part::Chart(Box::new(chart)));
    grid.into_iter().chain(chart).collect()
}

/// Places parts side by side if they fit, else one below the other.
fn placed(parts: &[Part], paper: &Paper, title: String) -> Drawing {
    let width = paper.width;
    let inside = width - 2.0 * MARGIN;
    let n_columns = ((inside + BETWEEN) / (NARROWEST + BETWEEN)) as usize;
    let n_columns = n_columns.clamp(1, parts.len().max(1));
    let wide = (inside - BETWEEN * (n_columns - 1) as f64) / n_columns as f64;
    let mut shapes = Vec::new();
    let mut y = MARGIN;
    for row in parts.chunks(n_columns) {
        let mut highest: f64 = 0.0;
        // Maps side by side are equally large.
        let margins = row.iter().filter_map(|part| match part {
            Part::Map(map) => Some(Margins::of(map, wide)),
            Part::Chart(_) => None,
        });
        let margins = margins.fold(Margins::default(), Margins::or);
        for (idx, part) in row.iter().enumerate() {
            let at = (MARGIN + idx as f64 * (wide + BETWEEN), y);
            let height = match part {
                Part::Map(map) => draw_map(&mut shapes, map, at, wide, margins),
                Part::Chart(chart) => draw_chart(&mut shapes, chart, at, wide),
            };
            highest = highest.max(height);
        }
        y += highest + BETWEEN;
    }
    Drawing {
        width,
        height: y - BETWEEN + MARGIN + 0.2 * SIZE,
        title,
        shapes,
        has_live_text: paper.has_live_text,
    }
}

/// Whether a drawing has characters that its font lacks: PNG and PDF show a sign instead.
pub fn lacks_letters(drawing: &Drawing) -> bool {
    drawing.texts().any(lacks)
}

/// The theme for print: all colours, on white.
fn printed() -> Theme {
    Theme::on(Ground::Light, Depth::Truecolor)
}

fn rgb(colour: Color) -> Rgb {
    match colour {
        Color::Rgb(r, g, b) => [r, g, b],
        _ => [0, 0, 0],
    }
}

/// The colour bar of a scale.
fn bar(theme: &Theme, scale: Scale, title: String) -> Bar {
    let colours = (0..N_COLOURS).map(|i| rgb(theme.heat(i as f32 / (N_COLOURS - 1) as f32)));
    let (low, high) = (f64::from(scale.low), f64::from(scale.high));
    let ticks = if scale.is_log {
        Ticks::logarithmic(f64::from(LOG_FLOOR).min(high), high, 5)
    } else {
        Ticks::linear(low, high, 5)
    };
    let labels = ticks.labels();
    let share = |value: f64| f64::from(scale.share(value as f32));
    let ticks = ticks.values.iter().zip(labels);
    let ticks: Vec<(f64, String)> = ticks.map(|(value, label)| (share(*value), label)).collect();
    Bar {
        title,
        colours: colours.collect(),
        ticks: if ticks.is_empty() {
            vec![(0.0, tick_label(low)), (1.0, tick_label(high))]
        } else {
            ticks
        },
    }
}
