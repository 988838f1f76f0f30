//! Activation functions on vectors.

use super::lanes::Lanes;
use super::level::{Kernel, Level};
use super::math::{erf, exp, tanh};
use crate::kernels::Activation;

/// Applies an activation in place.
pub fn activate_values(level: Level, activation: Activation, values: &mut [f32]) {
    level.run(Activate { activation, values });
}

struct Activate<'a> {
    activation: Activation,
    values: &'a mut [f32],
}

impl Kernel for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, l: L) {
        let values = self.values;
        match self.activation {
            Activation::Gelu => each(l, values, Gelu),
            Activation::GeluTanh => each(l, values, GeluTanh),
            Activation::Relu => each(l, values, Relu),
            Activation::Silu => each(l, values, Silu { steepness: 1.0 }),
            Activation::QuickGelu => each(l, values, Silu { steepness: 1.702 }),
            Activation::ReluSquared => each(l, values, ReluSquared),
            Activation::Tanh => each(l, values, Tanh),
            Activation::Sigmoid => each(l, values, Sigmoid),
            Activation::LeakyRelu => each(l, values, LeakyRelu),
            Activation::Identity => {}
        }
    }
}

/// A function of one vector. Not a closure: closures are not compiled with the instructions of the calling kernel.
trait Function: Copy {
    fn of<L: Lanes>(self, l: L, x: L::Vector) -> L::Vector;
}

/// Applies a function to every vector of a slice; the last one is padded with zeros.
#[inline(always)]
fn each<L: Lanes, F: Function>(l: L, values: &mut [f32], f: F) {
    let n_whole = values.len() / L::N * L::N;
    let (whole, rest) = values.split_at_mut(n_whole);
    for vector in L::vectors_mut(whole) {
        *vector = f.of(l, *vector);
    }
    let mut last = [0.0; 16];
    last[..rest.len()].copy_from_slice(rest);
    let vector = &mut L::vectors_mut(&mut last)[0];
    *vector = f.of(l, *vector);
    rest.copy_from_slice(&last[..rest.len()]);
}

#[derive(Clone, Copy)]
struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn of<L: Lanes>(self, l: L, x: L::Vector) -> L::Vector {
        let erf = erf(l, l.mul(x, l.splat(std::f32::consts::FRAC_1_SQRT_2)));
        l.mul(l.mul(x, l.splat(0.5)), l.add(erf, l.splat(1.0)))
    }
}

#[derive(Clone, Copy)]
struct GeluTanh;

impl Function for GeluTanh {
    #[inline(always)]
    fn of<L: Lanes>(self, l: L, x: L::Vector) -> L::Vector {
        const SQRT_2_OVER_PI: f32 = 0.797_884_6;
        let cube = l.mul(l.mul(x, x), x);
        let inside = l.mul(
            l.mul_add(cube, l.splat(0.044_715), x),
            l.splat(SQRT_2_OVER_PI),
        );
        l.mul(l.mul(x, l.splat(0.5)), l.add(tanh(l, inside), l.splat(1.0)))
    }
}

#[derive(Clone, Copy)]
struct Relu;

impl Function for Relu {
    #[inline(always)]
    fn of<L: Lanes>(self, l: L, x: L::Vector) -> L::Vector {
        // Not `max`, which may turn NaN into 0.
        l.select(l.less(x, l.splat(0.0)), l.splat(0.0), x)
    }
}

#[derive(Clone, Copy)]
struct ReluSquared;

impl Function for ReluSquared {
    #[inline(always)]
    fn of<L: Lanes>(self, l: L, x: L::Vector) -> L::Vector {
        let positive = Relu.of(l, x);
        l.mul(positive, positive)
    }
}

/// x · sigmoid(steepness · x).
#[derive(Clone, Copy)]
struct Silu {
    steepness: f32,
}

impl Function for Silu {
    #[inline(always)]
    fn of<L: Lanes>(self, l: L, x: L::Vector) -> L::Vector {
        let e = exp(l, l.mul(x, l.splat(-self.steepness)));
        l.div(x, l.add(e, l.splat(1.0)))
    }
}

#[derive(Clone, Copy)]
struct Tanh;

impl Function for Tanh {
    #[inline(always)]
    fn of<L: Lanes>(self, l: L, x: L::Vector) -> L::Vector {
        tanh(l, x)
    }
}

#[derive(Clone, Copy)]
struct Sigmoid;

impl Function for Sigmoid {
    #[inline(always)]
    fn of<L: Lanes>(self, l: L, x: L::Vector) -> L::Vector {
        let e = exp(l, l.mul(x, l.splat(-1.0)));
        l.div(l.splat(1.0), l.add(e, l.splat(1.0)))
    }
}

#[derive(Clone, Copy)]
struct LeakyRelu;

impl Function for LeakyRelu {
    #[inline(always)]
    fn of<L: Lanes>(self, l: L, x: L::Vector) -> L::Vector {
        l.select(l.less(x, l.splat(0.0)), l.mul(x, l.splat(0.01)), x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference, in f64.
    fn expected(activation: Activation, x: f64) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        match activation {
            Activation::Gelu => 0.5 * x * (1.0 + libm::erf(x / std::f64::consts::SQRT_2)),
            Activation::GeluTanh => {
                let inside = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                0.5 * x * (1.0 + inside.tanh())
            }
            Activation::Relu => x.max(0.0),
            Activation::Silu => x * sigmoid(x),
            Activation::QuickGelu => x * sigmoid(1.702 * x),
            Activation::ReluSquared => x.max(0.0).powi(2),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => sigmoid(x),
            Activation::LeakyRelu => x.max(0.0) + 0.01 * x.min(0.0),
            Activation::Identity => x,
        }
    }

    #[test]
    fn every_activation_matches_its_definition_at_every_level_and_propagates_nan() {
        let all = [
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Relu,
            Activation::Silu,
            Activation::QuickGelu,
            Activation::ReluSquared,
            Activation::Tanh,
            Activation::Sigmoid,
            Activation::LeakyRelu,
            Activation::Identity,
        ];
        let points: Vec<f32> = (-4000..=4000)
            .map(|i| i as f32 * 0.01)
            .chain([-1e30, 1e30, -1e-20, 1e-20, f32::INFINITY])
            .collect();
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            for activation in all {
                let mut values = points.clone();
                activate_values(level, activation, &mut values);
                for (x, found) in points.iter().zip(&values) {
                    let expected = expected(activation, f64::from(*x)) as f32;
                    let size = expected.abs().max(x.abs().min(1.0)).max(1e-6);
                    let is_near = (found - expected).abs() <= 1e-6 * size || *found == expected;
                    assert!(
                        is_near,
                        "{level:?} {activation:?} of {x}: {found}, {expected}"
                    );
                }
                let mut broken = [1.0, f32::NAN, 2.0];
                activate_values(level, activation, &mut broken);
                assert!(broken[1].is_nan() && !broken[0].is_nan() && !broken[2].is_nan());
            }
        }
    }
}
