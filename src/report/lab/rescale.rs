//! Attention scores under different divisors: the numbers as table, JSON and CSV, and the densities as a figure.

use std::io::{self, Write};

use attnscope_compute::sample::{Density, Distribution, Shape};
use attnscope_studies::lab::{Divisor, RescaleSetup, Rescaled, Rescaling};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Components, VERSION};
use crate::chart::{Axis, Chart, Figure, Series};
use crate::json::write_pretty;
use crate::number::Number;
use crate::table::Table;
use crate::table_row;
use crate::text_table::{digits, share_digits, text_table};

/// Softmax weights under several divisors of the scores.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RescaleReport {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    #[schemars(extend("const" = "lab rescale"))]
    command: &'static str,
    seed: u64,
    components: Components,
    cases: Vec<CaseRecord>,
    /// What the numbers say, in sentences.
    says: Vec<String>,
}

/// Figures of one width and number of keys.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct CaseRecord {
    /// Width of queries and keys.
    d: usize,
    /// Keys of a row.
    keys: usize,
    /// How many rows were drawn.
    queries: usize,
    /// Scores of the first key, before they are divided.
    first_score: ShapeRecord,
    divisors: Vec<DivisorRecord>,
}

/// Figures under one divisor of the scores.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct DivisorRecord {
    /// Id of the divisor, as in `--divisors`.
    divisor: String,
    formula: String,
    /// The number that scores are divided by.
    value: Number,
    /// Standard deviation of the divided scores over all queries and keys.
    score_std: Number,
    /// The first key's weight over the queries.
    first_weight: ShapeRecord,
    /// Kolmogorov–Smirnov distance of the first key's standardised weight to its standardised score.
    first_ks: Number,
    /// Mean over the keys of their weights' skewness.
    skewness: Number,
    /// Mean over the keys of the Kolmogorov–Smirnov distance.
    ks: Number,
    /// Mean over the queries of the entropy divided by the logarithm of the number of keys.
    relative_entropy: Number,
    /// Mean over the queries of the largest weight.
    max_probability: Number,
    /// Mean over the queries of the Jacobian's trace, Σ p(1 − p).
    jacobian_trace: Number,
    /// The Jacobian's trace divided by the divisor: how much of a gradient arrives at q·k.
    product_gradient: Number,
    /// Distance of the weights from the straight line that softmax has around equal scores; 0 on the line.
    curvature: Number,
}

/// The distribution of a value over rows.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ShapeRecord {
    mean: Number,
    std: Number,
    skewness: Number,
    /// Bandwidth of the kernel density estimate; null where all values are alike.
    bandwidth: Option<Number>,
    /// Pairs of a value and its density; left out where they are not drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<[Number; 2]>")]
    density: Option<Vec<[Number; 2]>>,
}

impl ShapeRecord {
    fn of(shape: &Shape, density: Option<&Density>, is_drawn: bool) -> Self {
        let points = |density: &Density| {
            let points = density.points.iter();
            points.map(|(x, y)| [Number(*x), Number(*y)]).collect()
        };
        Self {
            mean: Number(shape.mean),
            std: Number(shape.std),
            skewness: Number(shape.skewness),
            bandwidth: density.map(|density| Number(density.bandwidth)),
            density: density.filter(|_| is_drawn).map(points),
        }
    }
}

impl RescaleReport {
    /// Builds the document, with densities for the divisors in `drawn`.
    pub fn of(
        setup: &RescaleSetup,
        cases: &[Rescaled],
        drawn: &[Divisor],
        says: Vec<String>,
    ) -> Self {
        let divisor = |of: &Rescaling| DivisorRecord {
            divisor: of.divisor.id().into_owned(),
            formula: of.divisor.formula().into_owned(),
            value: Number(of.value),
            score_std: Number(of.score_std),
            first_weight: ShapeRecord::of(
                &of.first_weight,
                of.first_weight_density.as_ref(),
                drawn.contains(&of.divisor),
            ),
            first_ks: Number(of.first_ks),
            skewness: Number(of.skewness),
            ks: Number(of.ks),
            relative_entropy: Number(of.relative_entropy),
            max_probability: Number(of.max_probability),
            jacobian_trace: Number(of.jacobian_trace),
            product_gradient: Number(of.product_gradient),
            curvature: Number(of.curvature),
        };
        let case = |case: &Rescaled| CaseRecord {
            d: case.d,
            keys: case.n_keys,
            queries: case.n_queries,
            first_score: ShapeRecord::of(
                &case.first_score,
                case.first_score_density.as_ref(),
                !drawn.is_empty(),
            ),
            divisors: case.of.iter().map(divisor).collect(),
        };
        Self {
            version: VERSION,
            command: "lab rescale",
            seed: setup.seed,
            components: Components::from(&setup.components),
            cases: cases.iter().map(case).collect(),
            says,
        }
    }
}

/// Writes the document, indented, with a newline at the end.
///
/// # Errors
/// When the target cannot be written.
pub fn write_rescale_json(report: &RescaleReport, to: &mut impl Write) -> io::Result<()> {
    write_pretty(report, to)
}

/// Returns one row per case and divisor.
pub fn rescale_rows(cases: &[Rescaled]) -> Table {
    let rows = cases.iter().flat_map(|case| {
        case.of.iter().map(|of| RescaleRow {
            d: case.d,
            keys: case.n_keys,
            queries: case.n_queries,
            divisor: of.divisor.id().into_owned(),
            value: of.value,
            score_std: of.score_std,
            first_skewness: of.first_weight.skewness,
            first_ks: of.first_ks,
            skewness: of.skewness,
            ks: of.ks,
            relative_entropy: of.relative_entropy,
            max_probability: of.max_probability,
            jacobian_trace: of.jacobian_trace,
            product_gradient: of.product_gradient,
            curvature: of.curvature,
        })
    });
    Table::of(rows)
}

table_row! {
    /// Figures of one case under one divisor of the scores; `DivisorRecord` describes them.
    struct RescaleRow {
        d: usize, "", "width of queries and keys";
        keys: usize, "", "keys of a row";
        queries: usize, "", "rows that were drawn";
        divisor: String, "", "id of the divisor";
        value: f64, "", "number that scores are divided by";
        score_std: f64, "", "standard deviation of the divided scores";
        first_skewness: f64, "", "skewness of the first key's weight over the queries";
        first_ks: f64, "", "Kolmogorov-Smirnov distance of the first key's weight to its score, both standardised";
        skewness: f64, "", "mean skewness of a key's weight";
        ks: f64, "", "mean Kolmogorov-Smirnov distance";
        relative_entropy: f64, "", "mean entropy, of the logarithm of the number of keys";
        max_probability: f64, "", "mean of the largest weight of a row";
        jacobian_trace: f64, "", "mean trace of the softmax Jacobian";
        product_gradient: f64, "", "that trace, divided by the divisor";
        curvature: f64, "", "distance of the weights from the tangent of softmax";
    }
}

const TITLES: [&str; 9] = [
    "divided by",
    "value",
    "std",
    "skewness",
    "KS",
    "H/log n",
    "max p",
    "tr J",
    "tr J/c",
];

/// Legend of the tables' columns.
pub const COLUMNS: &str = "std: of the divided scores; skewness of a key's weight over the queries, and Kolmogorov-Smirnov distance of the \
    standardised weight to the standardised score (means over the keys); H: entropy of a row, max p: its largest weight, tr J: trace of \
    its softmax Jacobian (means over the queries); tr J/c: what of a gradient arrives at q·k, c being the divisor";

fn cells(of: &Rescaling) -> [String; 9] {
    [
        of.divisor.formula().into_owned(),
        digits(of.value),
        digits(of.score_std),
        digits(of.skewness),
        digits(of.ks),
        share_digits(of.relative_entropy),
        digits(of.max_probability),
        digits(of.jacobian_trace),
        digits(of.product_gradient),
    ]
}

/// Formats the numbers of one case, a line for each divisor.
pub fn rescale_table(case: &Rescaled) -> String {
    let rows: Vec<Vec<String>> = case.of.iter().map(|of| cells(of).to_vec()).collect();
    text_table(&TITLES, &rows)
}

/// Formats several cases in one table: a line for each width, number of keys and divisor.
pub fn sweep_table(cases: &[Rescaled]) -> String {
    let titles = [
        "d",
        "keys",
        "divided by",
        "skewness",
        "KS",
        "H/log n",
        "max p",
        "tr J",
        "tr J/c",
    ];
    let rows = cases.iter().flat_map(|case| {
        case.of.iter().map(|of| {
            let [formula, _, _, figures @ ..] = cells(of);
            let sizes = [case.d.to_string(), case.n_keys.to_string(), formula];
            sizes.into_iter().chain(figures).collect()
        })
    });
    text_table(&titles, &rows.collect::<Vec<Vec<String>>>())
}

/// Plots densities side by side: the score of the first key, then its weight under each divisor. Panels of the write-up have its numbers.
pub fn rescale_figure(setup: &RescaleSetup, case: &Rescaled, drawn: &[Divisor]) -> Figure {
    let Distribution { family, mean, std } = setup.components;
    let is_standard = setup.components == Distribution::STANDARD_NORMAL;
    let is_write_up = is_standard && case.n_keys == 32 && case.n_queries == 500;
    let panel_of = |divisor: Option<Divisor>| match (is_write_up, case.d, divisor) {
        (true, 16, None) => "1a · ",
        (true, 16, Some(Divisor::None)) => "1b · ",
        (true, 16, Some(Divisor::SqrtD)) => "1c · ",
        (true, 256, None) => "2a · ",
        (true, 256, Some(Divisor::SqrtD)) => "2b · ",
        (true, 256, Some(Divisor::SumKeyNorms)) => "2c · ",
        _ => "",
    };
    let chart = |title: String, x: &str, density: Option<&Density>| Chart {
        title,
        x: Axis::linear(x),
        y: Axis::linear("density").from(0.0),
        series: vec![Series::area(
            "density",
            density.map_or(Vec::new(), |density| density.points.clone()),
        )],
        marks: Vec::new(),
    };
    let score = chart(
        format!("{}q·k", panel_of(None)),
        "score",
        case.first_score_density.as_ref(),
    );
    let weights = drawn.iter().filter_map(|divisor| case.by(*divisor));
    let weights = weights.map(|of| {
        let what = match of.divisor {
            Divisor::None => "softmax".to_owned(),
            divisor => format!("softmax ÷ {}", short(divisor)),
        };
        let panel = panel_of(Some(of.divisor));
        chart(
            format!("{panel}{what}"),
            "weight",
            of.first_weight_density.as_ref(),
        )
    });
    let charts: Vec<Chart> = std::iter::once(score).chain(weights).collect();
    Figure {
        title: format!(
            "d = {}: first of {} keys, {} queries, {}({mean}, {std}), seed {}",
            case.d,
            case.n_keys,
            case.n_queries,
            family.id(),
            setup.seed
        ),
        n_columns: charts.len().min(4),
        charts,
    }
}

/// Returns a formula short enough for a title.
pub(super) fn short(divisor: Divisor) -> String {
    match divisor {
        Divisor::PNorm(p) => format!("{p}-norm"),
        divisor => divisor.formula().into_owned(),
    }
}
