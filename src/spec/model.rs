//! A whole model: its stacks, its output head, and its rules for positions and targets.

use std::sync::Arc;

use attnscope_checkpoint::{Checkpoint, Knob};
use attnscope_prompt::{Limits, PicturePreprocessing, PositionRule, SoundRule, Starts};

use super::decoder_start::DecoderStart;
use super::head::HeadSpec;
use super::place::Stack;
use super::recurrent::Recurrence;
use super::stack::{Layers, StackSpec};
use super::timing::Timing;

/// A whole model, with the configuration values it was built from.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    pub family: &'static str,
    /// Width of the residual; of several stages, that of the last.
    pub d_model: usize,
    pub d_vocab: usize,
    /// Number of positions the model supports; `None` if nothing limits it.
    pub n_ctx: Option<usize>,
    pub positions: PositionRule,
    /// One stack, or encoder and decoder.
    pub stacks: Vec<StackSpec>,
    pub head: Option<HeadSpec>,
    /// Whether the head predicts the next token, so that a loss can be computed for any text.
    pub is_causal_lm: bool,
    /// Set for encoder–decoder models.
    pub decoder_start: Option<DecoderStart>,
    /// Cross-attention heads that align tokens with time (speech models).
    pub timing: Option<Timing>,
    pub knobs: Vec<Knob>,
    pub unread_keys: Vec<String>,
}

impl ModelSpec {
    /// A model of one stack with positions counted from 0; its width is that of the token table.
    pub fn of_one_stack(family: &'static str, stack: StackSpec, head: Option<HeadSpec>) -> Self {
        Self {
            family,
            d_model: stack.embed.tokens.width,
            d_vocab: stack.embed.tokens.n_rows,
            n_ctx: None,
            positions: PositionRule::Index,
            stacks: vec![stack],
            head,
            is_causal_lm: false,
            decoder_start: None,
            timing: None,
            knobs: Vec::new(),
            unread_keys: Vec::new(),
        }
    }

    /// The stack that the head reads: the only one, or the decoder.
    pub fn main_stack(&self) -> &StackSpec {
        &self.stacks[self.stacks.len() - 1]
    }

    /// Width of the last hidden state.
    pub fn d_hidden(&self) -> usize {
        match self.main_stack().recurrence() {
            Some(Recurrence::Writer(writer)) => writer.combine.n_out(),
            _ => match &self.main_stack().last_map {
                Some(map) => map.n_out(),
                None => self.d_model,
            },
        }
    }

    /// Width of the residual in a layer of a stack. Stages have widths of their own, and an encoder's last map may change its width to
    /// that of the decoder.
    pub fn d_resid(&self, stack: &StackSpec, layer_idx: usize) -> usize {
        match (stack.merged_width(layer_idx), &stack.last_map) {
            (Some(width), _) => width,
            (None, _) if stack.is_staged() => match (&stack.embed.chain, &stack.embed.projection) {
                (Some(chain), _) => chain.n_out(),
                (None, Some(map)) => map.n_out(),
                (None, None) => stack.embed.tokens.width,
            },
            (None, None) if stack.stack == Stack::Encoder && stack.n_layers() == 0 => {
                stack.embed.tokens.width
            }
            (None, Some(map)) if stack.stack == Stack::Encoder => map.n_in,
            (None, _) => self.d_model,
        }
    }

    /// Width of the encoder's output, which cross-attention reads.
    pub fn d_memory(&self) -> usize {
        let encoder = &self.stacks[0];
        match &encoder.last_map {
            Some(map) => map.n_out(),
            None => self.d_resid(encoder, encoder.n_layers()),
        }
    }

    /// The number of rows of a head's outputs, or of the last hidden states, for a prompt of `n` tokens whose picture, if it has one,
    /// has this grid of patches. A head that pools gives its output for each token of the prompt.
    pub fn n_last(&self, n: usize, grid: Option<[usize; 2]>) -> usize {
        let main = self.main_stack();
        match self.head {
            Some(_) => n,
            None => main.n_positions(main.n_layers(), n, grid),
        }
    }

    /// The largest width of a residual in any layer of a stack.
    pub fn d_widest(&self, stack: &StackSpec) -> usize {
        let widths = (0..stack.n_layers()).map(|layer_idx| self.d_resid(stack, layer_idx));
        widths.max().unwrap_or(self.d_model)
    }

    /// Width of a layer's input: the token embedding's width for a recurrent network, that of several patches for a block that pools.
    pub fn d_input(&self, stack: &StackSpec, layer_idx: usize) -> usize {
        match stack.layers {
            Layers::Recurrent(_) => stack.embed.tokens.width,
            Layers::Blocks(_) => match &stack.rows {
                Some(rows) => rows.width(),
                None => match stack.merged_before(layer_idx) {
                    Some(merge) if stack.pools(layer_idx) => merge.width(),
                    _ => self.d_resid(stack, layer_idx) + stack.n_beside(layer_idx),
                },
            },
        }
    }

    /// The largest width of a layer's input in a stack.
    pub fn d_widest_input(&self, stack: &StackSpec) -> usize {
        let widths = (0..stack.n_layers()).map(|layer_idx| self.d_input(stack, layer_idx));
        widths.fold(self.d_input(stack, 0), usize::max)
    }

    pub fn is_encoder_decoder(&self) -> bool {
        self.stacks.len() == 2
    }

    /// Whether a position table is added to embeddings.
    pub fn stores_positions(&self) -> bool {
        let mut stacks = self.stacks.iter();
        stacks.any(|stack| {
            let embed = &stack.embed;
            embed.positions.is_some() || embed.by_position.is_some() || stack.reaches_to_an_end()
        })
    }

    /// The largest number of tokens that a stack was made for.
    pub fn longest(&self) -> Option<usize> {
        let of_decoder = self.n_ctx_of_decoder().unwrap_or(0);
        self.n_ctx.map(|n_ctx| n_ctx.max(of_decoder))
    }

    /// Number of positions in the decoder's position table.
    fn n_ctx_of_decoder(&self) -> Option<usize> {
        let decoder = self.main_stack().embed.positions.as_ref();
        let n_rows = decoder.filter(|_| self.is_encoder_decoder())?.n_rows()?;
        match self.positions {
            PositionRule::Index => Some(n_rows),
            PositionRule::Shifted { by } => Some(n_rows.saturating_sub(by)),
            _ => None,
        }
    }

    /// How a picture becomes tokens, for models that read pictures.
    pub fn preprocessing(&self) -> Option<PicturePreprocessing> {
        let patches = self.stacks[0].embed.patches.as_ref();
        patches.map(|patches| patches.preprocessing)
    }

    /// Limits on prompts.
    pub fn limits(&self) -> Limits {
        let hears = self.stacks[0].embed.sound.as_deref();
        let sound = hears.map(|stem| stem.rule);
        Limits {
            d_vocab: if sound.is_some() {
                self.d_vocab
            } else {
                self.stacks[0].embed.n_ids()
            },
            d_vocab_target: self
                .decoder_start
                .as_ref()
                .filter(|start| start.has_own_vocabulary)
                .map(|_| self.d_vocab),
            n_ctx: self.n_ctx,
            n_ctx_target: self.n_ctx_of_decoder(),
            is_n_ctx_hard: self.stores_positions(),
            positions: self.positions,
            start_token: self.decoder_start.as_ref().map(|start| start.start_token),
            preprocessing: self.preprocessing(),
            starts: self
                .decoder_start
                .as_ref()
                .map_or(Starts::NONE, DecoderStart::starts),
            sound,
            rows_of_target: self.rows_of_target(),
        }
    }

    /// How the rows of numbers that a decoder reads in place of tokens are given.
    fn rows_of_target(&self) -> Option<SoundRule> {
        let decoder = self.is_encoder_decoder().then(|| self.main_stack())?;
        let stem = decoder.embed.sound.as_deref()?;
        stem.rule.is_rows.then_some(stem.rule)
    }
}

/// An open checkpoint and its spec.
#[derive(Debug, Clone)]
pub struct Model {
    pub checkpoint: Arc<Checkpoint>,
    pub spec: ModelSpec,
}

impl Model {
    /// The same checkpoint with another spec.
    pub fn with_spec(&self, spec: ModelSpec) -> Self {
        Self {
            checkpoint: self.checkpoint.clone(),
            spec,
        }
    }
}
