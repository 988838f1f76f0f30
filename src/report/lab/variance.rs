//! Variance of q·k and gradients of a softmax: the numbers as tables, JSON and CSV, and as a figure.

use std::io::{self, Write};

use attnscope_studies::lab::{
    GrowthPoint, Jacobians, ProductVariance, Saturation, VarianceLab, VarianceSetup,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Components, VERSION};
use crate::chart::{Axis, Chart, Figure, Mark, Series};
use crate::json::write_pretty;
use crate::number::Number;
use crate::table::Table;
use crate::table_row;
use crate::text_table::{digits, text_table};

/// The variance of q·k and the gradients of a softmax, for several widths.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct VarianceReport {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    #[schemars(extend("const" = "lab variance"))]
    command: &'static str,
    seed: u64,
    components: Components,
    /// Pairs of a query and a key for each width.
    samples: usize,
    /// Keys of a row.
    keys: usize,
    /// Rows for each width.
    rows: usize,
    widths: Vec<WidthRecord>,
    /// The largest width, with scores that grow.
    growth: Vec<GrowthRecord>,
    /// What the numbers say, in sentences.
    says: Vec<String>,
}

/// Figures of one width.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct WidthRecord {
    /// Width of queries and keys.
    d: usize,
    /// The products q·k.
    product: ProductRecord,
    /// The products divided by √d.
    scaled: ProductRecord,
    /// The products divided by √d, with queries and keys brought to the norm √d before.
    qk_norm: ProductRecord,
    /// The softmax over the products.
    jacobian_unscaled: JacobianRecord,
    /// The softmax over the products divided by √d.
    jacobian_scaled: JacobianRecord,
    /// The softmax over `qk_norm`.
    jacobian_qk_norm: JacobianRecord,
    /// Through a hard argmax no gradient comes back.
    jacobian_argmax: Number,
}

/// Moments of products.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ProductRecord {
    mean: Number,
    variance: Number,
    /// Standard error of the variance.
    standard_error: Number,
    /// The variance that theory predicts; null where it predicts none.
    predicted: Option<Number>,
}

/// Norms of the Jacobian of a softmax, averaged over rows.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct JacobianRecord {
    trace: Number,
    /// Frobenius norm.
    frobenius: Number,
    /// Spectral norm.
    spectral: Number,
    /// The largest weight of a row.
    max_probability: Number,
}

/// Figures with scores that were multiplied.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct GrowthRecord {
    /// What the scores were multiplied by.
    growth: Number,
    /// Standard deviation of the scores.
    score_std: Number,
    jacobian: JacobianRecord,
}

impl From<&ProductVariance> for ProductRecord {
    fn from(of: &ProductVariance) -> Self {
        Self {
            mean: Number(of.mean),
            variance: Number(of.variance),
            standard_error: Number(of.standard_error),
            predicted: of.predicted.map(Number),
        }
    }
}

impl From<&Jacobians> for JacobianRecord {
    fn from(of: &Jacobians) -> Self {
        Self {
            trace: Number(of.trace),
            frobenius: Number(of.frobenius),
            spectral: Number(of.spectral),
            max_probability: Number(of.max_probability),
        }
    }
}

/// Returns the moments of q·k/√d, computed from those of q·k for the same pairs.
pub(super) fn scaled(of: &Saturation) -> ProductVariance {
    let d = of.d as f64;
    ProductVariance {
        mean: of.product.mean / d.sqrt(),
        variance: of.product.variance / d,
        standard_error: of.product.standard_error / d,
        predicted: of.product.predicted.map(|variance| variance / d),
    }
}

impl VarianceReport {
    pub fn of(setup: &VarianceSetup, lab: &VarianceLab, says: Vec<String>) -> Self {
        let width = |of: &Saturation| WidthRecord {
            d: of.d,
            product: ProductRecord::from(&of.product),
            scaled: ProductRecord::from(&scaled(of)),
            qk_norm: ProductRecord::from(&of.normed),
            jacobian_unscaled: JacobianRecord::from(&of.unscaled),
            jacobian_scaled: JacobianRecord::from(&of.scaled),
            jacobian_qk_norm: JacobianRecord::from(&of.with_qk_norm),
            jacobian_argmax: Number(0.0),
        };
        let growth = |of: &GrowthPoint| GrowthRecord {
            growth: Number(of.growth),
            score_std: Number(of.score_std),
            jacobian: JacobianRecord::from(&of.softmax),
        };
        Self {
            version: VERSION,
            command: "lab variance",
            seed: setup.seed,
            components: Components::from(&setup.components),
            samples: setup.n_pairs,
            keys: setup.n_keys,
            rows: setup.n_rows,
            widths: lab.widths.iter().map(width).collect(),
            growth: lab.growth.iter().map(growth).collect(),
            says,
        }
    }
}

/// Writes the document, indented, with a newline at the end.
///
/// # Errors
/// When the target cannot be written.
pub fn write_variance_json(report: &VarianceReport, to: &mut impl Write) -> io::Result<()> {
    write_pretty(report, to)
}

/// Returns one row per width and treatment of q·k, then one for each growth factor at the largest width.
pub fn variance_rows(lab: &VarianceLab) -> Table {
    let row = |d: usize, scores: &'static str, growth: f64, norms: &Jacobians| VarianceRow {
        d,
        scores,
        growth,
        trace: norms.trace,
        frobenius: norms.frobenius,
        spectral: norms.spectral,
        max_probability: norms.max_probability,
        ..VarianceRow::default()
    };
    let widths = lab.widths.iter().flat_map(|of| {
        let kinds = [
            ("none", of.product, of.unscaled),
            ("inv_sqrt_d", scaled(of), of.scaled),
            ("qk_norm", of.normed, of.with_qk_norm),
        ];
        kinds.map(|(kind, product, norms)| VarianceRow {
            mean: Some(product.mean),
            variance: product.variance,
            standard_error: Some(product.standard_error),
            predicted: product.predicted,
            ..row(of.d, kind, 1.0, &norms)
        })
    });
    let widest = lab.widths.iter().map(|of| of.d).max().unwrap_or(0);
    let growth = lab.growth.iter().map(|of| VarianceRow {
        variance: of.score_std * of.score_std,
        ..row(widest, "inv_sqrt_d", of.growth, &of.softmax)
    });
    Table::of(widths.chain(growth))
}

table_row! {
    /// Moments of scores, and the softmax over them.
    struct VarianceRow {
        d: usize, "", "width of queries and keys";
        scores: &'static str, "", "how scores come from q·k";
        growth: f64, "", "factor of the scores";
        mean: Option<f64>, "", "mean of the scores";
        variance: f64, "", "variance of the scores";
        standard_error: Option<f64>, "", "standard error of the variance";
        predicted: Option<f64>, "", "variance that theory predicts";
        trace: f64, "", "mean trace of the softmax Jacobian";
        frobenius: f64, "", "its mean Frobenius norm";
        spectral: f64, "", "its mean spectral norm";
        max_probability: f64, "", "mean of the largest weight of a row";
    }
}

/// Legend of the first table's columns.
pub const VARIANCE_COLUMNS: &str = "variances: of q·k with its standard error, predicted, of q·k/√d (÷ d), of q·k/√d with QK-norm; \
    tr J: mean trace of the softmax Jacobian over rows of q·k, of q·k/√d (÷ √d), of q·k/√d with QK-norm";

/// Formats the measured and predicted variances, a line for each width.
pub fn variance_table(lab: &VarianceLab) -> String {
    let titles = [
        "d",
        "Var(q·k)",
        "std err",
        "predicted",
        "÷ d",
        "QK-norm",
        "tr J",
        "÷ √d",
        "QK-norm",
    ];
    let row = |of: &Saturation| {
        let scaled = scaled(of);
        let figures = [
            of.product.variance,
            of.product.standard_error,
            of.product.predicted.unwrap_or(f64::NAN),
            scaled.variance,
            of.normed.variance,
            of.unscaled.trace,
            of.scaled.trace,
            of.with_qk_norm.trace,
        ];
        std::iter::once(of.d.to_string())
            .chain(figures.map(short))
            .collect()
    };
    text_table(&titles, &lab.widths.iter().map(row).collect::<Vec<_>>())
}

/// At most three decimals: nine columns have to fit into 80 characters.
fn short(value: f64) -> String {
    match value.abs() {
        size if (5e-5..10.0).contains(&size) => format!("{value:.3}"),
        _ => digits(value),
    }
}

/// Formats the Jacobian's norms as scores grow, at powers of two.
pub fn growth_table(lab: &VarianceLab) -> String {
    let titles = [
        "growth",
        "score std",
        "tr J",
        "|J|_F",
        "|J|_2",
        "max p",
        "argmax",
    ];
    // A power of two has a zero mantissa.
    let is_round = |of: &&GrowthPoint| of.growth.to_bits() << 12 == 0;
    let rows = lab.growth.iter().filter(is_round).map(|of| {
        let norms = of.softmax;
        let figures = [
            of.score_std,
            norms.trace,
            norms.frobenius,
            norms.spectral,
            norms.max_probability,
            0.0,
        ];
        std::iter::once(of.growth.to_string())
            .chain(figures.map(digits))
            .collect()
    });
    text_table(&titles, &rows.collect::<Vec<Vec<String>>>())
}

/// Plots variance against width, and norms of the Jacobian against growth.
pub fn variance_figure(setup: &VarianceSetup, lab: &VarianceLab) -> Figure {
    let by_width = |figure: fn(&Saturation) -> f64| -> Vec<(f64, f64)> {
        lab.widths
            .iter()
            .map(|of| (of.d as f64, figure(of)))
            .collect()
    };
    let variances = Chart {
        title: "variance of the scores".to_owned(),
        x: Axis::logarithmic("d, width of q and k"),
        y: Axis::logarithmic("variance"),
        series: vec![
            Series::dots("q·k", by_width(|of| of.product.variance)),
            Series::line(
                "predicted",
                by_width(|of| of.product.predicted.unwrap_or(f64::NAN)),
            ),
            Series::dots("q·k/√d", by_width(|of| scaled(of).variance)),
            Series::dots("QK-norm", by_width(|of| of.normed.variance)),
        ],
        marks: Vec::new(),
    };
    let by_growth = |figure: fn(&Jacobians) -> f64| -> Vec<(f64, f64)> {
        let points = lab.growth.iter();
        points.map(|of| (of.growth, figure(&of.softmax))).collect()
    };
    let widest = lab.widths.iter().max_by_key(|of| of.d);
    let normed = widest.map_or(f64::NAN, |of| of.with_qk_norm.trace);
    let level = |value: f64| lab.growth.iter().map(|of| (of.growth, value)).collect();
    let d = widest.map_or(1, |of| of.d);
    let gradients = Chart {
        title: format!("softmax Jacobian, d = {d}, {} keys", setup.n_keys),
        x: Axis::logarithmic("growth of q·k/√d"),
        y: Axis::linear("mean over rows").from(0.0).to(1.0),
        series: vec![
            Series::line("trace", by_growth(|norms| norms.trace)),
            Series::line("Frobenius", by_growth(|norms| norms.frobenius)),
            Series::line("spectral", by_growth(|norms| norms.spectral)),
            Series::line("trace, QK-norm", level(normed)),
            Series::line("argmax", level(0.0)),
        ],
        marks: vec![
            Mark {
                at: 1.0,
                label: "1/√d".to_owned(),
            },
            Mark {
                at: (d as f64).sqrt(),
                label: "unscaled".to_owned(),
            },
        ],
    };
    Figure {
        title: format!(
            "why scores are scaled: {}({}, {}) components, seed {}",
            setup.components.family.id(),
            setup.components.mean,
            setup.components.std,
            setup.seed
        ),
        charts: vec![variances, gradients],
        n_columns: 2,
    }
}
