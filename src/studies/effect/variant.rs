//! A change of a run: which values are replaced, and by what.

use std::ops::Range;
use std::sync::Arc;

use attnscope_compute::attention::BlockSink;
use attnscope_compute::error::Result;
use attnscope_forward::{Hook, Hooks};
use attnscope_spec::{Model, Place, Stack};

/// Kind of part whose effect can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Head,
    /// All heads of an attention at once; its output bias stays.
    AllHeads,
    /// All heads of an attention, including its output bias.
    Attention,
    FeedForward,
    /// Residual before the layer.
    Residual,
}

impl Part {
    /// Name in tables and files.
    pub fn label(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::AllHeads => "all_heads",
            Self::Attention => "attention",
            Self::FeedForward => "feed_forward",
            Self::Residual => "residual",
        }
    }

    /// Hook at which the part's values are read.
    pub fn hook(self) -> Hook {
        match self {
            Self::Head | Self::AllHeads => Hook::Z,
            Self::Attention => Hook::AttnOut,
            Self::FeedForward => Hook::MlpOut,
            Self::Residual => Hook::ResidPre,
        }
    }
}

/// Replacement for some columns.
#[derive(Debug, Clone)]
pub enum Instead {
    Zero,
    /// The same values at every position. // [column]
    Row(Arc<Vec<f32>>),
    /// Values of another run, with all its columns. // [position, width]
    Rows(Arc<Vec<f32>>),
}

/// One change of a run.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Grid of the part: `Stack::Cross` for cross-attention.
    pub stack: Stack,
    pub layer_idx: usize,
    pub part: Part,
    /// The only position to change; `None` for all positions.
    pub position_idx: Option<usize>,
    /// Columns of the hook's values to change.
    pub columns: Range<usize>,
    pub instead: Instead,
}

impl Variant {
    /// Stack in which the layer runs.
    pub fn home(&self) -> Stack {
        match self.stack {
            Stack::Cross => Stack::Decoder,
            other => other,
        }
    }

    fn put(&self, values: &mut [f32], width: usize) {
        let columns = self.columns.clone();
        for (position_idx, row) in values.chunks_mut(width).enumerate() {
            if self.position_idx.is_some_and(|only| only != position_idx) {
                continue;
            }
            let to = &mut row[columns.clone()];
            match &self.instead {
                Instead::Zero => to.fill(0.0),
                Instead::Row(from) => to.copy_from_slice(&from[..to.len()]),
                Instead::Rows(from) => {
                    to.copy_from_slice(&from[position_idx * width..][columns.clone()]);
                }
            }
        }
    }
}

/// All parts of a model that `wants` selects, in the order in which layers run.
pub fn parts_of(
    model: &Model,
    wants: impl Fn(Part, Place) -> bool,
) -> Vec<(Part, Place, Range<usize>)> {
    let mut parts = Vec::new();
    let spec = &model.spec;
    for stack in &spec.stacks {
        for layer_idx in 0..stack.n_layers() {
            let own = (stack.stack, spec.attention(stack.stack, layer_idx));
            let block = stack.blocks().get(layer_idx);
            let d_added = block.map_or(spec.d_model, |block| block.d_added(spec.d_model));
            let cross = (stack.stack != Stack::Encoder && spec.is_encoder_decoder())
                .then(|| (Stack::Cross, spec.attention(Stack::Cross, layer_idx)));
            for (grid, attention) in std::iter::once(own).chain(cross) {
                let Some(attention) = attention else {
                    continue;
                };
                let layer = Place::layer(grid, layer_idx);
                let width = attention.d_value;
                let heads = (0..attention.n_heads).map(|head_idx| {
                    let columns = head_idx * width..(head_idx + 1) * width;
                    (Part::Head, layer.head(head_idx), columns)
                });
                parts.extend(heads.filter(|(part, place, _)| wants(*part, *place)));
                if wants(Part::AllHeads, layer) {
                    parts.push((Part::AllHeads, layer, 0..attention.n_heads * width));
                }
                if wants(Part::Attention, layer) {
                    parts.push((Part::Attention, layer, 0..d_added));
                }
            }
            let layer = Place::layer(stack.stack, layer_idx);
            if wants(Part::FeedForward, layer) {
                parts.push((Part::FeedForward, layer, 0..d_added));
            }
        }
    }
    parts
}

/// Number of parts that `wants` selects.
pub fn n_parts(model: &Model, wants: impl Fn(Part, Place) -> bool) -> usize {
    parts_of(model, wants).len()
}

/// Applies each copy's change while a block runs several copies.
pub struct Edits<'a> {
    /// Changes in this layer, each with the index of its copy in the group.
    pub changes: Vec<(usize, &'a Variant)>,
    /// Number of rows of one copy.
    pub n_rows: usize,
    /// Whether cross-attention is running.
    pub in_cross: bool,
    pub home: Stack,
    /// Number of copies that the single shared one is repeated to after its heads have run.
    pub spreads: Option<usize>,
}

impl Edits<'_> {
    fn here(&self) -> Stack {
        if self.in_cross {
            Stack::Cross
        } else {
            self.home
        }
    }
}

impl Hooks for Edits<'_> {
    fn wants(&self, hook: Hook) -> bool {
        // Observe the end of cross-attention, because the following values belong to the block again.
        self.in_cross && hook == Hook::ResidPost
    }

    fn values(&mut self, hook: Hook, _: &[f32], _: usize) -> Result<()> {
        if hook == Hook::ResidPost {
            self.in_cross = false;
        }
        Ok(())
    }

    fn changes(&self, hook: Hook) -> bool {
        let here = self.here();
        let mut changes = self.changes.iter();
        changes.any(|(_, variant)| variant.stack == here && variant.part.hook() == hook)
    }

    fn change(&mut self, hook: Hook, values: &mut [f32], width: usize) -> Result<()> {
        let here = self.here();
        let n_values = self.n_rows * width;
        for (copy_idx, variant) in &self.changes {
            if variant.stack == here && variant.part.hook() == hook {
                variant.put(&mut values[copy_idx * n_values..][..n_values], width);
            }
        }
        Ok(())
    }

    fn spreads(&self) -> Option<usize> {
        self.spreads
    }

    fn blocks(&self) -> Option<&dyn BlockSink> {
        None
    }

    fn cross(&mut self) -> Option<&mut dyn Hooks> {
        self.in_cross = true;
        Some(self)
    }

    fn back(&mut self) {
        self.in_cross = false;
    }
}
