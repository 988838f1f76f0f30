//! Estimates the memory of a run before it begins.

use attnscope_checkpoint::{Dtype, Tensors};
use attnscope_compute::attention::{AttentionSpec, POOLED_CELLS, RowSummary};
use attnscope_forward::Input;
use attnscope_spec::{
    BlockRow, BlockSpec, Joining, LinearSource, Model, Stack, StackSpec, TokenMixer,
};

use super::job::Options;
use super::pipeline::KEEP_BYTES;

/// Bytes of one value.
const VALUE: usize = size_of::<f32>();

/// Queries in a row block; `BLOCK_MATRICES` is how many such matrices each thread holds.
const BLOCK_ROWS: usize = 64;

const BLOCK_MATRICES: usize = 2;

/// Logits and their weights, for one chunk of the vocabulary at a time.
const LOGIT_BYTES: usize = 12 << 20;

/// Peak anonymous memory of a run, in bytes. The system's file cache is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Weights of the largest layer that must be converted from their form in the file.
    pub weights: usize,
    /// Activations, row blocks and row summaries.
    pub working: usize,
    /// Layer values kept for inspecting heads later.
    pub kept: usize,
}

impl MemoryNeed {
    /// Need of several prompts run together.
    pub fn of(model: &Model, inputs: &[Input], options: Options, n_threads: usize) -> Self {
        let spec = &model.spec;
        let tensors = &model.checkpoint.tensors;
        let blocks = || spec.stacks.iter().flat_map(StackSpec::blocks);
        let recurrences = || spec.stacks.iter().filter_map(StackSpec::recurrence);
        let of_blocks = blocks().map(|block| widened(tensors, block.linears()));
        let of_recurrences = recurrences().map(|network| widened(tensors, network.linears()));
        let weights = of_blocks.chain(of_recurrences).max();
        let lengths = inputs.iter().flat_map(|input| {
            let source = input.source.as_ref().map_or(0, |source| source.len());
            [source, input.sequence.len()]
        });
        let (n_all, n_longest) =
            lengths.fold((0, 0), |(all, longest), n| (all + n, longest.max(n)));
        // Buffers of the longest prompt, and the residuals of all prompts.
        let widths = spec.stacks.iter().map(|stack| spec.d_widest(stack));
        let d_widest = widths.fold(spec.d_model, usize::max);
        let of_blocks = blocks().map(|block| activations(block, d_widest));
        let of_recurrences = recurrences().map(|network| outputs(&network.linears()));
        let width = of_blocks.chain(of_recurrences).max();
        let row_blocks = n_threads * BLOCK_MATRICES * BLOCK_ROWS * n_longest;
        // One bit per pair of tokens, in attention that sees only picked keys.
        let picks = |block: &BlockSpec| block.attention().is_some_and(|of| of.top_keys.is_some());
        let n_bits = if blocks().any(picks) {
            n_longest * n_longest
        } else {
            0
        };
        let rows = spec.stacks.iter().map(|stack| spec.d_widest_input(stack));
        let d_row = rows.max().unwrap_or(0).max(spec.d_model);
        let values = n_longest * width.unwrap_or(0) + n_all * d_row + row_blocks;
        let rows = |grid: Stack| -> usize {
            let heads = (0..spec.n_layers(grid)).map(|layer_idx| spec.n_heads(grid, layer_idx));
            let of_head =
                n_longest * (size_of::<RowSummary>() + VALUE) + POOLED_CELLS * POOLED_CELLS * VALUE;
            heads.sum::<usize>() * of_head
        };
        let all_rows: usize = spec.grids().into_iter().map(rows).sum();
        let n_layers = blocks().count().max(1);
        let kept = match options.keep_bytes {
            // Layer inputs, and outputs of feed-forward blocks.
            Some(budget) => 2 * budget.min(n_layers * n_longest * d_row * VALUE) + all_rows,
            None => 0,
        };
        let chains = inputs.iter().map(|input| of_chains(model, input)).max();
        let values = values + CHAIN_COPIES * chains.unwrap_or(0);
        Self {
            weights: weights.unwrap_or(0),
            working: values * VALUE + n_bits / 8 + all_rows.div_ceil(n_layers) + LOGIT_BYTES,
            kept,
        }
    }

    /// Need of a prompt on the screen, which keeps layers.
    pub fn on_screen(model: &Model, input: &Input, n_threads: usize) -> Self {
        let options = Options {
            keep_bytes: Some(KEEP_BYTES),
            predicts: true,
        };
        Self::of(model, std::slice::from_ref(input), options, n_threads)
    }

    pub fn total(&self) -> usize {
        self.weights + self.working + self.kept
    }
}

/// How many times the values between two steps of a chain of convolutions are in memory: read, written, added to, and on the device.
const CHAIN_COPIES: usize = 5;

/// The most values between two steps of the convolutions before, between and behind layers.
fn of_chains(model: &Model, input: &Input) -> usize {
    // An encoder before a decoder is the one that has them.
    let sequence = input.source.as_ref().unwrap_or(&input.sequence);
    let stack = &model.spec.stacks[0];
    let picture = sequence.picture.as_deref();
    let size = picture.map_or([sequence.len(), 1], |picture| picture.size());
    let before = stack.embed.first_chain();
    let before = before.map_or(0, |chain| chain.n_values(size));
    let of_block = |(layer_idx, block): (usize, &BlockSpec)| match &block.merge.as_ref()?.joining {
        Joining::Chain(chain) => {
            let grid = sequence.grid().map(|grid| stack.grid_of(layer_idx, grid));
            Some(chain.n_values(grid.unwrap_or([sequence.len(), 1])))
        }
        _ => None,
    };
    let behind = stack.blocks().iter().enumerate().filter_map(of_block);
    behind.fold(before, usize::max)
}

/// Bytes of a layer's linear maps after conversion; of experts, one at a time.
fn widened(tensors: &Tensors, linears: Vec<&LinearSource>) -> usize {
    let of_map = |linear: &LinearSource| -> usize {
        let info = tensors.info(&linear.weight);
        let is_plain = info.is_some_and(|info| info.dtype == Dtype::F32 && info.is_plain());
        let is_whole = linear.part.len == linear.part.group;
        let stored = linear.n_in * linear.n_stored_out * VALUE;
        let chosen = linear.n_in * linear.n_out() * VALUE;
        match (is_whole, is_plain) {
            (true, _) => stored,
            (false, true) => chosen,
            // While a part is copied out, the whole map may be in memory too.
            (false, false) => stored + chosen,
        }
    };
    linears.into_iter().map(of_map).sum()
}

/// Number of values that a layer's linear maps output per position.
fn outputs(linears: &[&LinearSource]) -> usize {
    linears.iter().map(|linear| linear.n_out()).sum()
}

/// Values per position in the buffers of a block.
fn activations(block: &BlockSpec, d_model: usize) -> usize {
    // Besides outputs of linear maps: the residual, its norms, branch outputs, and a copy of each head's output.
    let of_heads = |own: &AttentionSpec| own.n_heads * own.d_value;
    // Other mixers also hold their projections on the host: joined, convolved and split.
    let of_other = |mixer: &TokenMixer| 3 * outputs(&mixer.linears());
    // Rows with several streams or kept values are split and joined again.
    let of_row = |row: &BlockRow| 4 * (row.n_streams() * d_model + row.n_kept);
    outputs(&block.linears())
        + 8 * d_model
        + block.row.as_deref().map_or(0, of_row)
        + 2 * block.attention().map_or(0, of_heads)
        + block.other_mixer().map_or(0, of_other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_checkpoint::Checkpoint;

    use attnscope_forward::Sequence;

    fn need(n: usize) -> MemoryNeed {
        let model = attnscope_families::read(
            Checkpoint::open(
                &std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
                    .join("induction"),
            )
            .expect("opens"),
        )
        .expect("is understood");
        let sequence = Sequence {
            tokens: vec![1; n],
            positions: (0..n).collect(),
            real: None,
            picture: None,
            ..Sequence::default()
        };
        let input = Input {
            source: None,
            sequence,
        };
        MemoryNeed::on_screen(&model, &input, 2)
    }

    #[test]
    fn need_for_weights_is_constant_and_the_rest_is_linear_in_text_length() {
        let (short, long) = (need(10), need(1000));
        assert_eq!(short.weights, long.weights);
        let grown = (long.working - LOGIT_BYTES) as f64 / (short.working - LOGIT_BYTES) as f64;
        assert!((5.0..=100.0).contains(&grown), "{grown}");
    }

    #[test]
    fn f32_weights_of_a_layer_are_counted_once() {
        let path = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
            .join("induction");
        let checkpoint = Checkpoint::open(&path).expect("opens");
        let stored = checkpoint.tensors.iter();
        let of_layer = stored.filter(|(name, info)| name.contains("h.0.") && info.shape.len() == 2);
        let n_bytes: usize = of_layer.map(|(_, info)| info.n_bytes()).sum();
        assert!(n_bytes > 0);
        assert_eq!(need(10).weights, n_bytes);
    }
}
