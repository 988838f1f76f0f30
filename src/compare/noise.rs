//! Propagates rounding error through the layers, to derive each hook's tolerance.

use attnscope_compute::attention::AttentionSpec;
use attnscope_forward::Hook;
use attnscope_spec::{FeedForward, Stack, StackSpec};

use super::floors::Floors;
use super::gap::HeadGap;

/// Relative rounding errors accumulated so far, in the order of execution.
#[derive(Debug, Clone, Default)]
pub(super) struct Noise {
    /// Σ of squared absolute errors of the residual stream.
    resid: f64,
    /// ‖residual‖².
    resid_size: f64,
    /// Relative errors of the current attention.
    q: f64,
    k: f64,
    v: f64,
    /// Magnitude of scores in units of a logit, the factor from a relative error of scores to one of the pattern.
    logits: f64,
    pattern: f64,
    z: f64,
    /// Mean squares of queries and keys.
    q_square: f64,
    k_square: f64,
    /// Whether the current layer routes to experts: rounding alone can flip a close choice.
    pub routes: bool,
    /// Whether some earlier layer routed to experts.
    has_routed: bool,
}

/// Relative difference caused when some tokens choose other experts on the two sides.
const ROUTED: f64 = 0.5;

/// Unit roundoff above which numbers are coarser than f32.
const COARSE: f64 = 1e-4;

impl Noise {
    fn of_resid(&self) -> f64 {
        if self.resid_size > 0.0 {
            (self.resid / self.resid_size).sqrt()
        } else {
            0.0
        }
    }

    /// Returns the tolerance of the next hook; `gap` has the sizes on A's side.
    pub fn tolerance(
        &mut self,
        floors: &Floors,
        (stack, hook): (Stack, Hook),
        gap: &HeadGap,
        attention: Option<&AttentionSpec>,
    ) -> f64 {
        let unit = floors.unit();
        let with_unit = |error: f64| error.hypot(unit);
        let mean_square = gap.size / gap.n_values.max(1) as f64;
        let relative = match hook {
            Hook::ResidPre if stack != Stack::Cross => {
                // Embeddings have the rounding error of weights; a later layer has that of the layer before.
                if self.resid_size == 0.0 {
                    self.resid = (unit * unit) * gap.size;
                }
                self.resid_size = gap.size;
                self.of_resid()
            }
            Hook::ResidPre | Hook::ResidPost => {
                self.resid_size = gap.size;
                with_unit(self.of_resid())
            }
            Hook::Q | Hook::RotQ => {
                (self.q, self.q_square) = (with_unit(self.of_resid()), mean_square);
                self.q
            }
            Hook::K | Hook::RotK => {
                (self.k, self.k_square) = (with_unit(self.of_resid()), mean_square);
                self.k
            }
            Hook::V => {
                self.v = with_unit(self.of_resid());
                self.v
            }
            Hook::Scores => {
                let d_head = attention.map_or(1, |spec| spec.d_head) as f64;
                let scale =
                    attention.map_or(1.0, |spec| f64::from(spec.scale.of_bias(spec.d_head)).abs());
                // A sum of d products with random signs keeps the error of the large products even when they cancel.
                let products = scale * (d_head * self.q_square * self.k_square).sqrt();
                let size = mean_square.sqrt();
                self.logits = size.max(products);
                let error = self.q.hypot(self.k);
                let relative = error * self.logits / size.max(f64::MIN_POSITIVE);
                self.pattern = error * self.logits.max(1.0);
                relative.max(error)
            }
            Hook::Pattern => self.pattern,
            Hook::ValueNorms => self.v,
            Hook::Contribution => self.pattern.hypot(self.v),
            Hook::Z => {
                self.z = self.pattern.hypot(self.v);
                self.z
            }
            Hook::AttnOut => {
                let relative = with_unit(self.z);
                self.resid += relative * relative * gap.size;
                relative
            }
            Hook::MlpOut => {
                let mut relative = with_unit(with_unit(self.of_resid()));
                if self.routes && unit > COARSE {
                    (relative, self.has_routed) = (ROUTED, true);
                }
                self.resid += relative * relative * gap.size;
                relative
            }
            Hook::Logits => with_unit(self.of_resid()),
        };
        floors.of_noise(relative, self.has_routed)
    }
}

/// Whether a layer routes to experts.
pub(super) fn routes(stack: &StackSpec, layer_idx: usize) -> bool {
    let block = stack.blocks().get(layer_idx);
    block.is_some_and(|block| matches!(block.feed_forward, FeedForward::Experts(_)))
}
