//! Reproducible random samples, and sample statistics: moments, density, distance from another sample.

mod density;
mod random;
mod shape;

pub use density::Density;
pub use random::{Distribution, Family, MOST_VECTORS, MOST_WIDE, Purpose, Random};
pub use shape::{Shape, ks_distance};
