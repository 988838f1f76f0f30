//! What the decoder sees of a prompt: the rows of the encoder's output, with their labels.

use std::borrow::Cow;

use attnscope_prompt::{Firsts, Prompt};
use attnscope_spec::ModelSpec;

/// The prompt as cross-attention sees it: the encoder's, or what the encoder's last stage made of it; `None` without an encoder.
pub fn encoded_prompt<'a>(spec: &ModelSpec, prompt: &'a Prompt) -> Option<Cow<'a, Prompt>> {
    let given = prompt.source.as_deref()?;
    let encoder = spec.stacks.first()?;
    let after = encoder.n_layers();
    Some(match (encoder.merged_before(after), &given.picture) {
        (Some(merge), Some(picture)) => {
            let firsts = Firsts::of_stage(merge.has_class(), encoder.n_joined(after));
            Cow::Owned(given.merged_to(encoder.grid_of(after, picture.grid()), firsts))
        }
        _ => Cow::Borrowed(given),
    })
}

/// The number of rows that cross-attention sees; 0 without an encoder.
pub fn n_encoded(spec: &ModelSpec, prompt: &Prompt) -> usize {
    encoded_prompt(spec, prompt).map_or(0, |seen| seen.tokens.len())
}
