//! Configuration keys that do not affect what a model computes.

/// Keys that transformers writes into every object of a configuration and that do not affect the computation.
pub(super) const IN_EVERY_OBJECT: [&str; 16] = [
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "chunk_size_feed_forward",
    "dtype",
    "hidden_dropout_prob",
    "id2label",
    "initializer_range",
    "is_encoder_decoder",
    "label2id",
    "output_attentions",
    "output_hidden_states",
    "problem_type",
    "return_dict",
    "use_cache",
];

/// Endings of keys about training and about the form of a call's result.
const ENDS: [&str; 6] = [
    "dropout",
    "_drop",
    "_pdrop",
    "_token_id",
    "_coef",
    "initializer_range",
];
const OTHERS: [&str; 4] = [
    "keys_to_ignore_at_inference",
    "layerdrop",
    "output_router_logits",
    "pretraining_tp",
];

/// Whether a key never affects what a model computes, in any configuration.
pub fn is_silent(key: &str) -> bool {
    let has_end = ENDS.iter().any(|end| key.ends_with(end));
    has_end || IN_EVERY_OBJECT.contains(&key) || OTHERS.contains(&key)
}
