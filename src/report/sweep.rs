//! A softmax against the scale of its scores: the numbers as table, JSON and CSV, and as a figure.

use std::io::{self, Write};

use attnscope_compute::attention::{AttentionSpec, RowSummary};
use attnscope_run::{Averaged, Sweep, SweepPoint, round_scales};
use schemars::JsonSchema;
use serde::Serialize;

use super::chart::{Axis, Chart, Figure, Mark, Series, Stroke};
use super::json::write_pretty;
use super::number::Number;
use super::table::Table;
use super::text_table::{digits, text_table};
use crate::table_row;

/// The version of the shapes in this file.
const VERSION: u32 = 1;

/// A sweep with its description and marks.
#[derive(Debug, Clone)]
pub struct SweepShown {
    /// Description of the swept rows, in words.
    pub of: String,
    /// Origin of the swept rows, for programs.
    pub source: SweepSource,
    pub sweep: Sweep,
    /// Scales with a meaning: the current one, and other rules such as 1/√d.
    pub marks: Vec<Mark>,
}

/// Where rows came from.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schemars(deny_unknown_fields)]
pub enum SweepSource {
    /// One row of scores, as given.
    Logits { logits: Vec<Number> },
    /// Rows of random scores.
    Drawn {
        /// What rows are drawn from, before they are moved and scaled.
        #[schemars(schema_with = "super::schema_parts::family")]
        distribution: &'static str,
        /// Keys of a row.
        keys: usize,
        /// Norm of a row.
        norm: Number,
        /// Mean of a row.
        mean: Number,
        /// Standard deviation of a row.
        std: Number,
        /// How many rows were drawn.
        draws: usize,
        seed: u64,
    },
    /// Rows of a checkpoint's heads on a prompt.
    Checkpoint {
        /// Base name of the checkpoint.
        model: String,
        /// Stack of the layer; null for the only stack.
        #[schemars(schema_with = "super::schema_parts::stack")]
        stack: Option<&'static str>,
        /// Index of the layer, from 0.
        layer: usize,
        /// Index of the head; null for all heads of the layer.
        head: Option<usize>,
        /// Index of the query; null for all queries.
        query: Option<usize>,
        /// What-ifs that were on, as they were written; left out where there are none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        what_if: Vec<String>,
    },
}

/// Concentration of a softmax at each scale of its scores.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct Document<'a> {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    #[schemars(extend("const" = "sweep"))]
    command: &'static str,
    source: &'a SweepSource,
    /// Rows that count; the others see fewer than two keys or hold a NaN.
    rows: u64,
    /// Rows that see fewer than two keys.
    rows_of_one_key: u64,
    /// Rows that hold a NaN.
    rows_not_finite: u64,
    points: Vec<PointRecord<'a>>,
}

/// Figures at one scale, over all rows.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PointRecord<'a> {
    /// What the scores are multiplied by.
    scale: Number,
    /// What the scale means, where it has a meaning.
    mark: Option<&'a str>,
    /// The largest weight of a row.
    max_probability: AveragedRecord,
    /// Entropy in nats.
    entropy: AveragedRecord,
    /// Entropy divided by the logarithm of the number of keys.
    relative_entropy: AveragedRecord,
    /// e to the entropy.
    perplexity: AveragedRecord,
    /// Trace of the Jacobian of the softmax, Σ p(1 − p).
    jacobian_trace: AveragedRecord,
}

/// Mean and standard deviation over rows.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct AveragedRecord {
    mean: Number,
    std: Number,
}

impl From<Averaged> for AveragedRecord {
    fn from(of: Averaged) -> Self {
        Self {
            mean: Number(of.mean),
            std: Number(of.std),
        }
    }
}

table_row! {
    /// Figures at one scale: means over rows, and their standard deviations.
    struct SweepRow {
        scale: f64, "", "factor of the scores";
        mark: Option<String>, "", "meaning of the scale, if it has one";
        max_probability: f64, "", "largest weight of a row";
        max_probability_std: f64, "", "its standard deviation over rows";
        entropy: f64, "nats", "entropy";
        entropy_std: f64, "nats", "its standard deviation over rows";
        relative_entropy: f64, "", "entropy divided by the logarithm of the number of keys";
        relative_entropy_std: f64, "", "its standard deviation over rows";
        perplexity: f64, "keys", "e to the entropy";
        perplexity_std: f64, "keys", "its standard deviation over rows";
        jacobian_trace: f64, "", "trace of the Jacobian of the softmax, Σ p(1 − p)";
        jacobian_trace_std: f64, "", "its standard deviation over rows";
    }
}

impl SweepShown {
    fn mark_of(&self, scale: f64) -> Option<&str> {
        let mark = self.marks.iter().find(|mark| is_at(mark, scale));
        mark.map(|mark| mark.label.as_str())
    }

    /// Writes the document, indented, with a newline at the end.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        let points = self.sweep.points();
        let point = |point: &SweepPoint| PointRecord {
            scale: Number(point.scale),
            mark: self.mark_of(point.scale),
            max_probability: point.max_probability.into(),
            entropy: point.entropy.into(),
            relative_entropy: point.relative_entropy.into(),
            perplexity: point.perplexity.into(),
            jacobian_trace: point.jacobian_trace.into(),
        };
        let document = Document {
            version: VERSION,
            command: "sweep",
            source: &self.source,
            rows: self.sweep.n_rows(),
            rows_of_one_key: self.sweep.n_single(),
            rows_not_finite: self.sweep.n_not_finite(),
            points: points.iter().map(point).collect(),
        };
        write_pretty(&document, to)
    }

    /// Returns one row for each scale.
    pub fn rows(&self) -> Table {
        let row = |point: SweepPoint| SweepRow {
            scale: point.scale,
            mark: self.mark_of(point.scale).map(str::to_owned),
            max_probability: point.max_probability.mean,
            max_probability_std: point.max_probability.std,
            entropy: point.entropy.mean,
            entropy_std: point.entropy.std,
            relative_entropy: point.relative_entropy.mean,
            relative_entropy_std: point.relative_entropy.std,
            perplexity: point.perplexity.mean,
            perplexity_std: point.perplexity.std,
            jacobian_trace: point.jacobian_trace.mean,
            jacobian_trace_std: point.jacobian_trace.std,
        };
        // Marks are words of this program: no spreadsheet would compute them.
        Table::of(self.sweep.points().into_iter().map(row))
    }

    /// Formats the numbers at round scales, at the ends and at marks. With several rows, some columns show the spread as well:
    /// not all of them would fit into 80 columns.
    pub fn table(&self) -> String {
        let points = self.sweep.points();
        let ends = points.first().zip(points.last());
        let (from, to) = ends.map_or((1.0, 1.0), |(a, b)| (a.scale, b.scale));
        let round = round_scales(from, to);
        let is_shown = |point: &&SweepPoint| {
            let is_end = point.scale == from || point.scale == to;
            is_end || round.contains(&point.scale) || self.mark_of(point.scale).is_some()
        };
        let with_spread = self.sweep.n_rows() > 1;
        let rows = points.iter().filter(is_shown).map(|point| {
            let mut row = vec![tick(point.scale)];
            let [
                max_probability,
                entropy,
                relative_entropy,
                perplexity,
                trace,
            ] = figures_of(point);
            let spread = |of: Averaged, decimals: usize| {
                if with_spread {
                    format!("{:.decimals$} ±{:.decimals$}", of.mean, of.std)
                } else {
                    digits(of.mean)
                }
            };
            row.extend([
                spread(max_probability, 3),
                digits(entropy.mean),
                digits(relative_entropy.mean),
                spread(perplexity, 2),
                spread(trace, 3),
            ]);
            row.push(self.mark_of(point.scale).unwrap_or_default().to_owned());
            row
        });
        let titles = [
            "scale",
            "max p",
            "entropy",
            "H/log n",
            "keys used",
            "tr J",
            "",
        ];
        text_table(&titles, &rows.collect::<Vec<_>>())
    }

    /// Plots largest probability, entropy and Jacobian against the scale.
    pub fn figure(&self) -> Figure {
        let points = self.sweep.points();
        type Named = (&'static str, fn(&SweepPoint) -> Averaged);
        let figures: [Named; 3] = [
            ("max probability", |point| point.max_probability),
            ("entropy / log n", |point| point.relative_entropy),
            ("Jacobian trace", |point| point.jacobian_trace),
        ];
        let mut series = Vec::new();
        for (name, figure) in figures {
            let line = series.len();
            let along = |value: fn(Averaged) -> f64| -> Vec<(f64, f64)> {
                let points = points.iter();
                points
                    .map(|point| (point.scale, value(figure(point))))
                    .collect()
            };
            series.push(Series::line(name, along(|of| of.mean)));
            if self.sweep.n_rows() > 1 {
                let edges: [fn(Averaged) -> f64; 2] =
                    [|of| of.mean - of.std, |of| of.mean + of.std];
                for edge in edges {
                    let is_first = series.len() == 1;
                    let name = if is_first {
                        "± deviation over rows"
                    } else {
                        ""
                    };
                    series.push(Series {
                        name: name.to_owned(),
                        stroke: Stroke::Edge { of: line },
                        points: along(edge),
                    });
                }
            }
        }
        let chart = Chart {
            title: self.of.clone(),
            x: Axis::logarithmic("scale that the scores are multiplied by"),
            y: Axis::linear("share").from(0.0).to(1.0),
            series,
            marks: self.marks.clone(),
        };
        Figure {
            title: "softmax against the scale of its scores".to_owned(),
            charts: vec![chart],
            n_columns: 1,
        }
    }
}

fn is_at(mark: &Mark, scale: f64) -> bool {
    (mark.at / scale - 1.0).abs() < 1e-9
}

fn figures_of(point: &SweepPoint) -> [Averaged; 5] {
    [
        point.max_probability,
        point.entropy,
        point.relative_entropy,
        point.perplexity,
        point.jacobian_trace,
    ]
}

/// Formats a scale as the user typed it, shortened if it is long.
fn tick(scale: f64) -> String {
    match format!("{scale}") {
        text if text.len() <= 8 => text,
        _ => digits(scale),
    }
}

/// Label of the current scale, a factor of 1.
pub const NOW: &str = "now";

/// Returns marks of other scaling rules, as factors of the current scores; the current scale comes first.
pub fn rule_marks(spec: &AttentionSpec) -> Vec<Mark> {
    let factor = f64::from(spec.scale.factor(spec.d_head));
    let root = 1.0 / (spec.d_head as f64).sqrt();
    let mark = |at: f64, label: &str| Mark {
        at,
        label: label.to_owned(),
    };
    let is_now = |at: f64| (at - 1.0).abs() < 1e-6;
    let mut marks = vec![mark(1.0, NOW)];
    for (at, label) in [(root / factor, "1/√d"), (1.0 / factor, "unscaled")] {
        if is_now(at) {
            marks[0].label = format!("{}, {label}", marks[0].label)
        } else {
            marks.push(mark(at, label))
        }
    }
    marks.retain(|mark| mark.at.is_finite() && mark.at > 0.0);
    marks
}

/// Returns the mark of QK-norm: norms of √d give scores of √d·cos, while these rows have scale·‖q‖‖k‖·cos.
pub fn qk_norm_mark<'a>(
    spec: &AttentionSpec,
    rows: impl Iterator<Item = &'a RowSummary>,
) -> Option<Mark> {
    let (sum, n_pairs) = rows.fold((0.0, 0.0), |(sum, n), row| {
        let q = f64::from(row.q_norm);
        (
            sum + q * q * f64::from(row.k_norm_sq_sum),
            n + f64::from(row.n_visible),
        )
    });
    let scale = f64::from(spec.scale.factor(spec.d_head));
    let at = (spec.d_head as f64).sqrt() / (scale * (sum / n_pairs).sqrt());
    (at.is_finite() && at > 0.0).then(|| Mark {
        at,
        label: "QK-norm".to_owned(),
    })
}
