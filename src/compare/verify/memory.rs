//! Memory needed for a second engine and for the values kept to compare the two.

use attnscope_compute::attention::AttentionSpec;
use attnscope_forward::{Input, Sequence};
use attnscope_run::{MemoryNeed, Options};
use attnscope_spec::recurrent::Recurrence;
use attnscope_spec::{BlockSpec, LinearSource, Model, Stack, StackSpec};

use crate::rows::CELL_BYTES;

/// Bytes of one value.
const VALUE: usize = size_of::<f32>();

/// Returns the bytes that verifying a prompt needs beyond a normal run of it.
pub fn verify_bytes(model: &Model, input: &Input, row_bytes: usize, n_threads: usize) -> usize {
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let of_run = MemoryNeed::of(model, std::slice::from_ref(input), options, n_threads);
    // A device holds a copy of a layer's weights as f32, whatever their stored type.
    let linears = |linears: Vec<&LinearSource>| -> usize {
        linears.iter().map(|l| l.n_in * l.n_out() * VALUE).sum()
    };
    let stacks = &model.spec.stacks;
    let of_blocks = stacks.iter().flat_map(StackSpec::blocks);
    let of_networks = stacks.iter().filter_map(StackSpec::recurrence);
    let of_blocks = of_blocks.map(|block| linears(BlockSpec::linears(block)));
    let of_networks = of_networks.map(|network| linears(Recurrence::linears(network)));
    let weights = of_blocks.chain(of_networks).max().unwrap_or(0);
    let layers = stacks.iter().flat_map(|stack| {
        (0..stack.n_layers()).map(|layer_idx| of_layer(model, input, (stack, layer_idx), row_bytes))
    });
    of_run.working + weights + layers.max().unwrap_or(0)
}

/// Returns the bytes of the reference's hooks and of one round's rows, for one layer.
fn of_layer(
    model: &Model,
    input: &Input,
    (stack, layer_idx): (&StackSpec, usize),
    row_bytes: usize,
) -> usize {
    let spec = &model.spec;
    let n_source = input.source.as_ref().map_or(0, Sequence::len);
    let n = if stack.stack == Stack::Encoder {
        n_source
    } else {
        input.sequence.len()
    };
    let of_attention = |attention: &AttentionSpec, n_keys: usize| {
        let of_query = attention.n_heads * (2 * attention.d_head + attention.d_value);
        let of_key = attention.n_kv_heads * (2 * attention.d_head + attention.d_value);
        let of_head = n * n_keys * CELL_BYTES;
        let rows = (attention.n_heads * of_head).min(row_bytes.max(of_head));
        // Once as kept, and once for heads that are computed again.
        2 * (n * of_query + n_keys * of_key) * VALUE + rows
    };
    let own = spec.attention(stack.stack, layer_idx);
    let cross = spec.attention(Stack::Cross, layer_idx);
    let cross = cross.filter(|_| stack.stack == Stack::Decoder);
    // Input and output of the block, its branch outputs, and one such value copied from a device.
    let stream = (5 + 3 * usize::from(cross.is_some())) * n * spec.d_model * VALUE;
    let own = own.map_or(0, |attention| of_attention(attention, n));
    let cross = cross.map_or(0, |attention| of_attention(attention, n_source));
    stream + own + cross
}

#[cfg(test)]
mod tests {
    use super::*;
    use attnscope_checkpoint::Checkpoint;

    #[test]
    fn row_memory_is_within_the_limit_but_at_least_one_head() {
        let model = attnscope_families::read(
            Checkpoint::open(
                &std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures"))
                    .join("induction"),
            )
            .expect("opens"),
        )
        .expect("is understood");
        let n = 1000;
        let input = Input {
            source: None,
            sequence: Sequence {
                tokens: vec![1; n],
                positions: (0..n).collect(),
                real: None,
                picture: None,
                ..Sequence::default()
            },
        };
        let bytes = |row_bytes: usize| verify_bytes(&model, &input, row_bytes, 2);
        let of_head = n * n * CELL_BYTES;
        let n_heads = model.spec.n_heads(Stack::Only, 0);
        assert!(n_heads > 2);
        let least = bytes(0);
        assert!(least > of_head);
        assert_eq!(bytes(of_head), least);
        assert_eq!(bytes(2 * of_head), least + of_head);
        assert_eq!(bytes(usize::MAX), least + (n_heads - 1) * of_head);
    }
}
