//! Watches one block run, for the statistics' norms, the first NaN, the layer's input, and the values that a tap wants.

use attnscope_compute::attention::{BlockSink, GlobalKeys};
use attnscope_compute::error::Result;
use attnscope_compute::kernels::residual::{Peak, ResidualShape, shape_of};
use attnscope_compute::kernels::{first_nonfinite, norms_of_rows};
use attnscope_forward::{Hook, Hooks, Sequence};
use attnscope_spec::Stack;

use super::first_nonfinite::NonFinite;
use super::tap::Tap;

/// Norms of the inputs and outputs of one attention and its block. // [position]
#[derive(Debug, Default)]
pub(super) struct Norms {
    pub resid_pre: Vec<f32>,
    pub attn_out: Vec<f32>,
    pub mlp_out: Vec<f32>,
    pub resid_post: Vec<f32>,
    /// Shape and peak of the residual after the block.
    pub residual: Option<(ResidualShape, Peak)>,
    /// Norms of the block's cross-attention.
    pub cross: Option<Box<Norms>>,
}

/// Observations of one block.
pub(super) struct Watch<'a> {
    /// Current stack: `Stack::Cross` while cross-attention runs.
    stack: Stack,
    layer_idx: usize,
    norms: Norms,
    cross: Norms,
    /// Input of the block, if it is kept. // [position, width of a row]
    pub input: Option<Vec<f32>>,
    keeps_input: bool,
    /// Output of the feed-forward block before its norm, if it is kept. // [position, d_model]
    pub added: Option<Vec<f32>>,
    keeps_added: bool,
    /// The first NaN of this block, unless an earlier block had one.
    pub nonfinite: Option<NonFinite>,
    looks_for_nonfinite: bool,
    tap: Option<&'a mut dyn Tap>,
    home: Stack,
    /// Says which positions are not padding.
    sequence: &'a Sequence,
}

impl<'a> Watch<'a> {
    pub fn new(
        (stack, layer_idx): (Stack, usize),
        (keeps_input, keeps_added): (bool, bool),
        looks_for_nonfinite: bool,
        tap: Option<&'a mut dyn Tap>,
        sequence: &'a Sequence,
    ) -> Self {
        Self {
            stack,
            layer_idx,
            norms: Norms::default(),
            cross: Norms::default(),
            input: None,
            keeps_input,
            added: None,
            keeps_added,
            nonfinite: None,
            looks_for_nonfinite,
            tap,
            home: stack,
            sequence,
        }
    }

    /// The norms of the attention that runs.
    fn norms_here(&mut self) -> &mut Norms {
        match self.stack {
            Stack::Cross => &mut self.cross,
            _ => &mut self.norms,
        }
    }

    /// Returns the norms of the block and of its cross-attention.
    pub fn finish(mut self) -> Norms {
        self.norms.cross = Some(Box::new(self.cross));
        self.norms
    }
}

impl Hooks for Watch<'_> {
    fn wants(&self, hook: Hook) -> bool {
        let taps = |tap: &&mut dyn Tap| tap.wants(self.stack, self.layer_idx, hook);
        match hook {
            Hook::ResidPost => true,
            Hook::ResidPre if self.keeps_input && self.stack != Stack::Cross => true,
            _ => self.tap.as_ref().is_some_and(taps),
        }
    }

    fn wants_nonfinite(&self, hook: Hook) -> bool {
        let is_checked = !matches!(hook, Hook::Scores | Hook::Pattern | Hook::Logits);
        is_checked && self.looks_for_nonfinite && self.nonfinite.is_none()
    }

    fn wants_norms(&self, hook: Hook) -> bool {
        matches!(hook, Hook::ResidPre | Hook::AttnOut | Hook::MlpOut)
    }

    fn norms(&mut self, hook: Hook, of_rows: Vec<f32>) {
        let norms = self.norms_here();
        match hook {
            Hook::ResidPre => norms.resid_pre = of_rows,
            Hook::AttnOut => norms.attn_out = of_rows,
            Hook::MlpOut => norms.mlp_out = of_rows,
            Hook::ResidPost => norms.resid_post = of_rows,
            _ => {}
        }
    }

    fn values(&mut self, hook: Hook, values: &[f32], width: usize) -> Result<()> {
        let is_cross = self.stack == Stack::Cross;
        if self.wants_norms(hook) || hook == Hook::ResidPost {
            self.norms(hook, norms_of_rows(values, width));
        }
        if hook == Hook::ResidPre && self.keeps_input && !is_cross {
            self.input = Some(values.to_vec());
        }
        if hook == Hook::ResidPost {
            let is_real = |position_idx: usize| self.sequence.is_real(position_idx);
            self.norms_here().residual = shape_of(values, width, &is_real);
        }
        if self.looks_for_nonfinite
            && self.nonfinite.is_none()
            && let Some(element) = first_nonfinite(values)
        {
            self.nonfinite = Some(NonFinite {
                stack: self.stack,
                layer_idx: self.layer_idx,
                hook,
                position_idx: element / width,
                column_idx: element % width,
                value: values[element],
                tensor: None,
            });
        }
        let seen_from = self.stack;
        if is_cross && hook == Hook::ResidPost {
            // Cross-attention is done, so the following values belong to the block again.
            self.stack = self.home;
        }
        match &mut self.tap {
            Some(tap) if tap.wants(seen_from, self.layer_idx, hook) => {
                tap.values(seen_from, self.layer_idx, hook, values, width)
            }
            _ => Ok(()),
        }
    }

    fn wants_globals(&self) -> bool {
        self.tap.as_ref().is_some_and(|tap| tap.wants_globals())
    }

    fn globals(&mut self, keys: &GlobalKeys) {
        if let Some(tap) = &mut self.tap {
            tap.globals(self.stack, keys);
        }
    }

    fn wants_rows(&self) -> bool {
        self.keeps_input || self.tap.as_ref().is_some_and(|tap| tap.wants_rows())
    }

    fn rows(&mut self, hook: Hook, values: &[f32], width: usize) -> Result<()> {
        if self.keeps_input && hook == Hook::ResidPre {
            self.input = Some(values.to_vec());
        }
        match &mut self.tap {
            Some(tap) if tap.wants_rows() => {
                tap.rows(self.stack, self.layer_idx, hook, values, width)
            }
            _ => Ok(()),
        }
    }

    fn wants_raw(&self) -> bool {
        self.keeps_added || self.tap.as_ref().is_some_and(|tap| tap.wants_raw())
    }

    fn raw(&mut self, hook: Hook, values: &[f32], width: usize) -> Result<()> {
        if self.keeps_added && hook == Hook::MlpOut {
            self.added = Some(values.to_vec());
        }
        match &mut self.tap {
            Some(tap) if tap.wants_raw() => {
                tap.raw(self.stack, self.layer_idx, hook, values, width)
            }
            _ => Ok(()),
        }
    }

    fn blocks(&self) -> Option<&dyn BlockSink> {
        let tap = self.tap.as_ref()?;
        tap.blocks(self.stack, self.layer_idx)
    }

    fn cross(&mut self) -> Option<&mut dyn Hooks> {
        self.stack = Stack::Cross;
        Some(self)
    }

    fn back(&mut self) {
        self.stack = self.home;
    }
}
