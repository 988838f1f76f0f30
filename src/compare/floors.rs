//! Noise floors: how far two runs or two tensors may lie apart because numbers are rounded, and why.

use attnscope_checkpoint::Dtype;
use attnscope_spec::Model;

/// The relative difference that f32 arithmetic leaves between two runs of one model.
pub const F32_FLOOR: f64 = 1e-4;

/// The relative difference that weights of 16 bits leave between two runs of one model.
pub const HALF_FLOOR: f64 = 2e-2;

/// How precisely one side's numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Precision {
    /// f32 or f64.
    Single,
    /// f16 or bf16.
    Half,
    /// Eight bits and less.
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

    /// The coarsest precision of the tensors that a model reads as matrices.
    pub fn of_model(model: &Model) -> Self {
        let tensors = &model.checkpoint.tensors;
        let needed = model.spec.needed_tensors();
        let matrices = needed.iter().filter(|(_, shape)| shape.len() > 1);
        let dtypes = matrices.filter_map(|(name, _)| tensors.info(name));
        let precisions = dtypes.map(|info| Self::of(info.dtype));
        precisions.max().unwrap_or(Self::Single)
    }

    /// The tolerance of a comparison with this side; infinite where sizes are reported and nothing is judged.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::Single => F32_FLOOR,
            Self::Half => HALF_FLOOR,
            Self::Quantised => f64::INFINITY,
        }
    }

    /// The relative error of one product with rounded weights or rounded sums of `n` terms.
    fn unit(self, n: usize) -> f64 {
        match self {
            // Rounding errors of a sum of n terms add up as a random walk does.
            Self::Single => f64::from(f32::EPSILON) / 2.0 * (n.max(1) as f64).sqrt(),
            // A bf16 weight is off by at most 2⁻⁹ of itself, evenly spread: a standard deviation of 2⁻⁹/√3, on both sides.
            Self::Half => 2f64.powi(-9) / 3f64.sqrt() * 2f64.sqrt(),
            Self::Quantised => f64::INFINITY,
        }
    }

    /// What it is called where a tolerance is stated.
    pub fn label(self) -> &'static str {
        match self {
            Self::Single => "f32",
            Self::Half => "16-bit weights",
            Self::Quantised => "quantised weights",
        }
    }
}

/// What tolerances are derived from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floors {
    /// The coarser of the two sides.
    pub precision: Precision,
    /// The larger of the two sides' noise floors: what is stated as the tolerance of the comparison.
    pub base: f64,
    /// The least tolerance of a hook. Weights of 16 bits that are the same on both sides leave no more noise than f32 does.
    pub of_hooks: f64,
    /// A tolerance that a person gave: it holds for every hook as it is.
    pub is_given: bool,
    /// Terms of the longest sums of the model.
    pub n_terms: usize,
    /// Rounding is all that differs, as far as knobs and weights tell, or another framework computed one side: tolerances follow
    /// it through the layers, where it grows.
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

    /// The floors of two checkpoints.
    pub fn of_models(a: &Model, b: &Model, given: Option<f64>) -> Self {
        let sides = [Precision::of_model(a), Precision::of_model(b)];
        Self::new(sides, longest_sum(a).max(longest_sum(b)), given)
    }

    /// Takes in that both sides have the same numbers, or others that no rounding explains: what is left to tolerate is f32
    /// arithmetic.
    pub(super) fn without_rounding(&mut self) {
        if !self.is_given {
            self.of_hooks = F32_FLOOR;
        }
    }

    /// The relative error of one product.
    pub(super) fn unit(&self) -> f64 {
        self.precision.unit(self.n_terms)
    }

    /// The tolerance of a hook that rounding moves by so much of its size: three times as much, and no less than the base. After
    /// a choice of experts there is no bound but the size itself.
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

/// No derived tolerance lies above this share of the values themselves.
const MOST_DERIVED: f64 = 0.25;

const MOST_ROUTED: f64 = 1.5;

/// Terms of the longest sum that a model takes in a layer.
fn longest_sum(model: &Model) -> usize {
    let blocks = model.spec.stacks.iter().flat_map(|stack| stack.blocks());
    let linears = blocks.flat_map(attnscope_spec::BlockSpec::linears);
    let longest = linears.map(|linear| linear.n_in).max();
    longest.unwrap_or(model.spec.d_model)
}

/// The largest relative difference that storing values as these two types leaves between tensors of the same weights.
pub fn storage_floor(a: Dtype, b: Dtype) -> f64 {
    of_storage(a).max(of_storage(b))
}

fn of_storage(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 | Dtype::F32 => 1e-6,
        Dtype::F16 => 2f64.powi(-10),
        Dtype::Bf16 => 2f64.powi(-8),
        // Three and two bits of mantissa, of values that are spread evenly between powers of two; twice that.
        Dtype::F8E4m3 => 2.0 * 2f64.powi(-4) / 3f64.sqrt(),
        Dtype::F8E5m2 => 2.0 * 2f64.powi(-3) / 3f64.sqrt(),
        Dtype::Mxfp4 | Dtype::Packed(_) => 0.35,
        // Steps of a block reach from −max to max, and max is about 2.5 standard deviations; twice the rounding error.
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
    fn tolerances_grow_with_noise_and_stay_as_a_person_gave_them() {
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
