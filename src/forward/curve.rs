//! Activations with stored values.

use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;
use attnscope_spec::LearnedActivation;

use super::weights::WeightReader;

/// An activation with the values that it has stored.
#[derive(Debug, Clone, Copy)]
pub enum Curve {
    /// Curvature above 0, curvature below 0, slope, limit.
    Curved([f32; 4]),
    /// The slope below 0.
    Leaky(f32),
}

impl Curve {
    /// Reads the stored values of an activation.
    ///
    /// # Errors
    /// When a tensor is missing or has another shape.
    pub(super) fn read<O: Ops>(
        shelf: WeightReader<'_, O>,
        learned: &LearnedActivation,
    ) -> Result<Self> {
        let mut values = [0.0; 4];
        for (value, (_, name, shape)) in values.iter_mut().zip(learned.tensors()) {
            let stored = shelf.tensors.expect(name, &shape)?.widen()?;
            *value = stored.first().copied().unwrap_or_default();
        }
        let softplus = |v: f32| v.exp().ln_1p();
        let [above, below, slope, limit] = values;
        Ok(match learned {
            LearnedActivation::Curved { .. } => {
                Self::Curved([softplus(above), slope + softplus(below), slope, limit])
            }
            LearnedActivation::Leaky(_) => Self::Leaky(above),
        })
    }

    fn of(self, x: f32) -> f32 {
        match self {
            Self::Curved([above, _, slope, _]) if x > 0.0 => above * x * x + slope * x,
            Self::Curved([_, below, slope, limit]) => {
                (x.min(limit).exp_m1() - x) * below + slope * x
            }
            Self::Leaky(slope) if x < 0.0 => slope * x,
            Self::Leaky(_) => x,
        }
    }

    /// Applies the activation, on the host.
    pub(super) fn apply<O: Ops>(self, ops: &O, values: &mut O::Buffer) -> Result<()> {
        let host = ops.get(values)?;
        let (width, mut curved) = (host.width, host.values.into_owned());
        curved.iter_mut().for_each(|x| *x = self.of(*x));
        ops.put(&curved, width, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaky_activation_keeps_what_is_positive() {
        let leaky = Curve::Leaky(0.25);
        assert_eq!([-2.0, 0.0, 3.0].map(|x| leaky.of(x)), [-0.5, 0.0, 3.0]);
    }
}
