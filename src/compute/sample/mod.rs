//! Random samples that are the same everywhere, and what a sample looks like: moments, density, distance from another.

mod density;
mod random;
mod shape;

pub use density::Density;
pub use random::{Distribution, Family, MOST_VECTORS, MOST_WIDE, Purpose, Random};
pub use shape::{Shape, ks_distance};
