//! Spread of statistics in each layer: a dot per head, a bar from quartile to quartile, and norms as lines.

use attnscope_checks::stats::{STATISTICS, Stat};
use attnscope_spec::Stack;
use maud::{Markup, html};

use super::Part;
use crate::chart::{Axis, Scale, Ticks};
use crate::document::LayerRecord;

/// Size of the drawing, in its own units.
const WIDTH: f64 = 372.0;

const HEIGHT: f64 = 190.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 24.0;

/// Ratio of values from which the scale is logarithmic.
const WIDE: f64 = 50.0;

/// About how many ticks the axis of values has.
const N_TICKS: usize = 4;

/// Most labels below the layers.
const MOST_LABELS: usize = 12;

pub(super) fn section(part: &Part<'_>, stack: Stack) -> Markup {
    let layers: Vec<&LayerRecord> = part
        .record
        .layers
        .iter()
        .filter(|l| l.stack == stack)
        .collect();
    let charts = [
        spread(&layers, Stat::EntropyRelative, Some((0.0, 1.0))),
        spread(&layers, Stat::MaxAbsScore, None),
        lines(
            &layers,
            &[Stat::ResidNorm, Stat::AttnOutNorm, Stat::MlpOutNorm],
        ),
    ];
    html! {
        h4 { "Distributions by layer" }
        div.charts { @for chart in charts.iter().flatten() { (chart) } }
    }
}

/// The axis of values, its ends, and the layers across.
struct Axes {
    of_values: Axis,
    ends: (f64, f64),
    n_layers: usize,
}

impl Axes {
    /// Axes around the finite values; `None` if there are none.
    fn around(values: impl Iterator<Item = f64>, n_layers: usize) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            return None;
        }
        let is_wide = low > 0.0 && high / low > WIDE;
        let (of_values, ends) = if is_wide {
            (Axis::logarithmic(""), (low / 1.2, high * 1.2))
        } else {
            let high = if high > 0.0 { high * 1.06 } else { 1.0 };
            (Axis::linear(""), (low.min(0.0), high))
        };
        Some(Self {
            of_values,
            ends,
            n_layers,
        })
    }

    fn is_log(&self) -> bool {
        self.of_values.scale == Scale::Logarithmic
    }

    fn x(&self, layer_nth: usize) -> f64 {
        LEFT + self.step() * (layer_nth as f64 + 0.5)
    }

    fn step(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.n_layers.max(1) as f64
    }

    fn y(&self, value: f64) -> f64 {
        let share = self.of_values.share(value, self.ends);
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - share.clamp(0.0, 1.0))
    }

    fn ticks(&self) -> Ticks {
        self.of_values.ticks(self.ends, N_TICKS)
    }

    fn draw(&self, layers: &[&LayerRecord]) -> Markup {
        let every = self.n_layers.div_ceil(MOST_LABELS).max(1);
        let ticks = self.ticks();
        html! {
            @for (tick, label) in ticks.values.iter().zip(ticks.labels()) {
                @let y = at(self.y(*tick));
                line.rule x1=(LEFT) x2=(WIDTH - RIGHT) y1=(y) y2=(y) {}
                text.tick x=(LEFT - 5.0) y=(y) dy="3.5" text-anchor="end" { (label) }
            }
            @for (nth, layer) in layers.iter().enumerate().step_by(every) {
                text.tick x=(at(self.x(nth))) y=(HEIGHT - 8.0) text-anchor="middle" { "L" (layer.layer) }
            }
        }
    }
}

/// Draws a dot for each head, a bar from quartile to quartile and a line at the median.
fn spread(layers: &[&LayerRecord], stat: Stat, span: Option<(f64, f64)>) -> Option<Markup> {
    let (idx, statistic) = (stat.idx(), stat.statistic());
    let values = |layer: &LayerRecord| -> Vec<f64> {
        layer.heads.iter().map(|head| head.stats.at(idx)).collect()
    };
    let mut axes = Axes::around(layers.iter().flat_map(|layer| values(layer)), layers.len())?;
    if let Some((low, high)) = span {
        (axes.of_values, axes.ends) = (Axis::linear(""), (low, high));
    }
    let half = (0.32 * axes.step()).min(9.0);
    Some(figure_of(
        statistic.title,
        if axes.is_log() {
            "each dot a head; bar: quartiles; logarithmic"
        } else {
            "each dot a head; bar: quartiles"
        },
        &html! {
            (axes.draw(layers))
            @for (nth, layer) in layers.iter().enumerate() {
                @let x = axes.x(nth);
                @let mut all = values(layer);
                @let n_bad = all.iter().filter(|value| !value.is_finite()).count();
                @let sorted = sorted(&mut all);
                @if let (Some(low), Some(middle), Some(high)) =
                    (quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75)) {
                    rect.box x=(at(x - half)) width=(at(2.0 * half)) y=(at(axes.y(high)))
                        height=(at((axes.y(low) - axes.y(high)).max(1.0))) {}
                    line.median x1=(at(x - half)) x2=(at(x + half)) y1=(at(axes.y(middle))) y2=(at(axes.y(middle))) {}
                }
                @for value in sorted { circle.dot cx=(at(x)) cy=(at(axes.y(*value))) r="2" {} }
                @if n_bad > 0 {
                    text.bad x=(at(x)) y=(TOP + 4.0) text-anchor="middle" { "×" title { (n_bad) " not finite" } }
                }
            }
        },
        &html! {},
    ))
}

/// Draws a line for each layer statistic.
fn lines(layers: &[&LayerRecord], stats: &[Stat]) -> Option<Markup> {
    let is_known = |idx: &usize| layers.iter().any(|layer| layer.stats.at(*idx).is_finite());
    let series: Vec<usize> = stats
        .iter()
        .map(|stat| stat.idx())
        .filter(is_known)
        .collect();
    let all = series
        .iter()
        .flat_map(|idx| layers.iter().map(|layer| layer.stats.at(*idx)));
    let axes = Axes::around(all, layers.len())?;
    let points = |idx: usize| -> Vec<(f64, f64)> {
        let values = layers.iter().map(|layer| layer.stats.at(idx)).enumerate();
        let finite = values.filter(|(_, value)| value.is_finite());
        finite
            .map(|(nth, value)| (axes.x(nth), axes.y(value)))
            .collect()
    };
    Some(figure_of(
        "Norms in the residual stream",
        if axes.is_log() {
            "mean over positions; logarithmic"
        } else {
            "mean over positions"
        },
        &html! {
            (axes.draw(layers))
            @for (nth, idx) in series.iter().enumerate() {
                @let points = points(*idx);
                polyline class={ "line s" (nth) } points=(path(&points)) {}
                @for (x, y) in &points { circle class={ "mark s" (nth) } cx=(at(*x)) cy=(at(*y)) r="2.2" {} }
            }
        },
        &html! {
            span.series { @for (nth, idx) in series.iter().enumerate() {
                span.key { span class={ "swatch s" (nth) } {} (STATISTICS[*idx].title) }
            } }
        },
    ))
}

fn figure_of(title: &str, note: &str, drawing: &Markup, below: &Markup) -> Markup {
    html! {
        figure.chart {
            figcaption { b { (title) } span.quiet { (note) } }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(title) { (drawing) }
            (below)
        }
    }
}

/// Formats a coordinate: tenths are finer than any screen.
fn at(value: f64) -> String {
    format!("{value:.1}")
}

fn path(points: &[(f64, f64)]) -> String {
    let points: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{},{}", at(*x), at(*y)))
        .collect();
    points.join(" ")
}

/// Sorts the values and returns the finite ones.
fn sorted(values: &mut Vec<f64>) -> &[f64] {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    values
}

/// Interpolates between the two nearest ranks.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = share * (sorted.len().checked_sub(1)?) as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(below + (above - below) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_between_ranks_and_are_none_without_values() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.5));
        assert_eq!(quantile(&[5.0], 0.25), Some(5.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn axes_cover_every_finite_value_and_have_round_ticks() {
        let values = [0.0, 3.0, f64::NAN, 17.0];
        let axes = Axes::around(values.into_iter(), 2).expect("axes");
        assert_eq!(axes.ticks().values, [0.0, 5.0, 10.0, 15.0]);
        assert!(axes.y(17.0) > TOP && axes.y(0.0) == HEIGHT - BOTTOM);
        let wide = Axes::around([0.1, 1000.0].into_iter(), 2).expect("axes");
        assert!(wide.is_log() && wide.ticks().values.contains(&10.0));
        assert!(Axes::around([f64::NAN].into_iter(), 2).is_none());
    }
}
