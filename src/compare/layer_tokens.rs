//! The tokens of the queries and of the keys of one layer's attention.

use std::borrow::Cow;

use attnscope_forward::{Input, Sequence};
use attnscope_spec::{ModelSpec, Stack};

/// Returns the tokens of a layer's queries and of its keys, as its stage has them.
pub(super) fn tokens_of<'a>(
    spec: &ModelSpec,
    input: &'a Input,
    (stack, layer_idx): (Stack, usize),
) -> (Cow<'a, Sequence>, Cow<'a, Sequence>) {
    let main = &input.sequence;
    let source = input.source.as_ref().unwrap_or(main);
    let of_layer = |sequence: &'a Sequence| {
        let queries = sequence.of_layer(spec.stack_of(stack), layer_idx);
        let keys = match spec.projections(stack, layer_idx) {
            Some(maps) if maps.key_grid.is_some() => {
                let source = input.source.as_ref();
                Cow::Owned(queries.keys_of(maps, source).into_owned())
            }
            _ => queries.clone(),
        };
        (queries, keys)
    };
    match stack {
        Stack::Encoder => of_layer(source),
        Stack::Cross => (Cow::Borrowed(main), source.of_output(&spec.stacks[0])),
        _ => of_layer(main),
    }
}
