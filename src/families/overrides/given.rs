//! A value that a person gave.

use attnscope_compute::attention::{RopeDirection, Scale, SoftmaxAxis};
use serde_json::Value;

use crate::reading::described::Layers;

/// A value that a person gave, checked.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Given {
    /// Stands in the configuration; families read it under names of their own.
    Config(Value),
    Scale(Scale),
    SoftmaxAxis(SoftmaxAxis),
    Causal(bool),
    Window(Option<usize>),
    /// Which layers keep their window: every so many, from one on.
    WindowLayers(usize, usize),
    Softcap(Option<f32>),
    RopeTheta(f64),
    WindowRopeTheta(f64),
    RopeInterleaved(bool),
    RopeDirection(RopeDirection),
    NoPositions,
    LogitScale(f32),
    LogitSoftcap(Option<f32>),
}

/// What `pooled` takes.
pub(super) const LAYERS: &str = "STEP*i+FIRST, or the numbers of layers, as in 0 2 5";

/// Which layers have a part of a described model.
pub(super) fn layers(text: &str) -> Option<Given> {
    Layers::read(text).map(|_| Given::Config(text.into()))
}

pub(super) const POOLED: &str = "no, first, last, mean, max or mean from N";

/// Which positions a head reads.
pub(super) fn pooled(text: &str) -> Option<Given> {
    let from = text.strip_prefix("mean from ").map(str::parse::<usize>);
    let is_known = match from {
        Some(first) => first.is_ok(),
        None => ["no", "first", "last", "mean", "max"].contains(&text),
    };
    is_known.then(|| Given::Config(text.into()))
}
