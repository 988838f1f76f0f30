//! The induction demo, compiled in so that the program shows something real anywhere.

pub const NAME: &str = "induction-demo";
pub const CONFIG: &str = include_str!("../../fixtures/induction/config.json");
pub const TOKENIZER: &str = include_str!("../../fixtures/induction/tokenizer.json");
pub const WEIGHTS: &[u8] = include_bytes!("../../fixtures/induction/model.safetensors");

/// The text the demo opens with: words, then the same words again.
pub const DEMO_PROMPT: &str = "one cold morning the old king gave a red apple to his good horse , and they walked up the hill by the river . \
     one cold morning the old king gave a red apple to his good horse , and they walked up the hill by the river .";
