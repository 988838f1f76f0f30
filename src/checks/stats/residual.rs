//! The residual stream, layer by layer.

use super::{Compute, Span, Statistic, mean};

const STREAM: &str = "norms of the residual stream and of what each branch adds to it";

pub static RESID_NORM: Statistic = Statistic {
    id: "resid_norm",
    title: "‖residual‖",
    unit: "",
    span: Span::Positive,
    low: "small",
    high: "large",
    definition: "mean over tokens of ‖resid_post‖",
    source: STREAM,
    compute: Compute::Layer(|layer| mean_of(layer.resid_post)),
};

pub static ATTN_OUT_NORM: Statistic = Statistic {
    id: "attn_out_norm",
    title: "‖attention out‖",
    unit: "",
    span: Span::Positive,
    low: "adds little",
    high: "adds much",
    definition: "mean over tokens of ‖attn_out‖, what attention adds to the residual",
    source: STREAM,
    compute: Compute::Layer(|layer| mean_of(layer.attn_out)),
};

pub static MLP_OUT_NORM: Statistic = Statistic {
    id: "mlp_out_norm",
    title: "‖mlp out‖",
    unit: "",
    span: Span::Positive,
    low: "adds little",
    high: "adds much",
    definition: "mean over tokens of ‖mlp_out‖, what the feed-forward layer adds to the residual",
    source: STREAM,
    compute: Compute::Layer(|layer| mean_of(layer.mlp_out)),
};

const COLLAPSE: &str =
    "rank collapse, Dong et al. 2021, arXiv 2103.03404 (there the composite 1-∞ norm)";

pub static SPREAD: Statistic = Statistic {
    id: "resid_spread",
    title: "residual spread",
    unit: "",
    span: Span::Share,
    low: "all tokens alike",
    high: "tokens differ",
    definition: "‖X − 1x̄ᵀ‖ / ‖X‖ of resid_post over tokens, Frobenius, x̄ the mean row",
    source: COLLAPSE,
    compute: Compute::Layer(|layer| {
        let shape = layer.residual.filter(|shape| shape.max_abs != 0.0)?;
        Some(shape.spread)
    }),
};

pub static COSINE: Statistic = Statistic {
    id: "resid_cosine",
    title: "residual cosine",
    unit: "",
    span: Span::Signed,
    low: "tokens differ",
    high: "all tokens alike",
    definition: "mean cosine of two different rows of resid_post",
    source: COLLAPSE,
    compute: Compute::Layer(|layer| {
        let shape = layer.residual.filter(|shape| shape.n_rows > 1)?;
        Some(shape.cosine)
    }),
};

const MASSIVE: &str = "massive activations, Sun et al. 2024, arXiv 2402.17762";

pub static MAX_ABS: Statistic = Statistic {
    id: "resid_max_abs",
    title: "max |residual|",
    unit: "",
    span: Span::Positive,
    low: "tame",
    high: "massive activation",
    definition: "largest |value| of resid_post",
    source: MASSIVE,
    compute: Compute::Layer(|layer| layer.residual.map(|shape| shape.max_abs)),
};

pub static MEDIAN_ABS: Statistic = Statistic {
    id: "resid_median_abs",
    title: "median |residual|",
    unit: "",
    span: Span::Positive,
    low: "small",
    high: "large",
    definition: "median of |resid_post|; of an even number of values the upper of the two in the middle",
    source: MASSIVE,
    compute: Compute::Layer(|layer| layer.residual.map(|shape| shape.median_abs)),
};

/// The mean of norms; `None` without any.
fn mean_of(norms: &[f32]) -> Option<f64> {
    let norms = norms.iter().map(|norm| f64::from(*norm));
    (norms.len() > 0).then(|| mean(norms))
}
