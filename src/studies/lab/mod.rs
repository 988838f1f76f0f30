//! Seeded simulations of attention without a checkpoint: effects of scaling on scores, weights and gradients.

mod divisor;
mod drawn;
mod matching;
mod rescale;
mod room;
mod variance;

pub use attnscope_compute::sample::{Density, Distribution, Family, Shape, ks_distance};
pub use divisor::Divisor;
pub use drawn::{Drawn, Wanted, sweep_drawn};
pub use matching::{Lookup, LookupGradients, Match, MatchPoint, MatchSetup, Similarity, match_lab};
pub use rescale::{RescaleSetup, Rescaled, Rescaling, Totals, rescale};
pub use variance::{
    GrowthPoint, Jacobians, ProductVariance, Saturation, VarianceLab, VarianceSetup, variance_lab,
};
