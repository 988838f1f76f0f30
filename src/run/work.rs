//! Estimates the arithmetic of a run before it begins, so that progress measures work rather than layers.

use attnscope_compute::attention::Visibility;
use attnscope_forward::{Input, Sequence};
use attnscope_spec::recurrent::Recurrence;
use attnscope_spec::{BlockSpec, FeedForward, LinearSource, Model, Stack};

use super::edited::Shared;
use super::job::Options;

/// Multiplications in all matrix products of some prompts' runs; at least 1.
pub fn work_of(model: &Model, inputs: &[Input], options: Options) -> u64 {
    let of_input = |input: &Input| -> u64 {
        let source = input.source.as_ref().map_or(0, Sequence::len);
        let stacks = model.spec.stacks.iter().map(|stack| {
            let n = match stack.stack {
                Stack::Encoder => source,
                _ => input.sequence.len(),
            };
            let blocks = stack
                .blocks()
                .iter()
                .map(|block| of_block(block, n, source));
            let linears = stack.recurrence().into_iter().flat_map(Recurrence::linears);
            let recurrent = linears.map(|linear| of_linear(linear, n));
            blocks.chain(recurrent).sum::<u64>()
        });
        let head = model.spec.head.as_ref().filter(|_| options.predicts);
        let logits = head.map_or(0, |head| of_linear(&head.unembed, input.sequence.len()));
        stacks.sum::<u64>() + logits
    };
    inputs.iter().map(of_input).sum::<u64>().max(1)
}

/// Multiplications saved by reusing an earlier run's first tokens.
pub fn work_spared(model: &Model, shared: &Shared<'_>, options: Options) -> u64 {
    let stack = model.spec.main_stack();
    let layers = stack.blocks().iter().enumerate();
    // Experts of limited capacity run on all tokens again.
    let known = layers.filter(|(layer_idx, block)| {
        shared.added(*layer_idx).is_some() && !block.feed_forward.is_limited()
    });
    let of_layers = known.map(|(_, block)| of_feed_forward(&block.feed_forward, shared.n_tokens()));
    let head = model.spec.head.as_ref().filter(|_| options.predicts);
    let n_predicted = shared.predictions().map_or(0, |(_, n)| n);
    let logits = head.map_or(0, |head| of_linear(&head.unembed, n_predicted));
    of_layers.sum::<u64>() + logits
}

fn of_feed_forward(feed_forward: &FeedForward, n: usize) -> u64 {
    let linears = feed_forward.linears().into_iter();
    linears.map(|linear| of_linear(linear, n)).sum::<u64>() + of_more_experts(feed_forward, n)
}

/// Multiplications of the other experts: one is already counted with the block, but every token uses `n_used` of them, and
/// those that are always used.
fn of_more_experts(feed_forward: &FeedForward, n: usize) -> u64 {
    let FeedForward::Experts(experts) = feed_forward else {
        return 0;
    };
    let of_one = experts.experts.first().map_or(0, |one| {
        let linears = [&one.up, &one.down].into_iter().chain(&one.gate);
        linears.map(|linear| of_linear(linear, n)).sum()
    });
    let n_used = experts.rule.n_used + experts.rule.n_always;
    of_one * n_used.saturating_sub(1) as u64
}

fn of_linear(linear: &LinearSource, n: usize) -> u64 {
    (linear.n_in * linear.n_out()) as u64 * n as u64
}

fn of_block(block: &BlockSpec, n: usize, n_source: usize) -> u64 {
    let linears = block.linears().into_iter();
    let mut work: u64 = linears.map(|linear| of_linear(linear, n)).sum();
    work += of_more_experts(&block.feed_forward, n);
    let of_attention = block.attention().map_or(0, |spec| {
        let visibility = Visibility::of_self(spec.mask, n, None);
        let seen: usize = (0..n)
            .map(|query_idx| visibility.n_visible(query_idx))
            .sum();
        (seen * spec.n_heads * (spec.d_head + spec.d_value)) as u64
    });
    work += of_attention;
    let across = block.cross.as_ref().map_or(0, |cross| {
        let spec = &cross.attention;
        n * n_source * spec.n_heads * (spec.d_head + spec.d_value)
    });
    work += across as u64;
    // Both run once more before they share a softmax.
    work + block.merged().map_or(0, |_| of_attention + across as u64)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{Silent, run};
    use attnscope_checkpoint::Checkpoint;

    use attnscope_compute::ops::Cpu;
    use attnscope_compute::pace::Pace;

    #[derive(Default)]
    struct Counter(AtomicU64);

    impl Pace for Counter {
        fn stops(&self) -> bool {
            false
        }

        fn did(&self, multiply_adds: u64) {
            self.0.fetch_add(multiply_adds, Ordering::Relaxed);
        }
    }

    #[test]
    fn estimated_work_equals_the_work_counted_during_a_run() {
        let model = attnscope_families::read(
            Checkpoint::open(
                &std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
                    .join("induction"),
            )
            .expect("opens"),
        )
        .expect("is understood");
        let n = 120;
        let sequence = Sequence {
            tokens: (0..n as u32).map(|i| i % 200).collect(),
            positions: (0..n).collect(),
            real: None,
            picture: None,
            ..Sequence::default()
        };
        let input = Input {
            source: None,
            sequence,
        };
        let options = Options {
            keep_bytes: None,
            predicts: true,
        };
        let counter = Counter::default();
        run(&Cpu, &model, &input, options, &mut Silent, None, &counter).expect("runs");
        let told = work_of(&model, std::slice::from_ref(&input), options) as f64;
        let counted = counter.0.into_inner() as f64;
        assert!(
            (0.9..=1.15).contains(&(counted / told)),
            "{counted} of {told}"
        );
    }
}
