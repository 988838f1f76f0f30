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

fn mean_of(norms: &[f32]) -> f64 {
    mean(norms.iter().map(|norm| f64::from(*norm)))
}
