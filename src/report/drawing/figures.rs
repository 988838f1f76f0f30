//! Figures as a drawing: charts in rows under a title, one figure below the other.

use super::lines::{draw_chart, words};
use super::{Anchor, Drawing, SIZE, Shape, Text, cut};
use crate::chart::Figure;

/// Margin of the page, and the gap between two charts.
const MARGIN: f64 = 4.0;
const GAP: f64 = 6.0;
/// Height of a figure's title with the room below it.
const TITLE: f64 = 3.2 * SIZE;
/// Ratio of a title's letters to those of labels.
const TITLE_SIZE: f64 = 1.35;

/// Draws figures on a page as wide as the widest of them.
pub fn draw_figures(figures: &[Figure]) -> Drawing {
    let widths = figures.iter().map(|figure| {
        let n_columns = n_columns(figure) as f64;
        n_columns * chart_width(figure) + (n_columns - 1.0) * GAP
    });
    let width = widths.fold(chart_width_of(1), f64::max);
    let mut shapes = Vec::new();
    let mut bottom = MARGIN;
    for figure in figures {
        let size = TITLE_SIZE * SIZE;
        let title = cut(&figure.title, size, width);
        shapes.push(Shape::Text(Text {
            size,
            ..words(&title, (MARGIN, bottom + size), Anchor::Start)
        }));
        bottom += TITLE;
        for row in figure.charts.chunks(n_columns(figure)) {
            let mut height: f64 = 0.0;
            for (nth, chart) in row.iter().enumerate() {
                let x = MARGIN + nth as f64 * (chart_width(figure) + GAP);
                let of_chart = draw_chart(&mut shapes, chart, (x, bottom), chart_width(figure));
                height = height.max(of_chart);
            }
            bottom += height + 0.5 * GAP;
        }
    }
    let titles: Vec<&str> = figures.iter().map(|figure| figure.title.as_str()).collect();
    Drawing {
        width: width + 2.0 * MARGIN,
        height: bottom + MARGIN,
        title: titles.join(" · "),
        shapes,
        has_live_text: false,
    }
}

fn n_columns(figure: &Figure) -> usize {
    figure.n_columns.clamp(1, figure.charts.len().max(1))
}

fn chart_width(figure: &Figure) -> f64 {
    chart_width_of(n_columns(figure))
}

/// Width of a chart, in millimetres: a single chart is drawn larger.
fn chart_width_of(n_columns: usize) -> f64 {
    match n_columns {
        1 => 150.0,
        2 => 110.0,
        _ => 78.0,
    }
}
