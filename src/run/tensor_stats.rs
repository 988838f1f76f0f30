//! Minimum, maximum and mean of a stored tensor, and how many of its values are NaN or infinite.

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::Result;
use rayon::prelude::*;

/// Figures of one tensor, over its finite values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorStats {
    pub min: f32,
    pub max: f32,
    pub mean: f64,
    pub n_nan: usize,
    pub n_infinite: usize,
}

/// Number of values per task.
const TASK: usize = 1 << 16;

/// Computes the figures of a tensor; `None` if it does not exist or is not floating point.
///
/// # Errors
/// When its file cannot be read, or has changed.
pub fn tensor_stats(tensors: &Tensors, name: &str) -> Result<Option<TensorStats>> {
    let view = tensors.get(name).filter(|view| view.info.dtype.is_float());
    let Some(view) = view else {
        return Ok(None);
    };
    let values = view.widen()?;
    let parts: Vec<Part> = values.par_chunks(TASK).map(Part::of).collect();
    let whole = parts.into_iter().fold(Part::NOTHING, Part::and);
    let n_finite = (values.len() - whole.n_nan - whole.n_infinite) as f64;
    let mean = whole.sum / n_finite;
    Ok(Some(TensorStats {
        min: whole.min,
        max: whole.max,
        mean,
        n_nan: whole.n_nan,
        n_infinite: whole.n_infinite,
    }))
}

#[derive(Debug, Clone, Copy)]
struct Part {
    min: f32,
    max: f32,
    sum: f64,
    n_nan: usize,
    n_infinite: usize,
}

impl Part {
    const NOTHING: Self = Self {
        min: f32::INFINITY,
        max: f32::NEG_INFINITY,
        sum: 0.0,
        n_nan: 0,
        n_infinite: 0,
    };

    fn of(values: &[f32]) -> Self {
        let mut part = Self::NOTHING;
        for value in values {
            if value.is_finite() {
                part.min = part.min.min(*value);
                part.max = part.max.max(*value);
                part.sum += f64::from(*value);
            } else if value.is_nan() {
                part.n_nan += 1;
            } else {
                part.n_infinite += 1;
            }
        }
        part
    }

    fn and(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            sum: self.sum + other.sum,
            n_nan: self.n_nan + other.n_nan,
            n_infinite: self.n_infinite + other.n_infinite,
        }
    }
}
