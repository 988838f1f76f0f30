//! Noise floors: how far two runs or two tensors may differ through rounding, and why.

use attnscope_checkpoint::Dtype;
use attnscope_spec::Model;

/// Relative difference between two runs of one model in f32 arithmetic.
pub const F32_FLOOR: f64 = 1e-4;

/// Relative difference between two runs of one model with 16-bit weights.
pub const HALF_FLOOR: f64 = 2e-2;

/// Storage precision of one side's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// f32 or f64.
    Single,
    /// f16 or bf16.
    Half,
    /// 8 bits or fewer.
    Quantised,
}

impl Precision {
    pub fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F64 | Dtype::F32 => Self::Single,
            Dtype::F16 | Dtype::Bf16 => Self::Half,
            _ => Self::Quantised,
        }
    }

    /// Returns the coarsest precision of the tensors that a model reads as matrices.
    pub fn of_model(model: &Model) -> Self {
        let tensors = &model.checkpoint.tensors;
        let needed = model.spec.needed_tensors();
        let matrices = needed.iter().filter(|(_, shape)| shape.len() > 1);
        let dtypes = matrices.filter_map(|(name, _)| tensors.info(name));
        let precisions = dtypes.map(|info| Self::of(info.dtype));
        precisions.max().unwrap_or(Self::Single)
    }

    /// Returns the tolerance of a comparison with this side; infinite if differences are reported but not judged.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::Single => F32_FLOOR,
            Self::Half => HALF_FLOOR,
            Self::Quantised => f64::INFINITY,
        }
    }

    /// Returns the relative error of one product with rounded weights or rounded sums of `n` terms.
    fn unit(self, n: usize) -> f64 {
        match self {
            // Rounding errors of a sum of n terms add up like a random walk.
            Self::Single => f64::from(f32::EPSILON) / 2.0 * (n.max(1) as f64).sqrt(),
            // A bf16 weight has a relative error of at most 2⁻⁹, uniform: a standard deviation of 2⁻⁹/√3, on both sides.
            Self::Half => 2f64.powi(-9) / 3f64.sqrt() * 2f64.sqrt(),
            Self::Quantised => f64::INFINITY,
        }
    }

    /// Returns the name used where a tolerance is stated.
    pub fn label(self) -> &'static str {
        match self {
            Self::Single => "f32",
            Self::Half => "16-bit weights",
            Self::Quantised => "quantised weights",
        }
    }
}

/// Inputs from which tolerances are derived.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floors {
    /// The coarser of the two sides.
    pub precision: Precision,
    /// The larger of the two sides' noise floors, stated as the comparison's tolerance.
    pub base: f64,
    /// Lowest tolerance of a hook. 16-bit weights that are equal on both sides leave no more noise than f32.
    pub of_hooks: f64,
    /// Whether the user set the tolerance, which then holds unchanged for every hook.
    pub is_given: bool,
    /// Number of terms of the model's longest sums.
    pub n_terms: usize,
    /// Whether tolerances grow through the layers with the rounding error: when rounding is the only known difference between
    /// knobs and weights, or another framework computed one side.
    pub follows_rounding: bool,
}

impl Floors {
    pub fn new(sides: [Precision; 2], n_terms: usize, given: Option<f64>) -> Self {
        let precision = sides[0].max(sides[1]);
        let base = given.unwrap_or_else(|| precision.tolerance());
        Self {
            precision,
            base,
            of_hooks: base,
            is_given: given.is_some(),
            n_terms,
            follows_rounding: false,
        }
    }

    /// Returns the floors of two checkpoints.
    pub fn of_models(a: &Model, b: &Model, given: Option<f64>) -> Self {
        let sides = [Precision::of_model(a), Precision::of_model(b)];
        Self::new(sides, longest_sum(a).max(longest_sum(b)), given)
    }

    /// Reduces tolerances to f32 arithmetic, because both sides have the same weights, or differences that rounding does not
    /// explain.
    pub(super) fn without_rounding(&mut self) {
        if !self.is_given {
            self.of_hooks = F32_FLOOR;
        }
    }

    /// Returns the relative error of one product.
    pub(super) fn unit(&self) -> f64 {
        self.precision.unit(self.n_terms)
    }

    /// Returns the tolerance of a hook that rounding moves by `relative`: three times that, and at least the base. After
    /// routing to experts, it is limited only by the size of the values.
    pub(super) fn of_noise(&self, relative: f64, has_routed: bool) -> f64 {
        let is_fixed = self.is_given || !self.follows_rounding || !self.of_hooks.is_finite();
        if is_fixed || !relative.is_finite() {
            return self.of_hooks;
        }
        let most = if has_routed {
            MOST_ROUTED
        } else {
            MOST_DERIVED
        };
        self.of_hooks.max((3.0 * relative).min(most))
    }
}

/// Upper limit of derived tolerances, as a share of the values.
const MOST_DERIVED: f64 = 0.25;

const MOST_ROUTED: f64 = 1.5;

/// Returns the number of terms of the longest sum in a layer of a model.
fn longest_sum(model: &Model) -> usize {
    let blocks = model.spec.stacks.iter().flat_map(|stack| stack.blocks());
    let linears = blocks.flat_map(attnscope_spec::BlockSpec::linears);
    let longest = linears.map(|linear| linear.n_in).max();
    longest.unwrap_or(model.spec.d_model)
}

/// Returns the largest relative difference between equal tensors stored as these two types.
pub fn storage_floor(a: Dtype, b: Dtype) -> f64 {
    of_storage(a).max(of_storage(b))
}

fn of_storage(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 | Dtype::F32 => 1e-6,
        Dtype::F16 => 2f64.powi(-10),
        Dtype::Bf16 => 2f64.powi(-8),
        // 3 and 2 bits of mantissa, for values spread evenly between powers of two; times 2.
        Dtype::F8E4m3 => 2.0 * 2f64.powi(-4) / 3f64.sqrt(),
        Dtype::F8E5m2 => 2.0 * 2f64.powi(-3) / 3f64.sqrt(),
        Dtype::Mxfp4 | Dtype::Packed(_) => 0.35,
        // Steps of a block span −max to max, where max is about 2.5 standard deviations; twice the rounding error.
        Dtype::Block(block) => {
            let bits = (8 * block.n_bytes / block.n_values.max(1)).clamp(1, 16) as i32;
            (2.0 * 2.5 / 2f64.powi(bits - 1) / 12f64.sqrt()).min(1.0)
        }
        Dtype::Other(..) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_tolerances_grow_with_noise_and_given_ones_stay_fixed() {
        let mut floors = Floors::new([Precision::Single, Precision::Half], 768, None);
        assert_eq!(floors.base, HALF_FLOOR);
        assert_eq!(floors.of_noise(0.02, false), HALF_FLOOR);
        floors.follows_rounding = true;
        assert_eq!(floors.of_noise(floors.unit(), false), HALF_FLOOR);
        assert!(floors.of_noise(0.02, false) > HALF_FLOOR);
        assert!(floors.of_noise(10.0, false) <= MOST_DERIVED);
        let mut given = Floors::new([Precision::Single; 2], 768, Some(1e-6));
        given.follows_rounding = true;
        assert_eq!(given.of_noise(0.02, false), 1e-6);
        let quantised = Floors::new([Precision::Single, Precision::Quantised], 768, None);
        assert_eq!(quantised.of_noise(quantised.unit(), false), f64::INFINITY);
    }
}
