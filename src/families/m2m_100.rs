//! M2M-100 and NLLB: mBART with sinusoidal positions counted over tokens that are not padding.

use super::Family;
use super::reading::bart_like::{BartLike, Positions};

pub const FAMILY: Family = Family::translator("m2m_100", "M2M100", || BartLike {
    positions: Positions::SinusoidNotPad,
    norms_before: true,
    tied_alone: true,
    activation: "relu",
    scales: Some(true),
    ..BartLike::PLAIN
});
