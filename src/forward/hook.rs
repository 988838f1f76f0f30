//! Hook points of a forward pass, named as in TransformerLens.

use std::fmt;
use std::str::FromStr;

use attnscope_compute::attention::{BlockSink, GlobalKeys};
use attnscope_compute::error::Result;
use attnscope_spec::Stack;

/// A value inside one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    ResidPre,
    Q,
    K,
    V,
    RotQ,
    RotK,
    Scores,
    Pattern,
    ValueNorms,
    Contribution,
    Z,
    AttnOut,
    MlpOut,
    ResidPost,
    Logits,
}

impl Hook {
    /// All hooks, in the order of computation.
    pub const ALL: [Self; 15] = [
        Self::ResidPre,
        Self::Q,
        Self::K,
        Self::V,
        Self::RotQ,
        Self::RotK,
        Self::Scores,
        Self::Pattern,
        Self::ValueNorms,
        Self::Contribution,
        Self::Z,
        Self::AttnOut,
        Self::MlpOut,
        Self::ResidPost,
        Self::Logits,
    ];

    /// Returns the last part of the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ResidPre => "resid_pre",
            Self::Q => "q",
            Self::K => "k",
            Self::V => "v",
            Self::RotQ => "rot_q",
            Self::RotK => "rot_k",
            Self::Scores => "scores",
            Self::Pattern => "pattern",
            Self::ValueNorms => "value_norms",
            Self::Contribution => "contribution",
            Self::Z => "z",
            Self::AttnOut => "attn_out",
            Self::MlpOut => "mlp_out",
            Self::ResidPost => "resid_post",
            Self::Logits => "logits",
        }
    }

    /// Whether a value is only a measurement, which the model does not use further.
    pub fn is_measure(self) -> bool {
        matches!(self, Self::ValueNorms | Self::Contribution)
    }

    /// Returns the full name: `blocks.3.attn.pattern`, `decoder.blocks.3.cross_attn.pattern`.
    pub fn full_name(self, stack: Stack, layer_idx: usize) -> String {
        let block = format!("{}blocks.{layer_idx}", stack.prefix());
        let attention = if stack == Stack::Cross {
            "cross_attn"
        } else {
            "attn"
        };
        match self {
            Self::ResidPre | Self::AttnOut | Self::MlpOut | Self::ResidPost
                if stack != Stack::Cross =>
            {
                format!("{block}.{}", self.name())
            }
            Self::Logits => self.name().to_owned(),
            _ => format!("{block}.{attention}.{}", self.name()),
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Hook {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|hook| hook.name() == name)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::name).join(", ");
                format!("unknown hook {name}; known: {known}")
            })
    }
}

/// Observes, and may change, values while a block runs.
pub trait Hooks {
    /// Whether to copy a value to the host and pass it to [`values`](Self::values).
    fn wants(&self, hook: Hook) -> bool;
    /// Whether to pass a value to [`values`](Self::values) that is not wanted, if a NaN or an infinity is in it: the device looks.
    fn wants_nonfinite(&self, _: Hook) -> bool {
        false
    }
    /// Whether [`norms`](Self::norms) suffices for a value that is not wanted: the device computes them.
    fn wants_norms(&self, _: Hook) -> bool {
        false
    }
    /// Receives the length of each row of a value. // [position]
    fn norms(&mut self, _: Hook, _: Vec<f32>) {}
    /// Receives one value of the block. // values: [position, width]; `ValueNorms`: [head, key]
    ///
    /// # Errors
    /// When the value cannot be kept; stops the run.
    fn values(&mut self, hook: Hook, values: &[f32], width: usize) -> Result<()>;
    /// Returns the sink that receives scores and pattern, if they are wanted.
    fn blocks(&self) -> Option<&dyn BlockSink>;
    /// Whether [`change`](Self::change) is called before the block uses a value: `ResidPre`, `Z`, `AttnOut` or `MlpOut`.
    fn changes(&self, _: Hook) -> bool {
        false
    }
    /// Changes one value of the block in place. // values: [position, width]
    ///
    /// # Errors
    /// When the replacement does not fit; stops the run.
    fn change(&mut self, _: Hook, _: &mut [f32], _: usize) -> Result<()> {
        Ok(())
    }
    /// Number of copies to repeat the residual into, after the block's heads have run on a single copy.
    fn spreads(&self) -> Option<usize> {
        None
    }
    /// Whether a branch's output before its norm is wanted.
    fn wants_raw(&self) -> bool {
        false
    }
    /// Receives a branch's output before its norm; the hook is `AttnOut` or `MlpOut`. // values: [position, width]
    ///
    /// # Errors
    /// When the value cannot be kept; stops the run.
    fn raw(&mut self, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }
    /// Whether whole rows are wanted, if they hold more than the residual.
    fn wants_rows(&self) -> bool {
        false
    }
    /// Receives rows that hold more than the residual, as they pass from block to block, before the value of the same hook,
    /// `ResidPre` or `ResidPost`. // values: [position, width]
    ///
    /// # Errors
    /// When they cannot be kept; stops the run.
    fn rows(&mut self, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }
    /// Whether the keys and values of global tokens are wanted.
    fn wants_globals(&self) -> bool {
        false
    }
    /// Receives the keys and values of global tokens, in attention that has them.
    fn globals(&mut self, _: &GlobalKeys) {}
    /// Returns the hooks of the block's cross-attention.
    fn cross(&mut self) -> Option<&mut dyn Hooks> {
        None
    }
    /// Says that values belong to the block again, behind cross-attention without a residual of its own. Otherwise its `ResidPost` says so.
    fn back(&mut self) {}
}

/// Observes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {
    fn wants(&self, _: Hook) -> bool {
        false
    }

    fn values(&mut self, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }

    fn blocks(&self) -> Option<&dyn BlockSink> {
        None
    }
}
