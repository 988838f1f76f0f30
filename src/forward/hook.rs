//! Places in a forward pass where values can be looked at, by the names that TransformerLens gave them.

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
    /// All, in the order in which they are computed.
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

    /// The last part of the name.
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

    /// Whether a value is only a measure of others, which nothing in the model goes on with.
    pub fn is_measure(self) -> bool {
        matches!(self, Self::ValueNorms | Self::Contribution)
    }

    /// The whole name: `blocks.3.attn.pattern`, `decoder.blocks.3.cross_attn.pattern`.
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

/// Looks at values while a block runs.
pub trait Hooks {
    /// Whether a value is worth bringing to the host.
    fn wants(&self, hook: Hook) -> bool;
    /// One value of the block. // values: [position, width]; `ValueNorms`: [head, key]
    ///
    /// # Errors
    /// When the value cannot be kept; stops the run.
    fn values(&mut self, hook: Hook, values: &[f32], width: usize) -> Result<()>;
    /// Receives scores and pattern, when they are wanted.
    fn blocks(&self) -> Option<&dyn BlockSink>;
    /// Whether a value is to be changed before the block goes on with it: `ResidPre`, `Z`, `AttnOut` or `MlpOut`.
    fn changes(&self, _: Hook) -> bool {
        false
    }
    /// Changes one value of the block in place. // values: [position, width]
    ///
    /// # Errors
    /// When what is to be put there does not fit; stops the run.
    fn change(&mut self, _: Hook, _: &mut [f32], _: usize) -> Result<()> {
        Ok(())
    }
    /// Into how many copies the block's only one is spread once its own heads have run.
    fn spreads(&self) -> Option<usize> {
        None
    }
    /// Whether what a branch gives is wanted before the norm on it.
    fn wants_raw(&self) -> bool {
        false
    }
    /// What a branch gives before the norm on it; the hook is `AttnOut` or `MlpOut`. // values: [position, width]
    ///
    /// # Errors
    /// When the value cannot be kept; stops the run.
    fn raw(&mut self, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }
    /// Whether whole rows are wanted, where they hold more than the residual.
    fn wants_rows(&self) -> bool {
        false
    }
    /// Rows that hold more than the residual, as they go from block to block; the hook is `ResidPre` or `ResidPost`, and comes before.
    /// // values: [position, width]
    ///
    /// # Errors
    /// When they cannot be kept; stops the run.
    fn rows(&mut self, _: Hook, _: &[f32], _: usize) -> Result<()> {
        Ok(())
    }
    /// Whether it is wanted what global tokens look at.
    fn wants_globals(&self) -> bool {
        false
    }
    /// What global tokens look at, where an attention has such.
    fn globals(&mut self, _: &GlobalKeys) {}
    /// Looks at the block's attention to the encoder's output.
    fn cross(&mut self) -> Option<&mut dyn Hooks> {
        None
    }
}

/// Looks at nothing.
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
