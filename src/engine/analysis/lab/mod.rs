//! Simulations of attention without a checkpoint: what scaling does to scores, weights and gradients, from a seed.

mod density;
mod divisor;
mod drawn;
mod matching;
mod random;
mod rescale;
mod room;
mod shape;
mod variance;

pub use density::Density;
pub use divisor::Divisor;
pub use drawn::{Drawn, Wanted, sweep_drawn};
pub use matching::{Lookup, LookupGradients, Match, MatchPoint, MatchSetup, Similarity, match_lab};
pub use random::{Distribution, Family};
pub use rescale::{RescaleSetup, Rescaled, Rescaling, rescale};
pub use shape::{Shape, ks_distance};
pub use variance::{
    GrowthPoint, Jacobians, ProductVariance, Saturation, VarianceLab, VarianceSetup, variance_lab,
};
