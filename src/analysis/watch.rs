//! Watches one block run: norms for the layer's statistics, the first NaN, the layer's input, and what a tap wants.

use super::first_nonfinite::{NonFinite, find};
use super::tap::Tap;
use crate::attention::BlockSink;
use crate::error::Result;
use crate::kernels::sum_of_squares;
use crate::model::{Hook, Hooks};

/// What was seen of one block.
pub(super) struct Watch<'a> {
    pub layer_idx: usize,
    /// Norms per position. // [position]
    pub resid_pre: Vec<f32>,
    pub attn_out: Vec<f32>,
    pub mlp_out: Vec<f32>,
    pub resid_post: Vec<f32>,
    /// The block's input, when it is to be kept. // [position, d_model]
    pub input: Option<Vec<f32>>,
    keeps_input: bool,
    /// The first NaN of this block, unless an earlier block had one.
    pub nonfinite: Option<NonFinite>,
    looks_for_nonfinite: bool,
    tap: Option<&'a mut dyn Tap>,
}

impl<'a> Watch<'a> {
    pub fn new(
        layer_idx: usize,
        keeps_input: bool,
        looks_for_nonfinite: bool,
        tap: Option<&'a mut dyn Tap>,
    ) -> Self {
        Self {
            layer_idx,
            resid_pre: Vec::new(),
            attn_out: Vec::new(),
            mlp_out: Vec::new(),
            resid_post: Vec::new(),
            input: None,
            keeps_input,
            nonfinite: None,
            looks_for_nonfinite,
            tap,
        }
    }
}

fn row_norms(values: &[f32], width: usize) -> Vec<f32> {
    values
        .chunks(width)
        .map(|row| sum_of_squares(row).sqrt() as f32)
        .collect()
}

impl Hooks for Watch<'_> {
    fn wants(&self, hook: Hook) -> bool {
        // Every value is looked at for NaN; what is not needed for that is asked of the tap.
        !matches!(hook, Hook::Scores | Hook::Pattern | Hook::Logits)
    }

    fn values(&mut self, hook: Hook, values: &[f32], width: usize) -> Result<()> {
        match hook {
            Hook::ResidPre => {
                self.resid_pre = row_norms(values, width);
                if self.keeps_input {
                    self.input = Some(values.to_vec());
                }
            }
            Hook::AttnOut => self.attn_out = row_norms(values, width),
            Hook::MlpOut => self.mlp_out = row_norms(values, width),
            Hook::ResidPost => self.resid_post = row_norms(values, width),
            _ => {}
        }
        if self.looks_for_nonfinite
            && self.nonfinite.is_none()
            && let Some(element) = find(values)
        {
            self.nonfinite = Some(NonFinite {
                layer_idx: self.layer_idx,
                hook,
                position_idx: element / width,
                column_idx: element % width,
                value: values[element],
                tensor: None,
            });
        }
        match &mut self.tap {
            Some(tap) if tap.wants(self.layer_idx, hook) => {
                tap.values(self.layer_idx, hook, values, width)
            }
            _ => Ok(()),
        }
    }

    fn blocks(&self) -> Option<&dyn BlockSink> {
        self.tap.as_ref().and_then(|tap| tap.blocks(self.layer_idx))
    }
}
